// Which results are likely enough to come first. A relevance is the chance that a result is the one that was meant:
// where many fit, as dogs do for "a dog", each has a small share of it, the smaller the more there are. So what counts
// is also how likely all are together, and how likely each is beside the best.
//
// All three were chosen by looking at a few hundred captions and words over some hundred photos: more comes first than
// with a least chance alone, and a little more of it is wrong.

const ALONE = 0.1; // so likely the best must be,
const TOGETHER = 0.2; // or so likely all of them, or nothing is found
const SHARE = 0.1; // of what the best has

/** The results in two, the likely and the rest; those of which nobody can say how likely they are, are likely. */
export function splitByRelevance(hits) {
  const best = hits[0]?.relevance;
  if (best === undefined) return [hits, []];
  const together = hits.reduce((sum, hit) => sum + hit.relevance, 0);
  const least = best >= ALONE || together >= TOGETHER ? SHARE * best : Infinity;
  return [hits.filter((hit) => hit.relevance >= least), hits.filter((hit) => hit.relevance < least)];
}
