// Which results are matches: those at least as likely as the line that the server names. A relevance is the chance that
// a picture shows what was asked for, whatever else there is.

const LEAST_SHOWN = 0.1;

/** The results in two, the matches and the rest; where nobody can say how likely they are, all are matches. */
export function splitByRelevance(hits, line) {
  const isMatch = (hit) => line === undefined || hit.relevance === undefined || hit.relevance >= line;
  return [hits.filter(isMatch), hits.filter((hit) => !isMatch(hit))];
}

/** Whether a relevance is worth a badge: less than one in ten says no more than its place. */
export const isShown = (relevance) => relevance !== undefined && relevance >= LEAST_SHOWN;
