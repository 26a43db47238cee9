// Actions on the selected pictures: download them, copy their paths, add them to albums.

import * as api from "./api.js";
import { byId, counted, make } from "./dom.js";
import { selection } from "./selection.js";

export const FAVOURITES = "Favourites";
const isHere = ["localhost", "127.0.0.1", "[::1]"].includes(location.hostname);

/** Set up the bar below the results. `album()` returns the album shown; calls `changed(name)` after changing an album.
 */
export function showActions({ album, changed, say }) {
  const act = (id, action) => byId(id).addEventListener("click", () => action().catch((error) => say(error.message)));
  selection.onChange(() => {
    const count = selection.ids.length;
    const hadFocus = byId("selected").contains(document.activeElement);
    byId("selected").hidden = count === 0;
    if (hadFocus && count === 0) byId("results").focus({ preventScroll: true });
    byId("selected-count").textContent = `${counted(count, "picture", "pictures")} selected`;
    byId("selected-folder").hidden = count !== 1 || !isHere;
    byId("selected-remove").hidden = !album();
    byId("selected-remove").textContent = `Remove from ${album()}`;
    document.body.classList.toggle("is-selecting", count > 0);
  });
  act("selected-clear", async () => selection.clear());
  act("selected-download", async () => download(selection.ids));
  act("selected-copy", async () => {
    const { paths, unknown_ids: unknown } = await api.paths(selection.ids);
    await copy(paths.join("\n"));
    say(`${counted(paths.length, "path", "paths")} copied${missing(unknown)}`);
  });
  act("selected-folder", () => api.reveal(selection.ids[0]));
  act("selected-favourite", () => add(FAVOURITES));
  act("selected-album", () => askForAlbum(add, say));
  act("selected-remove", async () => {
    const [name, { ids }] = [album(), selection];
    const { unknown_ids: unknown } = await api.removeFromAlbum(name, ids);
    say(`Removed from ${name}${missing(unknown)}`);
    selection.remove(ids);
    changed(name);
  });

  async function add(name) {
    const { ids } = selection;
    const { unknown_ids: unknown = [] } = await api.addToAlbum(name, ids);
    say(`${counted(ids.length - unknown.length, "picture", "pictures")} added to ${name}${missing(unknown)}`);
    selection.remove(ids); // others may have been selected meanwhile
    changed(name);
  }
}

/** Say how many of the selected pictures no longer exist; nothing if all do. */
function missing(ids = []) {
  return ids.length ? `; ${counted(ids.length, "no longer exists", "no longer exist")}` : "";
}

/** Let the browser save an archive, through a form: a response to a script would have to fit into memory. */
function download(ids) {
  const form = make("form", { method: "post", action: "/v1/download", hidden: true });
  form.append(make("input", { name: "ids", value: ids.join(",") }));
  document.body.append(form);
  form.submit();
  form.remove();
}

/** Copy text; browsers allow the clipboard API only over HTTPS or on localhost. */
async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const held = document.activeElement;
    const field = make("textarea", { value: text });
    document.body.append(field);
    field.select();
    const isCopied = document.execCommand("copy");
    field.remove();
    held.focus({ preventScroll: true });
    if (!isCopied) throw new Error("The browser did not allow copying. Try again.");
  }
}

let opened = 0; // how often the dialog was opened

/** Ask for the name of an album, and call `add(name)`. The names of albums are suggested once they have come. */
async function askForAlbum(add, say) {
  const own = (opened += 1);
  const dialog = byId("album-dialog");
  const isAsking = () => dialog.open && own === opened; // it may be cancelled while a request is under way
  const tell = (error) => {
    byId("album-wrong").hidden = !error;
    byId("album-wrong").textContent = error?.message ?? "";
  };
  let isSent = false;
  byId("album-form").onsubmit = async (event) => {
    event.preventDefault();
    const name = byId("album-name").value.trim();
    if (!name || isSent) return;
    isSent = true;
    try {
      await add(name);
      if (!isAsking()) return;
      dialog.close();
      byId("results").focus({ preventScroll: true }); // the button that opened the dialog is hidden now
    } catch (error) {
      if (isAsking()) tell(error);
      else say(error.message);
    }
    isSent = false;
  };
  tell(null);
  byId("album-name").value = "";
  byId("album-cancel").onclick = () => dialog.close();
  dialog.showModal();
  const { albums } = await api.albums().catch((error) => { if (isAsking()) tell(error); return { albums: [] }; });
  byId("album-names").replaceChildren(...albums.map(({ name }) => make("option", { value: name })));
}
