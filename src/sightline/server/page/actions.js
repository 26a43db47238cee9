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
    byId("selected").hidden = count === 0;
    byId("selected-count").textContent = `${counted(count, "picture", "pictures")} selected`;
    byId("selected-folder").hidden = count !== 1 || !isHere;
    byId("selected-remove").hidden = !album();
    byId("selected-remove").textContent = `Remove from ${album()}`;
    document.body.classList.toggle("is-selecting", count > 0);
  });
  act("selected-clear", async () => selection.clear());
  act("selected-download", async () => download(selection.ids));
  act("selected-copy", async () => {
    const { paths } = await api.paths(selection.ids);
    await copy(paths.join("\n"));
    say(`${counted(paths.length, "path", "paths")} copied`);
  });
  act("selected-folder", () => api.reveal(selection.ids[0]));
  act("selected-favourite", () => add(FAVOURITES));
  act("selected-album", async () => askForAlbum(add));
  act("selected-remove", async () => {
    const name = album();
    await api.removeFromAlbum(name, selection.ids);
    say(`Removed from ${name}`);
    selection.clear();
    changed(name);
  });

  async function add(name) {
    const count = selection.ids.length;
    await api.addToAlbum(name, selection.ids);
    say(`${counted(count, "picture", "pictures")} added to ${name}`);
    selection.clear();
    changed(name);
  }
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
    const field = make("textarea", { value: text });
    document.body.append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
  }
}

async function askForAlbum(add) {
  const { albums } = await api.albums();
  byId("album-names").replaceChildren(...albums.map(({ name }) => make("option", { value: name })));
  const dialog = byId("album-dialog");
  byId("album-form").onsubmit = async (event) => {
    event.preventDefault();
    const name = byId("album-name").value.trim();
    if (!name) return;
    try {
      await add(name);
      dialog.close();
    } catch (error) {
      byId("album-wrong").hidden = false;
      byId("album-wrong").textContent = error.message;
    }
  };
  byId("album-wrong").hidden = true;
  byId("album-name").value = "";
  byId("album-cancel").onclick = () => dialog.close();
  dialog.showModal();
}
