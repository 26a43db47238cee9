// When to search: a moment after the last keystroke, quickly first and then with a close look. Only the answer to the
// latest question is ever shown; the server is told to drop the others.
//
// Measured over the demo's pictures on two slow cores: the quick answer is there in 15 ms and the close look takes 430,
// so that results follow the typing and settle when it pauses.

import * as api from "./api.js";
import { pause } from "./dom.js";
import { filterCount } from "./state.js";

const PAUSE_MS = 80;
const SETTLE_MS = 250;

/** Runs searches one after another; `show(answer, query, isFinal)` and `fail(error, query)` are told how they went. */
export class Searcher {
  #show;
  #fail;
  #running = null;
  #canRerank;

  constructor({ show, fail, canRerank }) {
    this.#show = show;
    this.#fail = fail;
    this.#canRerank = canRerank;
  }

  /** Forget what is being asked. */
  stop() {
    this.#running?.abort();
    this.#running = null;
  }

  /** Ask; `meant` is the query as it is searched for. `typing` waits for the next keystroke, and looks closely only when there is none. */
  async start(query, { k, typing = false, meant = query }) {
    this.stop();
    this.#running = new AbortController();
    const { signal } = this.#running;
    try {
      if (typing) await pause(PAUSE_MS, signal);
      if (this.#isQuickFirst(meant)) {
        const answer = await api.search(meant, { k, rerank: 0, signal });
        if (!signal.aborted) this.#show(answer, query, false);
        if (typing) await pause(SETTLE_MS, signal);
      }
      const answer = await asked(meant, k, signal);
      if (!signal.aborted) this.#show(answer, query, true);
    } catch (error) {
      if (!signal.aborted) this.#fail(error, query);
    }
  }

  #isQuickFirst(query) {
    return this.#canRerank() && query.words.trim() && !query.picture && query.like === null;
  }
}

/** Likeness alone goes by what is stored; together with words or filters, the item's picture is sent like any other. */
async function asked(query, k, signal) {
  if (query.like === null) return api.search(query, { k, signal });
  if (!query.words.trim() && filterCount(query) === 0 && !query.said) return api.similar(query.like, { k, signal });
  const blob = await api.file(query.like, signal);
  return api.search({ ...query, picture: { blob } }, { k, signal });
}
