// The enlarged view: one result in a dialog, with the words of the query and where in the picture each was found.

import { FAVOURITES } from "./actions.js";
import * as api from "./api.js";
import { byId, make, percent } from "./dom.js";
import { draw, ownGrid, strength } from "./heatmap.js";
import { showPlace } from "./map.js";
import { showText } from "./picture_text.js";
import { isShown } from "./relevance.js";
import { nameOf, thumbnail } from "./tiles.js";
import { clock, VideoPlayer } from "./video.js";
import { Zoom } from "./zoom.js";

const POINT = matchMedia("(hover: none)").matches ? "Tap" : "Point at";
const MISSING =
  "The picture cannot be loaded. Its file may have been changed, moved or deleted, or the server may have stopped.";

/** Shows results one at a time; calls `move(id)`, `close()` or `like(id)` when the visitor asks for it, and `starred()`
 when the favourites have changed. */
export class Viewer {
  #dialog = byId("viewer");
  #image = byId("viewer-image");
  #canvas = byId("heat");
  #around = {};
  #zoom = new Zoom(byId("fit"), byId("frame"), { swipe: (by) => this.#step(by) });
  #player = new VideoPlayer();
  #hit = null;
  #explaining = null;
  #explanation = null;
  #pinned = null;
  #asked = 0; // how often details were asked for
  #isFavourite = Promise.resolve(false); // after all requests so far
  #move;
  #starred;

  constructor({ move, close, like, starred }) {
    this.#move = move;
    this.#starred = starred;
    byId("viewer-close").addEventListener("click", close);
    byId("viewer-like").addEventListener("click", () => like(this.#hit.id));
    byId("viewer-star").addEventListener("click", () => this.#toggleStar());
    byId("viewer-previous").addEventListener("click", () => this.#step(-1));
    byId("viewer-next").addEventListener("click", () => this.#step(1));
    this.#dialog.addEventListener("keydown", (event) => this.#pressed(event));
    this.#dialog.addEventListener("cancel", (event) => {
      event.preventDefault();
      close();
    });
    this.#dialog.addEventListener("close", () => this.#hit && !this.isOpen && close()); // closed by the browser
    this.#image.addEventListener("error", () => this.#missing());
  }

  get isOpen() {
    return this.#dialog.open;
  }

  /** Show a hit. words: those to locate in the picture. asked: those to mark in its text, if that was read. lang: of
   both. */
  show(hit, [previous, next], words, asked = null, lang = "") {
    const isSame = this.isOpen && this.#hit?.id === hit.id;
    this.#around = { [-1]: previous, 1: next };
    this.#hit = hit;
    if (!this.isOpen) this.#dialog.showModal();
    byId("viewer-previous").disabled = !previous;
    byId("viewer-next").disabled = !next;
    if (isSame) return;
    this.#describe(hit);
    this.#explain(hit, hit.video ? "" : words, lang); // a heat map does not follow moving things
    showText(asked === null ? null : hit, asked);
    const held = document.activeElement; // disabling or hiding the focused button would lose the keyboard focus
    if (held.disabled || !held.checkVisibility() || !this.#dialog.contains(held)) this.#dialog.focus();
  }

  /** Close the view; returns the id of the hit shown last. */
  close() {
    const last = this.#hit;
    this.#hit = null;
    this.#explaining?.abort();
    this.#player.hide();
    this.#dialog.close();
    return last.id;
  }

  #describe(hit) {
    const isText = !hit.thumbnail;
    byId("frame").hidden = isText;
    byId("viewer-text").hidden = !isText;
    byId("viewer-text").textContent = hit.text ?? "";
    byId("viewer-name").textContent = isText && hit.key ? hit.key : nameOf(hit);
    byId("viewer-facts").replaceChildren(...facts(hit).map((fact) => make("span", { textContent: fact })));
    byId("viewer-original").hidden = isText;
    if (!isText) this.#picture(hit);
    this.#player.show(hit);
    this.#zoom.isOff = Boolean(hit.video); // the player has its own gestures
    this.#zoom.reset();
    this.#details(hit, isText);
  }

  /** Show what needs further requests: the place, the camera data, and whether it is a favourite. */
  async #details(hit, isText) {
    const own = (this.#asked += 1);
    byId("viewer-star").hidden = isText;
    byId("viewer-wrong").hidden = true;
    this.#star(false);
    byId("viewer-camera").hidden = true;
    byId("map").hidden = true;
    if (isText) return;
    const found = api.item(hit.id).catch(() => hit);
    const camera = api.camera(hit.id).catch(() => ({})); // takes longer
    const isFavourite = (this.#isFavourite = found.then(({ albums }) => albums?.includes(FAVOURITES) ?? false));
    const { place } = await found;
    if (own !== this.#asked) return;
    showPlace(place);
    this.#star(await isFavourite);
    const details = Object.values(await camera);
    if (own !== this.#asked) return;
    byId("viewer-camera").hidden = !details.length;
    byId("viewer-camera").replaceChildren(...details.map((detail) => make("span", { textContent: detail })));
  }

  #picture(hit) {
    const frame = byId("frame");
    frame.classList.remove("is-missing");
    frame.style.setProperty("--ratio", hit.width && hit.height ? hit.width / hit.height : 1);
    frame.style.setProperty("--natural", `${hit.width ?? 1024}px`);
    frame.style.backgroundImage = `url("${thumbnail(hit, 640)}")`; // until the picture itself has loaded
    this.#image.alt = nameOf(hit);
    this.#image.src = hit.image;
    byId("viewer-original").href = hit.video ?? hit.image;
  }

  /** Say that the picture cannot be loaded; its thumbnail stays. A video has a message of its own. */
  #missing() {
    byId("frame").classList.add("is-missing");
    if (this.#hit && !this.#hit.video) this.#warn();
  }

  /** Say what is wrong; without a problem, whether the picture is missing. */
  #warn(problem = null) {
    const isMissing = byId("frame").classList.contains("is-missing") && !this.#hit.video;
    const text = problem?.message ?? (isMissing ? MISSING : "");
    byId("viewer-wrong").hidden = !text;
    byId("viewer-wrong").textContent = text;
  }

  #star(isFavourite) {
    byId("viewer-star").setAttribute("aria-pressed", String(isFavourite));
    byId("viewer-star").textContent = isFavourite ? "★ Favourite" : "☆ Favourite";
  }

  /** Make the picture a favourite, or no longer one. A click may come before the answer to the last one, or before it is
   known whether the picture is a favourite. */
  #toggleStar() {
    const { id } = this.#hit;
    const before = this.#isFavourite;
    this.#isFavourite = before.then(async (was) => {
      const change = was ? api.removeFromAlbum : api.addToAlbum;
      const problem = await change(FAVOURITES, [id]).then(() => null, (error) => error);
      if (!problem) this.#starred();
      if (this.#hit?.id === id) {
        this.#warn(problem);
        this.#star(problem ? was : !was);
      }
      return problem ? was : !was;
    });
  }

