// Small helpers for working with the document.

/** The element with an id, which must exist. */
export function byId(id) {
  const found = document.getElementById(id);
  if (!found) throw new Error(`the page has no #${id}`);
  return found;
}

/** Create an element with properties and children; a name with a dash sets an attribute instead of a property. */
export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.includes("-")) element.setAttribute(name, value);
    else element[name] = value;
  }
  element.append(...children);
  return element;
}

/** Whether the visitor prefers reduced motion. */
export const isStill = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

/** Resolves after `ms` milliseconds; rejects if the signal aborts first. */
export function pause(ms, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, ms);
    signal?.addEventListener("abort", () => { clearTimeout(timer); reject(signal.reason); }, { once: true });
  });
}

/** Format a probability as a percentage; never 0%, because a model is never that certain. */
export function percent(chance) {
  return chance >= 0.005 ? `${Math.round(chance * 100)}%` : "<1%";
}

/** Format a count, such as "1 picture" or "1,204 pictures". */
export function counted(count, one, many) {
  return `${count.toLocaleString("en")} ${count === 1 ? one : many}`;
}
