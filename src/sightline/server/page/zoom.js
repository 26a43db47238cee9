// Zoom into the enlarged picture with the wheel, a double click, a pinch or keys, and pan it; a swipe leads to the next
// picture.

const [MOST, STEP] = [8, 1.4];
const SWIPE = 60; // minimum length of a swipe, in pixels

/** Zooms and pans `frame` inside `fit`; calls `swipe(by)` with -1 or 1 when the visitor swipes to another picture. */
export class Zoom {
  #fit;
  #frame;
  #swipe;
  #scale = 1;
  #x = 0;
  #y = 0;
  #pointers = new Map();
  #start = null;

  /** Whether to ignore gestures and keys. */
  isOff = false;

  constructor(fit, frame, { swipe }) {
    [this.#fit, this.#frame, this.#swipe] = [fit, frame, swipe];
    fit.addEventListener("wheel", (event) => {
      if (this.isOff) return;
      event.preventDefault();
      this.#by(event.deltaY < 0 ? STEP : 1 / STEP, event.clientX, event.clientY);
    }, { passive: false });
    fit.addEventListener("dblclick", (event) => {
      if (this.isOff) return;
      if (this.#scale > 1) this.reset();
      else this.#by(2.5, event.clientX, event.clientY);
    });
    fit.addEventListener("pointerdown", (event) => this.#down(event));
    fit.addEventListener("pointermove", (event) => this.#moved(event));
    for (const end of ["pointerup", "pointercancel"]) fit.addEventListener(end, (event) => this.#up(event));
  }

  /** Show the whole picture. */
  reset() {
    [this.#scale, this.#x, this.#y] = [1, 0, 0];
    this.#place();
  }

  /** Handle a key press; returns whether it was a zoom key. */
  pressed(event) {
    if (this.isOff || event.ctrlKey || event.metaKey || event.altKey) return false;
    const factor = { "+": STEP, "=": STEP, "-": 1 / STEP }[event.key];
    if (!factor && event.key !== "0") return false;
    event.preventDefault();
    if (factor) this.#by(factor);
    else this.reset();
    return true;
  }

  /** Zoom by a factor around a point in the window; by default around the centre. */
  #by(factor, x = null, y = null) {
    const scale = Math.min(MOST, Math.max(1, this.#scale * factor));
    const box = this.#fit.getBoundingClientRect();
    const [left, top] = [(x ?? box.left + box.width / 2) - box.left - box.width / 2, (y ?? box.top + box.height / 2) - box.top - box.height / 2];
    const grown = scale / this.#scale;
    this.#x = left - (left - this.#x) * grown;
    this.#y = top - (top - this.#y) * grown;
    this.#scale = scale;
    this.#place();
  }

  /** Apply the zoom and position; the centre of the view always stays on the picture. */
  #place() {
    if (this.#scale === 1) [this.#x, this.#y] = [0, 0];
    const [wide, high] = [(this.#frame.offsetWidth * this.#scale) / 2, (this.#frame.offsetHeight * this.#scale) / 2];
    this.#x = Math.min(wide, Math.max(-wide, this.#x));
    this.#y = Math.min(high, Math.max(-high, this.#y));
    this.#frame.style.transform = this.#scale === 1 ? "" : `translate(${this.#x}px, ${this.#y}px) scale(${this.#scale})`;
    this.#fit.classList.toggle("is-zoomed", this.#scale > 1);
  }

  #down(event) {
    if (this.isOff) return;
    this.#pointers.set(event.pointerId, event);
    if (this.#pointers.size === 1) this.#start = event;
    if (this.#scale > 1) this.#fit.setPointerCapture(event.pointerId);
  }

  #moved(event) {
    const before = this.#pointers.get(event.pointerId);
    if (!before) return;
    if (this.#pointers.size === 2) {
      const other = [...this.#pointers.values()].find((one) => one.pointerId !== event.pointerId);
      const apart = (one) => Math.hypot(one.clientX - other.clientX, one.clientY - other.clientY);
      this.#by(apart(event) / Math.max(1, apart(before)), (event.clientX + other.clientX) / 2, (event.clientY + other.clientY) / 2);
      this.#start = null;
    } else if (this.#scale > 1) {
      this.#x += event.clientX - before.clientX;
      this.#y += event.clientY - before.clientY;
      this.#place();
    }
    this.#pointers.set(event.pointerId, event);
  }

  #up(event) {
    if (!this.#pointers.has(event.pointerId)) return;
    this.#pointers.delete(event.pointerId);
    const from = this.#start;
    if (this.#scale > 1 || !from || event.pointerType === "mouse" || event.type === "pointercancel") return;
    this.#start = null;
    const [across, down] = [event.clientX - from.clientX, event.clientY - from.clientY];
    if (Math.abs(across) > SWIPE && Math.abs(across) > 2 * Math.abs(down)) this.#swipe(across < 0 ? 1 : -1);
  }
}