  async #explain(hit, words, lang) {
    this.#explaining?.abort();
    this.#explanation = null;
    this.#light(null);
    byId("spoken").hidden = !words;
    if (!words) return;
    byId("viewer-words").replaceChildren(words);
    byId("hint").textContent = "Finding the words in the picture …";
    const { signal } = (this.#explaining = new AbortController());
    try {
      const explanation = await api.explain(words, lang, hit.id, signal);
      if (signal.aborted) return;
      this.#explanation = explanation;
      byId("viewer-words").replaceChildren(...this.#spoken(explanation));
      byId("hint").textContent = `${POINT} a word to see where it was found.`;
    } catch (error) {
      if (!signal.aborted) byId("hint").textContent = error.message;
    }
  }

  /** Show the query as typed, with a button for each word. */
  #spoken(explanation) {
    const parts = [];
    const letters = [...explanation.query]; // the server counts code points, not UTF-16 units
    let at = 0;
    for (const word of explanation.words) {
      parts.push(letters.slice(at, word.start).join(""), this.#wordButton(word, explanation));
      at = word.end;
    }
    return [...parts, letters.slice(at).join("")];
  }

  #wordButton(word, explanation) {
    const button = make("button", { type: "button", className: "word", textContent: word.word });
    button.setAttribute("aria-pressed", "false");
    button.style.setProperty("--strength", strength(explanation, word).toFixed(3));
    button.addEventListener("pointerenter", (event) => event.pointerType === "mouse" && this.#light(word, button));
    button.addEventListener("pointerleave", () => this.#light(this.#pinned?.word ?? null, this.#pinned?.button));
    button.addEventListener("focus", () => this.#light(word, button));
    button.addEventListener("blur", () => { this.#pinned = null; this.#light(null); });
    button.addEventListener("click", () => {
      this.#pinned = this.#pinned?.word === word ? null : { word, button };
      this.#light(this.#pinned ? word : null, button);
    });
    return button;
  }

  /** Show where a word was found; null for none. */
  #light(word, button) {
    for (const other of byId("viewer-words").querySelectorAll(".word")) {
      other.setAttribute("aria-pressed", String(word !== null && other === button));
    }
    this.#canvas.hidden = word === null;
    this.#canvas.dataset.word = word?.word ?? "";
    if (word === null || !this.#explanation) {
      this.#pinned = null;
      return;
    }
    this.#canvas.setAttribute("aria-label", `Where "${word.word}" was found: ${place(this.#explanation, word)}`);
    draw(this.#canvas, this.#explanation, word, this.#hit.width / this.#hit.height);
  }

  #step(by) {
    if (this.#around[by]) this.#move(this.#around[by].id);
  }

  #pressed(event) {
    if (this.#player.owns(event)) return;
    if (this.#zoom.pressed(event)) return;
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    this.#step(step);
  }
}

function facts(hit) {
  const found = [];
  if (isShown(hit.relevance)) found.push(`${percent(hit.relevance)} likely to show what you asked for`);
  const folder = [hit.root, ...hit.path.split("/").slice(0, -1)].filter(Boolean).join("/");
  if (folder) found.push(folder);
  if (hit.taken) found.push(hit.taken.slice(0, 16).replace("T", " "));
  if (hit.duration) found.push(`Video, ${clock(hit.duration)}`);
  if (hit.width && hit.height) found.push(`${hit.width} × ${hit.height}`);
  const same = [...(hit.copies ?? []), ...(hit.folded ?? [])];
  if (same.length) found.push(`also: ${same.join(", ")}`);
  return found;
}

/** Where in the picture a word was found, as text. */
function place(explanation, word) {
  const { rows, columns } = explanation;
  const values = ownGrid(explanation, word).flat();
  const best = values.indexOf(Math.max(...values));
  const third = (at, count) => Math.floor((3 * (at + 0.5)) / count);
  const down = ["top", "middle", "bottom"][third(Math.floor(best / columns), rows)];
  return `${down} ${["left", "centre", "right"][third(best % columns, columns)]}`;
}
