// Retry with increasing delays while the server cannot be reached.

import { isUp } from "./api.js";
import { banner } from "./messages.js";

const LOOK_AFTER_MS = [500, 1000, 2000, 4000, 8000];

let timer = 0;

/** Say that the server cannot be reached, and call `goOn` once it can. */
export function reconnect(goOn) {
  banner("The server cannot be reached. Retrying …");
  look(goOn, 0);
}

/** Stop retrying, because the server has responded. */
export function stopReconnecting() {
  clearTimeout(timer);
  timer = 0;
  banner();
}

function look(goOn, turn) {
  clearTimeout(timer);
  const own = (timer = setTimeout(async () => {
    const isBack = await isUp();
    if (own !== timer) return; // another request was answered, or failed, meanwhile
    if (isBack) goOn();
    else look(goOn, turn + 1);
  }, LOOK_AFTER_MS[Math.min(turn, LOOK_AFTER_MS.length - 1)]));
}
