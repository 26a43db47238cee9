// Asks for the token of a server that needs one, until it is the right one.

import { showToken } from "./api.js";
import { byId } from "./dom.js";

/** Resolves when the visitor has shown the right token. */
export function askForToken() {
  const dialog = byId("token");
  const form = byId("token-form");
  const stay = (event) => event.preventDefault();
  dialog.addEventListener("cancel", stay); // there is nothing behind it
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
      form.reset();
      dialog.close();
      resolve();
    });
  });
}

/** Why a token is refused; an empty text if it is right. */
async function refused(token) {
  try {
    return (await showToken(token.trim())) ? "" : "Wrong token.";
  } catch (error) {
    return error.message;
  }
}
