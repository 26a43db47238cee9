// The text in a picture: where the words of the query are, and all lines, to read and copy.

import * as api from "./api.js";
import { byId, make } from "./dom.js";

const SVG = "http://www.w3.org/2000/svg";

let asked = 0;

/** Show the text of a hit, with the words of a query marked; null shows none. */
export async function showText(hit, words) {
  const own = (asked += 1);
  byId("marks").toggleAttribute("hidden", true); // an SVG element has no `hidden` property
  byId("viewer-lines").hidden = true;
  if (!hit) return;
  const { lines } = await api.pictureText(hit.id, words).catch(() => ({ lines: [] }));
  if (own !== asked || !lines.length) return;
  const marks = lines.flatMap((line) => line.marks);
  byId("marks").replaceChildren(...marks.map(polygon));
  byId("marks").setAttribute("aria-label", `The words of your search appear in this picture ${marks.length === 1 ? "once" : `${marks.length} times`}`);
  byId("marks").toggleAttribute("hidden", marks.length === 0);
  byId("viewer-lines").hidden = false;
  byId("viewer-lines").open = marks.length > 0;
  byId("lines").replaceChildren(...lines.map((line) => {
    const shown = make("li", { textContent: line.text });
    if (line.marks.length) shown.className = "is-marked";
    return shown;
  }));
}

function polygon(corners) {
  const made = document.createElementNS(SVG, "polygon");
  made.setAttribute("points", corners.map((corner) => corner.join(",")).join(" "));
  return made;
}
