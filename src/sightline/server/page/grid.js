// The results: rows of pictures that keep their proportions and fill the window; arrow keys move between them.
// The style sheet lays out the rows. A result that remains keeps its tile, so that nothing flickers.

import { byId, isStill } from "./dom.js";
import { selection } from "./selection.js";
import { skeleton, tile, update } from "./tiles.js";

const SKELETONS = [1.5, 1.33, 0.75, 1.5, 1, 1.33, 1.78, 0.67, 1.5, 1.33, 0.8, 1.4];
const MOVE_MS = 260;

/** Two lists of results, likely and unlikely; calls `open(id)` or `like(id)` when the visitor chooses one. */
export class Grid {
  #lists = [byId("likely"), byId("unlikely")];
  #tiles = new Map();
  #open;
  #like;

  constructor({ open, like }) {
    this.#open = open;
    this.#like = like;
    for (const list of this.#lists) {
      list.addEventListener("click", (event) => this.#clicked(event));
      list.addEventListener("keydown", (event) => this.#pressed(event));
      selection.drawIn(list);
      list.addEventListener("focusin", (event) => this.#reached(event.target));
    }
  }

  /** Show these results in place of the current ones. */
  show(likely, unlikely = []) {
    const before = this.#places();
    const held = document.activeElement;
    const kept = new Map();
    [likely, unlikely].forEach((hits, place) => {
      const tiles = hits.map((hit) => this.#tileOf(hit, kept));
      this.#lists[place].classList.toggle("is-texts", hits.some((hit) => !hit.thumbnail));
      this.#lists[place].replaceChildren(...tiles);
    });
    this.#tiles = kept;
    const buttons = this.#buttons();
    if (buttons.every((button) => button.tabIndex !== 0)) this.#reached(buttons[0]);
    if (held !== document.activeElement && held.isConnected) held.focus({ preventScroll: true });
    if (!isStill()) this.#slide(before);
  }

  /** Show placeholders for the results. */
  wait() {
    this.#tiles.clear();
    this.#lists[0].classList.remove("is-texts");
    this.#lists[0].replaceChildren(...SKELETONS.map(skeleton));
    this.#lists[1].replaceChildren();
  }

  /** Move the focus to a result; by default to the first. */
  focus(id = null) {
    const wanted = id === null ? this.#buttons()[0] : this.#tiles.get(id)?.querySelector(".open");
    wanted?.focus();
    wanted?.scrollIntoView({ block: "nearest" });
  }

  #tileOf(hit, kept) {
    const found = this.#tiles.get(hit.id);
    if (found) update(found, hit);
    kept.set(hit.id, found ?? tile(hit));
    return kept.get(hit.id);
  }

  #buttons() {
    return this.#lists.flatMap((list) => [...list.querySelectorAll(".open")]);
  }

  #clicked(event) {
    const button = event.target.closest("button");
    if (!button) return;
    const id = Number(button.closest(".tile").dataset.id);
    if (!button.classList.contains("like") && (button.classList.contains("pick") || selection.isOn)) {
      selection.clicked(id, this.#order().indexOf(id), event, this);
      return;
    }
    if (button.classList.contains("like")) this.#like(id);
    else this.#open(id);
  }

  /** The ids of the results between two positions, both included. */
  async range(from, to) {
    return this.#order().slice(Math.min(from, to), Math.max(from, to) + 1);
  }

  #order() {
    return this.#buttons().map((button) => Number(button.closest(".tile").dataset.id));
  }

  /** Let Tab reach only one result, the last focused; arrow keys move on from there. */
  #reached(element) {
    if (!element?.classList.contains("open")) return;
    for (const button of this.#buttons()) {
      const turn = button === element ? 0 : -1;
      button.tabIndex = turn;
      for (const other of button.parentElement.querySelectorAll(".like, .pick")) other.tabIndex = turn;
    }
  }

  #pressed(event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const buttons = this.#buttons();
    const at = buttons.indexOf(event.target);
    if (at < 0) return;
    const next = neighbour(buttons, at, event.key);
    if (!next) return;
    event.preventDefault();
    if (event.shiftKey) selection.add([event.target, next].map((one) => Number(one.closest(".tile").dataset.id)));
    next.focus();
  }

  #places() {
    const found = new Map();
    for (const [id, tile] of this.#tiles) {
      const { left, top } = tile.getBoundingClientRect();
      found.set(id, { left, top });
    }
    return found;
  }

  /** Animate tiles from their old positions to the new ones, so that the eye can follow. */
  #slide(before) {
    for (const [id, tile] of this.#tiles) {
      const from = before.get(id);
      if (!from) continue;
      const { left, top } = tile.getBoundingClientRect();
      if (Math.hypot(from.left - left, from.top - top) < 2) continue;
      const start = { transform: `translate(${from.left - left}px, ${from.top - top}px)` };
      tile.animate([start, { transform: "none" }], { duration: MOVE_MS, easing: "cubic-bezier(.2,.7,.2,1)" });
    }
  }
}

/** The result that an arrow key leads to; for up and down, the nearest one in the next row. */
function neighbour(buttons, at, key) {
  const straight = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: buttons.length - 1 }[key];
  if (straight !== undefined) return buttons[straight];
  if (key !== "ArrowDown" && key !== "ArrowUp") return undefined;
  const boxes = buttons.map((button) => button.getBoundingClientRect());
  const own = boxes[at];
  const isBeyond = (box) => (key === "ArrowDown" ? box.top >= own.bottom - 1 : box.bottom <= own.top + 1);
  const distance = (box) => 4 * Math.abs(box.top - own.top) + Math.abs(box.left + box.right - own.left - own.right);
  const beyond = boxes.map((box, place) => ({ box, place })).filter(({ box }) => isBeyond(box));
  beyond.sort((one, other) => distance(one.box) - distance(other.box));
  return beyond.length ? buttons[beyond[0].place] : undefined;
}
