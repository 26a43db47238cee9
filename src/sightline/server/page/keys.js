// Keys that work anywhere on the page: / for the words, an arrow down for the results, and those that select pictures.

import { byId } from "./dom.js";
import { selection } from "./selection.js";

/** Listen for these keys; calls `focusResults()` or `selectAll()`. */
export function onKeys({ focusResults, selectAll }) {
  const words = byId("words");
  document.addEventListener("keydown", (event) => {
    const isField = event.target.matches("input, select, textarea");
    if (event.key === "/" && !isField && !document.querySelector("dialog[open]")) {
      event.preventDefault();
      words.focus();
      words.select();
    } else if (event.key === "ArrowDown" && event.target === words) {
      event.preventDefault();
      focusResults();
    }
  });
  document.addEventListener("keydown", (event) => {
    if (document.querySelector("dialog[open]") || event.target.matches("input, select, textarea")) return;
    if (event.key === "x" && !event.ctrlKey && !event.metaKey) {
      event.target.closest(".tile")?.querySelector(".pick")?.click();
    } else if (event.key === "a" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      selectAll();
    } else if (event.key === "Escape") {
      selection.clear();
    }
  });
}
