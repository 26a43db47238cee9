// Small conveniences around the document.

/** The element of an id, which must be there. */
export function byId(id) {
  const found = document.getElementById(id);
  if (!found) throw new Error(`the page has no #${id}`);
  return found;
}

/** A new element with properties and children; a property with a dash in its name is an attribute. */
export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.includes("-")) element.setAttribute(name, value);
    else element[name] = value;
  }
  element.append(...children);
  return element;
}

/** Whether the visitor asked for things not to move. */
export const isStill = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

/** Resolves after a while; rejects when the signal says that nobody waits any more. */
export function pause(ms, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, ms);
    signal?.addEventListener("abort", () => { clearTimeout(timer); reject(signal.reason); }, { once: true });
  });
}

/** A probability as people read it; never nothing, because a model is never that sure. */
export function percent(chance) {
  return chance >= 0.005 ? `${Math.round(chance * 100)}%` : "<1%";
}

/** A number of things, such as "1 picture" or "1,204 pictures". */
export function counted(count, one, many) {
  return `${count.toLocaleString("en")} ${count === 1 ? one : many}`;
}
