// One result in the grid: a picture with its relevance, or a text.

import { make, percent } from "./dom.js";
import { isShown } from "./relevance.js";
import { mark } from "./selection.js";
import { clock } from "./video.js";

const AGAIN_MS = 2000;
const [WIDEST, TALLEST] = [2.6, 0.55]; // limits on a tile's aspect ratio; the sides of a wider panorama are cut off

/** The name of an item's file, without its folders. */
export const nameOf = (hit) => hit.path.split("/").at(-1);

/** The address of a hit's thumbnail; side: the length of its longer side in pixels. */
export const thumbnail = (hit, side) => `${hit.thumbnail}${hit.thumbnail.includes("?") ? "&" : "?"}side=${side}`;

/** Create a list item for a hit; `data-id` is the hit's id. */
export function tile(hit, side = 640) {
  const made = hit.thumbnail ? pictureTile(hit, side) : textTile(hit);
  made.dataset.id = hit.id;
  mark(made);
  update(made, hit);
  return made;
}

/** Show a hit's relevance, or the text it was found by; reranking may change both. */
export function update(made, hit) {
  const relevance = made.querySelector(".relevance");
  const known = isShown(hit.relevance);
  const isQuoted = !known && Boolean(hit.quote);
  relevance.hidden = !known && !isQuoted;
  relevance.classList.toggle("is-quote", isQuoted);
  relevance.textContent = known ? percent(hit.relevance) : isQuoted ? `“${hit.quote}”` : "";
  const likely = known ? `, ${percent(hit.relevance)} likely` : isQuoted ? `, with the text ${hit.quote}` : "";
  const moment = hit.video && hit.moments?.length ? `, at ${clock(hit.moments[0])}` : "";
  const video = hit.video ? `, video${moment}` : "";
  if (hit.thumbnail) made.querySelector(".open").setAttribute("aria-label", `${nameOf(hit)}${video}${likely}`);
  if (hit.video) showVideo(made, hit);
}

/** A placeholder for a result with this aspect ratio. */
export function skeleton(ratio) {
  const made = make("li", { className: "tile skeleton", "aria-hidden": "true" });
  made.style.setProperty("--ratio", ratio);
  return made;
}

/** Mark a tile as a video, and show the frame of the moment that was found, which depends on the query. */
function showVideo(made, hit) {
  const [image, badge] = [made.querySelector("img"), made.querySelector(".video-time")];
  badge.hidden = false;
  badge.textContent = `▶ ${clock(hit.moments?.[0] ?? hit.duration ?? 0)}`;
  if (image.dataset.still === hit.thumbnail) return;
  if (image.dataset.still) image.src = thumbnail(hit, image.dataset.side);
  image.dataset.still = hit.thumbnail;
}

function pictureTile(hit, side) {
  const image = make("img", { alt: "", loading: "lazy", decoding: "async", draggable: false });
  image.addEventListener("load", () => image.classList.add("is-there"));
  image.addEventListener("error", () => again(image, hit));
  image.src = thumbnail(hit, side);
  image.dataset.side = side;
  const made = make(
    "li",
    { className: "tile" },
    make("button", { type: "button", className: "open", tabIndex: -1 }, image),
    make("span", { className: "relevance", "aria-hidden": "true" }),
    make("span", { className: "video-time", "aria-hidden": "true", hidden: true }),
    pickButton(hit),
    likeButton(hit),
  );
  const ratio = hit.width && hit.height ? hit.width / hit.height : 1;
  made.style.setProperty("--ratio", Math.min(WIDEST, Math.max(TALLEST, ratio)));
  return made;
}

function textTile(hit) {
  return make(
    "li",
    { className: "tile is-text" },
    make(
      "button",
      { type: "button", className: "open", tabIndex: -1 },
      make("span", { className: "text", textContent: hit.text ?? hit.path }),
      make("span", { className: "source", textContent: hit.key ?? nameOf(hit) }),
    ),
    make("span", { className: "relevance" }),
    likeButton(hit),
  );
}

function pickButton(hit) {
  const button = make("button", { type: "button", className: "pick", tabIndex: -1, role: "checkbox" });
  button.setAttribute("aria-label", `Select ${nameOf(hit)}`);
  return button;
}

function likeButton(hit) {
  const label = `More like ${hit.text ?? nameOf(hit)}`;
  const button = make("button", { type: "button", className: "like", tabIndex: -1, textContent: "More like this" });
  button.setAttribute("aria-label", label);
  return button;
}

/** Retry a thumbnail that failed to load once; after that, show its name instead. */
function again(image, hit) {
  if (image.dataset.again) {
    image.closest(".tile").classList.add("is-missing");
    image.alt = `${nameOf(hit)} cannot be shown`;
    return;
  }
  image.dataset.again = "yes";
  setTimeout(() => { image.src = thumbnail(hit, 320); }, AGAIN_MS);
}
