// The picture to search by, shown as a chip beside the words.

import { byId } from "./dom.js";
import { nameOf } from "./tiles.js";

/** Show the picture of a query, if it has one. `hits`: the results on the page from which the visitor chose it. */
export function showChip(query, hits, isTexts) {
  const { picture, like } = query;
  const isShown = picture !== null || like !== null;
  const address = picture?.address ?? (isShown && !isTexts ? `/v1/items/${like}/thumbnail?side=160` : "");
  byId("chip").hidden = !isShown;
  byId("chip-image").hidden = !address;
  if (address) byId("chip-image").src = address;
  byId("chip-name").textContent = picture ? picture.name || "a picture" : `like ${nameIn(hits, like)}`;
  byId("words").placeholder = isShown ? "Add words" : "Describe what you are looking for";
}

function nameIn(hits, id) {
  const found = hits.find((hit) => hit.id === id);
  return found ? nameOf(found) : "this";
}
