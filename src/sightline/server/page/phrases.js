// Dates, file names, folders and albums among the words of a query: found by the server, shown as chips that can be
// taken back, and searched by as filters.

import * as api from "./api.js";
import { byId, make } from "./dom.js";

// Without one of these, there is nothing to be found, and the server need not be asked.
const HINTS = /\d|\b(last|past|this|today|yesterday|ago|since|before|after|until|in|from|during|album|folder|the)\b/i;

let known = { key: "", answer: null };

/** A query whose words are without what became filters; `said` is the filter. Where nobody can tell, it stays as it is. */
export async function understood(query) {
  const words = query.words.trim();
  if (!words || !HINTS.test(words)) return query;
  const key = JSON.stringify([words, query.lang, query.literal]);
  if (known.key !== key) {
    const answer = await api.understand(words, query.lang, query.literal).catch(() => null);
    known = { key, answer };
  }
  const { answer } = known;
  if (!answer?.where) return query;
  const lang = query.lang || (answer.lang ?? ""); // the words that are left may not tell it any more
  return { ...query, words: answer.words, lang, said: answer.where, phrases: answer.phrases };
}

/** Show the phrases of a query that was understood; `take(text)` makes one plain words again. */
export function showPhrases(phrases, take) {
  const place = byId("phrases");
  place.hidden = !phrases?.length;
  place.replaceChildren(...(phrases ?? []).map(({ text, label, kind }) => {
    const chip = make("button", { type: "button", className: "phrase", title: `${kind}: ${label}`, textContent: `${text} ×` });
    chip.setAttribute("aria-label", `${text}: ${kind} ${label}. Search for these words instead`);
    chip.addEventListener("click", () => take(text));
    return chip;
  }));
}
