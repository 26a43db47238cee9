// Messages about the results: how many there are, how likely they are, how long the search took, and errors.

import * as api from "./api.js";
import { byId, counted, make } from "./dom.js";
import { languageName } from "./language.js";

const OLDER = "This model's relevance uses the older method: it falls as more pictures match.";
const FEW = 3; // languages that a message lists
const STAGES = { encode: "encode", retrieve: "retrieve", interact: "late interaction", match: "rerank", text: "text" };

/** Set the heading above the results and, if `aloud`, announce it to screen readers; the timing is its tooltip. */
export function setHeading(heading, { timing = "", aloud = true } = {}) {
  byId("heading").textContent = heading;
  byId("heading").title = timing;
  showRemark({});
  if (aloud) byId("status").textContent = heading;
}

/** How long each stage took, as text; stages that did nothing are left out. */
export function timing({ took_ms: took }) {
  const parts = Object.entries(STAGES).filter(([stage]) => took[stage] >= 0.05);
  if (!parts.length) return "";
  const total = parts.reduce((sum, [stage]) => sum + took[stage], 0);
  return `${ms(total)}: ${parts.map(([stage, name]) => `${name} ${ms(took[stage])}`).join(", ")}`;
}

const ms = (value) => (value < 9.5 ? `${value.toFixed(1)} ms` : `${Math.round(value)} ms`);

/**
 * Summarise the results in a few words. line: the minimum relevance of a match, if known.
 * hasMore: whether there are more matches than these.
 */
export function resultCount(likely, unlikely, kind, line, hasMore = false) {
  if (likely.length + unlikely.length === 0) return "Nothing found";
  if (!likely.length) return "No sure matches: the closest are below";
  if (line === undefined || likely[0].relevance === undefined) {
    return `${hasMore ? "The first " : ""}${counted(likely.length, ...nouns(kind))}`;
  }
  return hasMore ? `More than ${likely.length} matches` : counted(likely.length, "match", "matches");
}

/** Show a remark about the query, such as that the model cannot read it, or a correction of a misspelt word. */
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

/** The singular and plural nouns for items of a kind. */
export const nouns = (kind) => (kind === "texts" ? ["text", "texts"] : ["picture", "pictures"]);

/** Show a message in place of the results; without parts, remove it. */
export function showMessage(...parts) {
  byId("message").hidden = parts.length === 0;
  byId("message").replaceChildren(...parts);
}

/** Explain why nothing was found; `languages` are those of the model, for a query with words. */
export function showNothingFound({ isQuoted = false, isFiltered = false, isReversed = false, languages = [] }) {
  const parts = [];
  const say = (textContent, className = "") => textContent && parts.push(make("p", { className, textContent }));
  if (isReversed) {
    say("The first date is after the last.", "lead");
    say("Change or clear the dates.");
  } else {
    say(isQuoted ? "No picture with this text." : isFiltered ? "Nothing matches these filters." : "", "lead");
    say(isFiltered ? "Change or clear the filters." : "");
    say(isQuoted ? "" : languageHint(languages));
  }
  showMessage(...parts);
}

/** Say which languages the model reads, or how many; nothing if it lists none, or only "mul" (many). */
function languageHint(languages) {
  if (!languages.length || languages.includes("mul")) return "";
  const listed = languages.length > FEW ? languages.slice(0, 1) : languages;
  const names = listed.map(languageName);
  if (listed.length < languages.length) names.push(`${languages.length - 1} other languages`);
  return `The model reads ${new Intl.ListFormat("en-GB").format(names)}.`;
}

/** Show what went wrong, what to do about it, and a button to try again. */
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

/** Briefly confirm what was done. */
export function toast(text) {
  const place = byId("toast");
  clearTimeout(toastEnd);
  place.textContent = text;
  place.style.setProperty("--below", `${byId("selected").offsetHeight}px`);
  place.hidePopover(); // shown again, it is above a dialog that was opened meanwhile
  place.showPopover();
  toastEnd = setTimeout(() => place.hidePopover(), 4000);
}

/** Show a line across the page while there is a problem with the server; without text, remove it. */
export function banner(text = "") {
  byId("banner").hidden = !text;
  byId("banner").textContent = text;
}

/** Offer a few example searches that have good results in this collection. */
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
