// Which pictures are selected: with their check marks, as a range with Shift, by dragging across them, or with keys.

import { byId } from "./dom.js";

const MOST = 10_000; // the maximum that a request accepts

/** The selected ids, in the order of selection. `source.range(from, to)` returns the ids between two positions. */
class Selection {
  #ids = new Set();
  #last = null; // the position of the item clicked last
  #drawing = false;
  #listeners = [];
  #round = 0; // how often it was cleared

  get isOn() {
    return this.#ids.size > 0;
  }

  get ids() {
    return [...this.#ids];
  }

  has(id) {
    return this.#ids.has(id);
  }

  onChange(listener) {
    this.#listeners.push(listener);
  }

  clear() {
    this.#ids.clear();
    this.#last = null;
    this.#round += 1;
    this.#tell();
  }

  add(ids) {
    for (const id of ids) if (this.#ids.size < MOST) this.#ids.add(id);
    this.#tell();
  }

  /** Add ids that are still being loaded, unless the selection is cleared meanwhile. */
  async addLater(loading) {
    const round = this.#round;
    const ids = await loading.catch(() => []); // who loads them tells the visitor why that failed
    if (round === this.#round) this.add(ids);
  }

  remove(ids) {
    for (const id of ids) this.#ids.delete(id);
    this.#tell();
  }

  /** Handle a click on a picture or its check mark: toggle it or, with Shift, select all from the last one to it. */
  clicked(id, place, event, source) {
    const last = this.#last;
    this.#last = place;
    if (event.shiftKey && last !== null) this.addLater(source.range(last, place));
    else if (this.#ids.has(id)) this.remove([id]);
    else this.add([id]);
  }

  /** Let the visitor select pictures of a list by dragging across them, starting at a check mark. */
  drawIn(list) {
    list.addEventListener("pointerdown", (event) => {
      this.#drawing = event.pointerType === "mouse" && event.button === 0 && event.target.closest(".pick") !== null;
    });
    list.addEventListener("pointerover", (event) => {
      const found = event.target.closest(".tile");
      if (!this.#drawing || !event.buttons || !found?.dataset.id || found.contains(event.relatedTarget)) return;
      const before = event.relatedTarget?.closest?.(".tile")?.dataset.id;
      this.add([before, found.dataset.id].filter(Boolean).map(Number));
      this.#drew = true;
    });
    list.addEventListener("click", (event) => {
      if (this.#drew) event.stopImmediatePropagation(); // the end of a drag is not a click
      this.#drew = false;
    }, { capture: true });
    addEventListener("pointerup", () => { this.#drawing = false; });
  }

  #drew = false;

  #tell() {
    for (const tile of byId("results").querySelectorAll(".tile[data-id]")) mark(tile);
    for (const listener of this.#listeners) listener(this);
  }
}

export const selection = new Selection();

/** Show on a tile whether it is selected. */
export function mark(tile) {
  const isPicked = selection.has(Number(tile.dataset.id));
  tile.classList.toggle("is-picked", isPicked);
  tile.querySelector(".pick")?.setAttribute("aria-checked", String(isPicked));
}
