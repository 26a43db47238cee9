// A video in the enlarged view: it opens at the moment that was found, and its other moments are one click away.

import * as api from "./api.js";
import { byId, make } from "./dom.js";

const SOON = 0.05; // seconds added to a moment; between two frames, browsers show the earlier one

/** Format a time in a video: 0:07, 2:05, 1:02:05. */
export function clock(seconds) {
  const whole = Math.floor(seconds);
  const parts = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  const [hours, minutes, rest] = parts;
  const two = (number) => String(number).padStart(2, "0");
  return hours ? `${hours}:${two(minutes)}:${two(rest)}` : `${minutes}:${two(rest)}`;
}

/** The address of a thumbnail of a video's frame at a given time. */
const stillAt = (hit, seconds) => `${hit.thumbnail.replace(/&at=[^&]*/, "")}&at=${seconds}&side=160`;

/** Plays videos; the player is hidden while there is none to play. */
export class VideoPlayer {
  #element = byId("viewer-video");
  #moments = byId("viewer-moments");
  #hit = null;

  constructor() {
    this.#element.addEventListener("error", () => this.#failed());
  }

  get isShown() {
    return !this.#element.hidden;
  }

  /** Whether an event belongs to the player, such as an arrow key that seeks. */
  owns(event) {
    return this.isShown && (event.target === this.#element || this.#moments.contains(event.target));
  }

  /** Show a video, paused at its best moment; for a picture, hide the player. */
  show(hit) {
    this.hide();
    if (!hit.video) return;
    this.#hit = hit;
    const best = hit.moments?.[0] ?? 0;
    this.#element.hidden = false;
    this.#element.setAttribute("aria-label", hit.path.split("/").at(-1));
    this.#element.src = `${hit.video}#t=${best + (best ? SOON : 0)}`;
    if (hit.moments?.length) this.#list(hit, hit.moments);
    else this.#listAll(hit);
  }

  /** Stop playing, and release the file. */
  hide() {
    this.#hit = null;
    this.#moments.hidden = true;
    if (this.#element.hidden) return;
    this.#element.hidden = true;
    this.#element.pause();
    this.#element.removeAttribute("src");
    this.#element.load();
  }

  async #listAll(hit) {
    const { moments = [] } = await api.item(hit.id).catch(() => ({}));
    if (this.#hit === hit) this.#list(hit, moments);
  }

  #list(hit, moments) {
    this.#moments.hidden = moments.length < 2;
    this.#moments.replaceChildren(...moments.map((seconds) => {
      const still = make("img", { src: stillAt(hit, seconds), alt: "", loading: "lazy" });
      const button = make("button", { type: "button", className: "moment" }, still, make("span", { textContent: clock(seconds) }));
      button.setAttribute("aria-label", `Go to ${clock(seconds)}`);
      button.addEventListener("click", () => { this.#element.currentTime = seconds + SOON; });
      return button;
    }));
  }

  /** If the browser cannot play the video, reveal the frame of the moment, which is behind the player. */
  #failed() {
    if (!this.#hit || !this.#element.getAttribute("src")) return;
    this.#element.hidden = true;
    byId("viewer-facts").append(make("span", { className: "wrong", textContent: "This browser cannot play this video. Open the file with another player." }));
  }
}
