// Which results are matches: those whose relevance is at least the line that the server sets. Relevance is the
// probability that a picture shows what was asked for, whatever else is in the collection.

const LEAST_SHOWN = 0.1;

/** Split results into matches and the rest; if their relevance is unknown, all are matches. */
export function splitByRelevance(hits, line) {
  const isMatch = (hit) => line === undefined || hit.relevance === undefined || hit.relevance >= line;
  return [hits.filter(isMatch), hits.filter((hit) => !isMatch(hit))];
}

/** Whether to show a relevance as a badge: below 10%, it says no more than the rank does. */
export const isShown = (relevance) => relevance !== undefined && relevance >= LEAST_SHOWN;
