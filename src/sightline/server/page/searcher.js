// When to search: a moment after the last keystroke, first without reranking and then with it. Only the results of the
// latest query are ever shown; requests for earlier ones are cancelled.
//
// Measured with the demo's pictures on two slow cores: the quick results arrive in 15 ms and reranking takes 430 ms, so
// that results follow the typing and settle when it pauses.

import * as api from "./api.js";
import { pause } from "./dom.js";
import { filterCount } from "./state.js";

const PAUSE_MS = 80;
const SETTLE_MS = 250;

/** Runs searches one after another, and calls `show(answer, query, isFinal)` or `fail(error, query)` with each outcome.
*/
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

  /** Cancel the current search. */
  stop() {
    this.#running?.abort();
    this.#running = null;
  }

  /** Start a search. meant: the query with phrases turned into filters. typing: pause first, and again before
   reranking. */
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

/** Search. An item alone is compared by its stored vectors; with words or filters, its picture is sent like an upload.
 */
async function asked(query, k, signal) {
  if (query.like === null) return api.search(query, { k, signal });
  if (!query.words.trim() && filterCount(query) === 0 && !query.said) return api.similar(query.like, { k, signal });
  const blob = await api.file(query.like, signal);
  return api.search({ ...query, picture: { blob } }, { k, signal });
}
