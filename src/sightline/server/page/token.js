// Ask the visitor for the server's token, until it is correct.

import { showToken } from "./api.js";
import { byId } from "./dom.js";

/** Resolves once the visitor has entered the correct token. */
export function askForToken() {
  const dialog = byId("token");
  const form = byId("token-form");
  const stay = (event) => event.preventDefault();
  const reopen = () => dialog.showModal(); // browsers close a dialog at the second Escape, whatever "cancel" says
  dialog.addEventListener("cancel", stay); // without a token, there is nothing to show
  dialog.addEventListener("close", reopen);
  dialog.showModal();
  return new Promise((resolve) => {
    form.addEventListener("submit", async function given(event) {
      event.preventDefault();
      const wrong = await refused(byId("token-value").value);
      byId("token-wrong").hidden = !wrong;
      byId("token-wrong").textContent = wrong;
      if (wrong) return;
      form.removeEventListener("submit", given);
      dialog.removeEventListener("cancel", stay);
      dialog.removeEventListener("close", reopen);
      form.reset();
      dialog.close();
      resolve();
    });
  });
}

/** Why a token is refused; empty if it is correct. */
async function refused(token) {
  try {
    return (await showToken(token.trim())) ? "" : "Wrong token.";
  } catch (error) {
    return error.message;
  }
}
