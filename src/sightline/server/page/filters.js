// The filters of a search: unwanted words, a folder, an album, dates, and how much a picture counts next to words.

import * as api from "./api.js";
import { byId, make } from "./dom.js";
import { filterCount, isEmpty, isJoined } from "./state.js";

const FIELDS = ["without", "folder", "album", "from", "to"];

/** The panel under the search field; calls `typing(fields)` while the visitor types, and `change(fields)` afterwards.
 */
export class Filters {
  #loading = null; // the last request for the choices, unless it failed

  constructor({ change, typing, deleteAlbum }) {
    byId("more").addEventListener("click", () => this.#toggle(byId("filters").hidden));
    byId("clear").addEventListener("click", () => change({ without: "", folder: "", album: "", from: "", to: "" }));
    byId("delete-album").addEventListener("click", () => deleteAlbum(byId("album").value));
    byId("without").addEventListener("input", () => typing(read()));
    for (const name of [...FIELDS, "weight"]) byId(name).addEventListener("change", () => change(read()));
  }

  /** Show the filters of a query. */
  show(query) {
    const count = filterCount(query);
    byId("more-count").hidden = count === 0;
    byId("more-count").textContent = String(count);
    byId("more").setAttribute("aria-label", count ? `Filters, ${count} set` : "Filters");
    byId("weight-label").hidden = !isJoined(query);
    byId("without").disabled = isEmpty(query);
    byId("without").placeholder = isEmpty(query) ? "with a search" : "snow, people";
    for (const name of ["folder", "album"]) choose(byId(name), query[name]);
    byId("delete-album").hidden = !query.album;
    for (const name of [...FIELDS, "weight"]) {
      if (byId(name).value !== String(query[name])) byId(name).value = query[name];
    }
    if (count && byId("filters").hidden) this.#toggle(true);
  }

  /** Reload the choices, because they have changed. */
  renew() {
    this.#loading = null;
    if (!byId("filters").hidden) this.#load();
  }

  #toggle(isOpen) {
    byId("filters").hidden = !isOpen;
    byId("more").setAttribute("aria-expanded", String(isOpen));
    if (isOpen) this.#load();
  }

  /** Load the choices once; if that fails, everything else still works. */
  async #load() {
    if (this.#loading) return;
    const loading = (this.#loading = Promise.all([api.filters(), api.albums()]));
    try {
      const [choices, { albums }] = await loading;
      if (this.#loading !== loading) return; // a later request has the newer choices
      offer(choices);
      offerAlbums(albums);
    } catch {
      if (this.#loading === loading) this.#loading = null;
    }
  }
}

function read() {
  const found = Object.fromEntries(FIELDS.map((name) => [name, byId(name).value]));
  return { ...found, weight: Number(byId("weight").value) };
}

/** Choose an option; one that is not offered is added, because a link may name it. */
function choose(field, value) {
  if (![...field.options].some((option) => option.value === value)) {
    field.append(make("option", { value, textContent: value }));
  }
  field.value = value;
}

function offerAlbums(albums) {
  const chosen = byId("album").value;
  const options = albums.map(({ name, items }) =>
    make("option", { value: name, textContent: `${name} (${items.toLocaleString("en")})` }));
  byId("album").replaceChildren(make("option", { value: "", textContent: "Any album" }), ...options);
  choose(byId("album"), chosen);
  byId("album").closest("label").hidden = albums.length === 0 && !chosen;
}

function offer({ folders, taken }) {
  const chosen = byId("folder").value;
  const options = folders.map(({ root, path, items }) => {
    const name = root ? [root, path].filter(Boolean).join("/") : path;
    const value = root ? `${root}//${path}` : path;
    return make("option", { value, textContent: `${name} (${items.toLocaleString("en")})` });
  });
  byId("folder").replaceChildren(make("option", { value: "", textContent: "Any folder" }), ...options);
  choose(byId("folder"), chosen);
  byId("folder").closest("label").hidden = folders.length === 0 && !chosen;
  for (const name of ["from", "to"]) {
    const field = byId(name);
    field.closest("label").hidden = !taken && !field.value;
    if (!taken) continue;
    field.min = taken.first.slice(0, 10);
    field.max = taken.last.slice(0, 10);
  }
}
