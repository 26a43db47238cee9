// The language of the words: recognised by the server, and shown next to the search box, where it can be changed.

import { byId, make } from "./dom.js";

const MANY = "mul";

/** Let the visitor choose one of the languages of the collection's model; calls `choose(code)`, with "" for automatic.
*/
export function offerLanguages(languages, choose) {
  const field = byId("lang");
  if (field.options.length || languages.length < 2 || languages.includes(MANY)) return;
  field.append(
    make("option", { value: "", textContent: "Auto" }),
    ...languages.map((code) => make("option", { value: code, textContent: languageName(code) })),
  );
  field.addEventListener("change", () => choose(field.value));
}

/** Show the chosen language of a query or, if none was chosen, the recognised one. */
export function showLanguage(chosen, found = "", hasWords = true) {
  const field = byId("lang");
  field.hidden = !field.options.length || !hasWords;
  if (!field.options.length) return;
  field.value = chosen;
  field.options[0].textContent = found && !chosen ? `${languageName(found)} (auto)` : "Auto";
}

/** The name of a language; its code if the browser does not know it. */
export function languageName(code) {
  try {
    return new Intl.DisplayNames(["en"], { type: "language" }).of(code);
  } catch {
    return code;
  }
}
