// Messages about the results: how many there are, how likely, how long the search took, and errors.

import * as api from "./api.js";
import { byId, counted, make } from "./dom.js";
import { languageName } from "./language.js";

const OLDER = "This model's percentages are of the older kind: they fall as more pictures fit.";
const STAGES = { encode: "encode", retrieve: "retrieve", interact: "late interaction", match: "rerank", text: "text" };

/** Say above the results what they are, and to screen readers too; how long it took is in the heading's tooltip. */
export function setHeading(heading, { timing = "", aloud = true } = {}) {
  byId("heading").textContent = heading;
  byId("heading").title = timing;
  showRemark({});
  if (aloud) byId("status").textContent = heading;
}

/** How long each stage took, in words; stages that had nothing to do are left out. */
export function timing({ took_ms: took }) {
  const parts = Object.entries(STAGES).filter(([stage]) => took[stage] >= 0.05);
  if (!parts.length) return "";
  const total = parts.reduce((sum, [stage]) => sum + took[stage], 0);
  return `${ms(total)}: ${parts.map(([stage, name]) => `${name} ${ms(took[stage])}`).join(", ")}`;
}

const ms = (value) => (value < 9.5 ? `${value.toFixed(1)} ms` : `${Math.round(value)} ms`);

/**
 * What was found, in a few words. line: the relevance from which a result is a match, if it is known.
 * hasMore: whether there are more matches than these.
 */
export function resultCount(likely, unlikely, kind, line, hasMore = false) {
  if (likely.length + unlikely.length === 0) return "Nothing found";
  if (!likely.length) return "No good matches: the closest are below";
  if (line === undefined || likely[0].relevance === undefined) return counted(likely.length, ...nouns(kind));
  return hasMore ? `More than ${likely.length} matches` : counted(likely.length, "match", "matches");
}

/** A line about the query: that the model cannot read it, or what may have been meant. */
export function showRemark({ notice, did_you_mean: meant, truncated, relevance_kind: kind }, choose) {
  const texts = [notice, truncated && "Only the first words were read.", kind === "older" && OLDER];
  const parts = texts.filter(Boolean).map((text) => `${text} `);
  if (meant) {
    const button = make("button", { type: "button", className: "quiet", textContent: meant });
    button.addEventListener("click", () => choose(meant));
    parts.push("Did you mean ", button, "?");
  }
  byId("remark").hidden = parts.length === 0;
  byId("remark").replaceChildren(...parts);
}

/** What one and many items of a kind are called. */
export const nouns = (kind) => (kind === "texts" ? ["text", "texts"] : ["picture", "pictures"]);

/** A message in the place of results; without parts it is removed. */
export function showMessage(...parts) {
  byId("message").hidden = parts.length === 0;
  byId("message").replaceChildren(...parts);
}

/** Why nothing at all was found. */
export function showNothingFound(languages, isQuoted) {
  showMessage(
    make("p", { className: "lead", textContent: isQuoted ? "No picture with this text." : "Nothing passes these filters." }),
    make("p", { textContent: isQuoted ? "" : languageHint(languages) }),
  );
}

/** Which languages to ask in; "mul" stands for many, and where none is named, nobody can say. */
function languageHint(languages) {
  if (!languages.length || languages.includes("mul")) return "";
  return `The model reads ${languages.map(languageName).join(", ")}.`;
}

/** What went wrong, what to do about it, and a button to try again. */
export function showProblem(error, retry) {
  const button = make("button", { type: "button", className: "quiet", textContent: "Try again" });
  button.addEventListener("click", retry);
  showMessage(
    make("p", { className: "lead", textContent: error.message }),
    make("p", { className: "exact", textContent: error.wayOut ?? "" }),
    button,
  );
}

let toastEnd = 0;

/** Say for a moment what was done. */
export function toast(text) {
  clearTimeout(toastEnd);
  byId("toast").textContent = text;
  byId("toast").hidden = false;
  toastEnd = setTimeout(() => { byId("toast").hidden = true; }, 4000);
}

/** A line across the page while something is wrong with the server; without text it is removed. */
export function banner(text = "") {
  byId("banner").hidden = !text;
  byId("banner").textContent = text;
}

/** A few searches to begin with, which find something in this collection. */
export async function showExamples(isShown, choose) {
  const place = byId("examples");
  place.hidden = !isShown;
  if (!isShown || place.dataset.asked) return;
  place.dataset.asked = "yes";
  const { examples } = await api.examples().catch(() => ({ examples: [] }));
  if (!examples.length) delete place.dataset.asked;
  for (const words of examples) {
    const button = make("button", { type: "button", className: "example", textContent: words });
    button.addEventListener("click", () => choose(words));
    place.append(button);
  }
}
