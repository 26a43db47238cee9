// All pictures by time, newest first, as square tiles under a heading for each month. Only those near the visible part
// of the page are loaded and in the document, so that a hundred thousand pictures scroll as smoothly as a hundred.

import * as api from "./api.js";
import { byId, make } from "./dom.js";
import { layOut } from "./timeline_layout.js";
import { selection } from "./selection.js";
import { tile } from "./tiles.js";

const PAGE = 100; // items per request
const KEPT = 30; // pages to keep in memory
const FULL = 6; // if months have fewer items than this on average, years are shown instead
const AROUND = 1; // screens drawn above and below the visible one

/** Draws the timeline; calls `open(id)` when the visitor chooses a picture. */
export class Timeline {
  #place = byId("timeline");
  #months = byId("months");
  #counts = []; // { month, items }
  #layout = null;
  #total = 0;
  #query = null;
  #pages = new Map(); // by page number: the items, or a promise of them
  #drawn = new Map(); // by position: the element
  #headings = new Map();
  #reached = 0; // the position that Tab leads to
  #frame = 0;
  #fail;

  constructor({ open, like, fail }) {
    this.#fail = fail;
    selection.drawIn(this.#place);
    this.#place.addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (!button) return;
      const { id, place } = button.closest(".tile").dataset;
      if (button.classList.contains("like")) like(Number(id));
      else if (button.classList.contains("pick") || selection.isOn) {
        selection.clicked(Number(id), Number(place), event, this);
      }
      else open(Number(id));
    });
    this.#place.addEventListener("keydown", (event) => this.#pressed(event));
    this.#place.addEventListener("focusin", (event) => this.#focused(event.target));
    this.#months.addEventListener("change", () => this.jump(this.#months.value));
    addEventListener("scroll", () => this.#later(), { passive: true });
    new ResizeObserver(() => this.#resized()).observe(this.#place);
  }

  get isShown() {
    return !this.#place.hidden;
  }

  get total() {
    return this.#total;
  }

  /** Load what `show` needs: how many items of each month pass the filters of a query, and the first of them. */
  async load(query) {
    const [counts, { items }] = await Promise.all([api.timeline(query), api.timelineItems(query, 0, PAGE)]);
    return { ...counts, first: items };
  }

  /** Show the items that pass the filters of a query. */
  show(query, { total, months, first }) {
    this.#query = query;
    this.#total = total;
    this.#reached = 0;
    this.#pages.clear();
    this.#pages.set(0, first);
    this.#clear();
    this.#place.hidden = false;
    this.#counts = grouped(months, total);
    this.#months.replaceChildren(
      make("option", { value: "", textContent: "Jump to …" }),
      ...this.#counts.map(({ month, items }) =>
        make("option", { value: month || "none", textContent: `${monthName(month)} (${items.toLocaleString("en")})` })),
    );
    byId("months-label").hidden = this.#counts.length < 2;
    this.#arrange();
    this.#draw();
  }

  hide() {
    if (this.#place.hidden) return;
    this.#place.hidden = true;
    byId("months-label").hidden = true;
    this.#clear();
    this.#pages.clear();
  }

  /** The item with this id; undefined if it is not loaded. */
  find(id) {
    return this.#loaded().find(({ item }) => item.id === id)?.item;
  }

  /** The items before and after a loaded one, if they can be loaded. */
  async around(id) {
    const at = this.#loaded().find(({ item }) => item.id === id)?.place;
    if (at === undefined) return [undefined, undefined];
    return Promise.all([at - 1, at + 1].map((place) => this.#item(place).catch(() => undefined)));
  }

  /** The ids of the items between two positions, both included. */
  async range(from, to) {
    const places = Array.from({ length: Math.abs(to - from) + 1 }, (_, step) => Math.min(from, to) + step);
    return (await Promise.all(places.map((place) => this.#item(place)))).filter(Boolean).map((item) => item.id);
  }

  /** Move the focus to an item; by default to the first. */
  async focus(id = null) {
    const at = id === null ? this.#reached : this.#loaded().find(({ item }) => item.id === id)?.place ?? this.#reached;
    await this.#go(at);
  }

  /** Scroll to a month, such as 2023-08. */
  jump(month) {
    const section = this.#layout.sections.find((one) => (one.month || "none") === month);
    if (!section) return;
    scrollTo({ top: this.#top() + section.top - byId("bar").offsetHeight });
    this.#months.value = "";
    this.#draw();
    this.#reached = section.first;
  }

  #loaded() {
    const found = [];
    for (const [number, items] of this.#pages) {
      if (Array.isArray(items)) items.forEach((item, place) => found.push({ item, place: number * PAGE + place }));
    }
    return found;
  }

  async #item(place) {
    if (place < 0 || place >= this.#total) return undefined;
    return (await this.#page(Math.floor(place / PAGE)))[place % PAGE];
  }

  /** The items of a page, each page requested once; the least recently used pages are dropped. */
  #page(number) {
    const known = this.#pages.get(number);
    if (known) {
      this.#pages.delete(number);
      this.#pages.set(number, known);
      return known;
    }
    const query = this.#query;
    const asked = api.timelineItems(query, number * PAGE, PAGE).then(({ items }) => {
      if (this.#query === query && this.#pages.get(number) === asked) this.#pages.set(number, items);
      return items;
    });
    asked.catch((error) => {
      this.#pages.delete(number);
      this.#fail(error, query);
    });
    this.#pages.set(number, asked);
    for (const oldest of this.#pages.keys()) {
      if (this.#pages.size <= KEPT) break;
      this.#pages.delete(oldest);
    }
    return asked;
  }

  #clear() {
    this.#drawn.clear();
    this.#headings.clear();
    this.#place.replaceChildren();
  }

  #arrange() {
    const style = getComputedStyle(document.documentElement);
    const size = (name) => Number.parseFloat(style.getPropertyValue(name));
    this.#layout = layOut(this.#counts, this.#place.clientWidth, { side: size("--square"), gap: size("--gap") });
    this.#place.style.height = `${this.#layout.height}px`;
  }

  #resized() {
    if (!this.isShown || !this.#layout || this.#place.clientWidth === this.#layout.width) return;
    this.#clear();
    this.#arrange();
    this.#draw();
  }

  #later() {
    if (!this.isShown || this.#frame) return;
    this.#frame = requestAnimationFrame(() => {
      this.#frame = 0;
      this.#draw();
    });
  }

  #top() {
    return this.#place.getBoundingClientRect().top + scrollY;
  }

  /** Draw the tiles near the visible part of the page, and remove the others. */
  #draw() {
    if (!this.isShown || !this.#layout) return;
    const above = scrollY - this.#top();
    const [first, last] = this.#layout.between(above - AROUND * innerHeight, above + (1 + AROUND) * innerHeight);
    const held = document.activeElement?.closest?.(".tile")?.dataset.place;
    for (const [place, element] of this.#drawn) {
      if ((place < first || place >= last) && String(place) !== held) {
        element.remove();
        this.#drawn.delete(place);
      }
    }
    for (let place = first; place < last; place += 1) this.#drawTile(place);
    this.#drawHeadings(above);
  }

  #drawTile(place) {
    const before = this.#drawn.get(place);
    const page = this.#page(Math.floor(place / PAGE));
    const item = Array.isArray(page) ? page[place % PAGE] : null;
    if (before && (!item || before.dataset.id)) return;
    const element = item ? tile(item, 320) : make("li", { className: "tile skeleton", "aria-hidden": "true" });
    const { left, top, side } = this.#layout.box(place);
    Object.assign(element.style, { left: `${left}px`, top: `${top}px`, width: `${side}px`, height: `${side}px` });
    element.dataset.place = place;
    if (item) {
      element.setAttribute("aria-posinset", place + 1);
      element.setAttribute("aria-setsize", this.#total);
      for (const button of element.querySelectorAll("button")) button.tabIndex = place === this.#reached ? 0 : -1;
    }
    if (before) before.replaceWith(element);
    else this.#insert(place, element);
    this.#drawn.set(place, element);
    if (!item) Promise.resolve(page).then(() => this.#later(), () => {});
  }

  /** Insert an element in the order of the timeline, which is the order in which screen readers read. */
  #insert(place, element) {
    for (let next = place + 1; next < place + 200; next += 1) {
      const found = this.#drawn.get(next);
      if (found) {
        found.before(element);
        return;
      }
    }
    this.#place.append(element);
  }

  #drawHeadings(above) {
    const near = this.#layout.sections.filter(
      (one) => one.top + one.height > above - innerHeight && one.top < above + 2 * innerHeight,
    );
    const wanted = new Set(near.map((one) => one.month));
    for (const [month, element] of this.#headings) {
      if (!wanted.has(month)) {
        element.remove();
        this.#headings.delete(month);
      }
    }
    for (const one of near) {
      if (this.#headings.has(one.month)) continue;
      const heading = make("h2", { textContent: monthName(one.month) });
      const element = make("li", { className: "month" }, heading);
      element.style.top = `${one.top}px`;
      this.#headings.set(one.month, element);
      this.#insert(one.first - 1, element);
    }
  }

  #focused(target) {
    const found = target.closest(".tile");
    if (!found?.dataset.id) return;
    const old = this.#drawn.get(this.#reached);
    this.#reached = Number(found.dataset.place);
    for (const button of old?.querySelectorAll("button") ?? []) button.tabIndex = -1;
    for (const button of found.querySelectorAll("button")) button.tabIndex = 0;
  }

  async #pressed(event) {
    const at = Number(event.target.closest(".tile")?.dataset.place ?? NaN);
    if (Number.isNaN(at) || event.altKey || event.ctrlKey || event.metaKey) return;
    const next = this.#layout.neighbour(at, event.key, this.#total);
    if (next === undefined) return;
    event.preventDefault();
    if (event.shiftKey) selection.addLater(this.range(at, next));
    await this.#go(next);
  }

  /** Focus the item at a position, after scrolling to it and loading it if necessary. */
  async #go(place) {
    if (!this.#total) return;
    this.#reached = place;
    const { top, side } = this.#layout.box(place);
    const edge = this.#top() + top;
    const bar = byId("bar").offsetHeight;
    if (edge < scrollY + bar) scrollTo({ top: edge - bar - 50 });
    else if (edge + side > scrollY + innerHeight) scrollTo({ top: edge + side + 20 - innerHeight });
    const held = document.activeElement;
    await this.#item(place).catch(() => undefined);
    this.#draw();
    const hasMoved = this.#reached !== place || ![held, document.body].includes(document.activeElement);
    if (!hasMoved) this.#drawn.get(place)?.querySelector(".open")?.focus({ preventScroll: true });
  }
}

/** The months or, if most of them would not fill a row, the years. */
function grouped(months, total) {
  if (total >= FULL * months.length) return months;
  const years = new Map();
  for (const { month, items } of months) {
    const year = month.slice(0, 4);
    years.set(year, (years.get(year) ?? 0) + items);
  }
  return [...years].map(([month, items]) => ({ month, items }));
}

/** Format a month for display. */
export function monthName(month) {
  if (!month) return "No date";
  const [year, number] = month.split("-").map(Number);
  if (!number) return String(year);
  return new Date(Date.UTC(year, number - 1, 1)).toLocaleDateString("en", { month: "long", year: "numeric", timeZone: "UTC" });
}
