// The language of the words: recognised by the server, shown beside the search box, and changed there.

import { byId, make } from "./dom.js";

const MANY = "mul";

/** Let the visitor choose among the languages of a collection's model; `choose(code)` is told, with "" to recognise it. */
export function offerLanguages(languages, choose) {
  const field = byId("lang");
  if (field.options.length || languages.length < 2 || languages.includes(MANY)) return;
  field.append(
    make("option", { value: "", textContent: "Auto" }),
    ...languages.map((code) => make("option", { value: code, textContent: languageName(code) })),
  );
  field.addEventListener("change", () => choose(field.value));
}

/** Show the language of a query, and the one that was recognised where none was chosen. */
export function showLanguage(chosen, found = "", hasWords = true) {
  const field = byId("lang");
  field.hidden = !field.options.length || !hasWords;
  if (!field.options.length) return;
  field.value = chosen;
  field.options[0].textContent = found && !chosen ? `${languageName(found)} (auto)` : "Auto";
}

/** A language by its name; one whose code no browser knows, by its code. */
export function languageName(code) {
  try {
    return new Intl.DisplayNames(["en"], { type: "language" }).of(code);
  } catch {
    return code;
  }
}
