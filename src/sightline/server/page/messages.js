// Messages about the results: how many there are, how likely, how long the search took, and errors.

import { byId, counted, make, percent } from "./dom.js";

const STAGES = { encode: "encode", retrieve: "retrieve", interact: "late interaction", match: "rerank" };
const EXAMPLES = [
  "a dog", "flowers", "people making music", "a building by the water", "a cup of coffee", "a cat looking at you",
];

/** Say above the results what they are, and to screen readers too. */
export function setHeading(heading, { timing = "", aloud = true } = {}) {
  byId("heading").textContent = heading;
  byId("timing").textContent = timing;
  if (aloud) byId("status").textContent = heading;
}

/** How long each stage took, in words; stages that had nothing to do are left out. */
export function timing({ took_ms: took, truncated }) {
  const parts = Object.entries(STAGES).filter(([stage]) => took[stage] >= 0.05);
  if (!parts.length) return "";
  const total = parts.reduce((sum, [stage]) => sum + took[stage], 0);
  const cut = truncated ? "Only the first words were read. " : "";
  return `${cut}${ms(total)}: ${parts.map(([stage, name]) => `${name} ${ms(took[stage])}`).join(", ")}`;
}

const ms = (value) => (value < 9.5 ? `${value.toFixed(1)} ms` : `${Math.round(value)} ms`);

/** What was found, in a few words. */
export function resultCount(likely, kind) {
  const [one, many] = nouns(kind);
  if (likely.length === 0) return "Nothing found";
  const best = likely[0].relevance;
  return best === undefined
    ? counted(likely.length, one, many)
    : `${counted(likely.length, `${one} fits`, `${many} fit`)}, the best ${percent(best)} likely`;
}

/** What one and many items of a kind are called. */
export const nouns = (kind) => (kind === "texts" ? ["text", "texts"] : ["picture", "pictures"]);

/** A message in the place of results; without parts it is removed. */
export function showMessage(...parts) {
  byId("message").hidden = parts.length === 0;
  byId("message").replaceChildren(...parts);
}

/** Say that nothing is likely, and offer the closest matches. */
export function showNothingFound(best, languages, showAnyway) {
  const button = make("button", { type: "button", className: "quiet", textContent: "Show closest matches" });
  if (showAnyway) button.addEventListener("click", showAnyway);
  const guess = best === undefined ? "" : `The best match is ${percent(best)} likely. `;
  showMessage(
    make("p", { className: "lead", textContent: "No likely matches." }),
    make("p", { textContent: guess + languageHint(languages) }),
    ...(showAnyway ? [button] : []),
  );
}

/** Which languages to ask in; "mul" stands for many, and where none is named, nobody can say. */
function languageHint(languages) {
  if (!languages.length || languages.includes("mul")) return "";
  return `The model reads ${languages.map(language).join(", ")}.`;
}

/** A language by its name; one whose code no browser knows, by its code. */
function language(code) {
  try {
    return new Intl.DisplayNames(["en"], { type: "language" }).of(code);
  } catch {
    return code;
  }
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

/** A line across the page while something is wrong with the server; without text it is removed. */
export function banner(text = "") {
  byId("banner").hidden = !text;
  byId("banner").textContent = text;
}

/** A few searches to begin with. */
export function showExamples(isShown, choose) {
  const place = byId("examples");
  place.hidden = !isShown;
  if (!isShown || place.childElementCount) return;
  for (const words of EXAMPLES) {
    const button = make("button", { type: "button", className: "example", textContent: words });
    button.addEventListener("click", () => choose(words));
    place.append(button);
  }
}
