// Dates, file names, folders and albums among the words of a query: the server finds them, the page shows them as chips
// that can be removed, and they act as filters.

import * as api from "./api.js";
import { byId, make } from "./dom.js";

// Without any of these, a query contains no such phrase, and the server need not be asked.
const HINTS = /\d|\b(last|past|this|today|yesterday|ago|since|before|after|until|in|from|during|album|folder|the)\b/i;

let known = { key: "", answer: null };

/** The query without the words that became filters, which are in `said`; unchanged if none did, or the server fails. */
export async function understood(query) {
  const words = query.words.trim();
  if (!words || !HINTS.test(words)) return query;
  const key = JSON.stringify([words, query.lang, query.literal]);
  if (known.key !== key) {
    const answer = await api.understand(words, query.lang, query.literal).catch(() => null);
    if (!answer) return query;
    known = { key, answer };
  }
  const { answer } = known;
  const { unmatched } = answer;
  if (!answer.where) return { ...query, unmatched };
  const lang = query.lang || (answer.lang ?? ""); // the remaining words may be too few to recognise it
  return { ...query, words: answer.words, lang, said: answer.where, phrases: answer.phrases, unmatched };
}

/** Show the phrases that became filters, and dates from which there is nothing; `take(text)` turns a filter back into
 * plain words. */
export function showPhrases({ phrases = [], unmatched = [] }, take) {
  const place = byId("phrases");
  place.hidden = !phrases.length && !unmatched.length;
  const nothing = unmatched.map(({ text, label }) =>
    make("span", { className: "unmatched", title: label, textContent: `No pictures match “${text}”.` }));
  place.replaceChildren(...nothing, ...phrases.map(({ text, label, kind }) => {
    const chip = make("button", { type: "button", className: "phrase", title: `${kind}: ${label}`, textContent: `${text} ×` });
    chip.setAttribute("aria-label", `${text}: ${kind} ${label}. Search for these words instead`);
    chip.addEventListener("click", () => take(text));
    return chip;
  }));
}
