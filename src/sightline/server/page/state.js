// The query, and how it is written into the page's address, so that links can be shared and Back works.
//
// A query is { words, lang, without, folder, album, literal, from, to, like, open, weight, picture }; `lang` is "" to
// recognise the language. An uploaded picture does not fit into an address: it is kept here while the page is open, and
// the history refers to it by number.

const pictures = new Map();

/** An empty query. */
export const nothing = () => ({
  words: "", lang: "", without: "", folder: "", album: "", literal: [], from: "", to: "", like: null, open: null, weight: 0.5, picture: null,
});

/** The query in an address. */
export function fromAddress(search, kept = null) {
  const given = new URLSearchParams(search);
  return {
    words: given.get("q") ?? "",
    lang: languageIn(given.get("lang")),
    without: given.get("not") ?? "",
    folder: given.get("folder") ?? "",
    album: given.get("album") ?? "",
    literal: given.getAll("literal").slice(0, 8),
    from: dateIn(given.get("from")),
    to: dateIn(given.get("to")),
    like: idIn(given.get("like")),
    open: idIn(given.get("open")),
    weight: weightIn(given.get("weight")),
    picture: pictures.get(kept?.picture) ?? null,
  };
}

/** The address of a query; "./" if it is empty. */
export function toAddress(query) {
  const given = new URLSearchParams();
  const put = (name, value) => value && given.set(name, value);
  put("q", query.words.trim());
  put("lang", query.lang);
  put("not", query.without.trim());
  put("folder", query.folder);
  put("album", query.album);
  for (const phrase of query.literal) given.append("literal", phrase);
  put("from", query.from);
  put("to", query.to);
  put("like", query.like);
  if (query.weight !== 0.5) given.set("weight", query.weight);
  put("open", query.open);
  const written = given.toString();
  return written ? `?${written}` : "./";
}

/** What the history stores in addition to the address. */
export function keep(query) {
  if (!query.picture) return null;
  pictures.set(query.picture.number, query.picture);
  return { picture: query.picture.number };
}

/** Identifies a query, regardless of which of its results is open. */
export const identity = (query) => `${toAddress({ ...query, open: null })} ${query.picture?.number ?? ""}`;

/** Whether a query has nothing to search by; filters do not count. */
export const isEmpty = (query) => !query.words.trim() && query.like === null && !query.picture;

/** Whether a query combines a picture with words; relevance, which would be that of the words alone, is then hidden. */
export const isJoined = (query) => Boolean(query.words.trim()) && (query.picture !== null || query.like !== null);

/** The number of filters that are set. */
export const filterCount = (query) =>
  [isEmpty(query) ? "" : query.without.trim(), query.folder, query.album, query.from, query.to].filter(Boolean).length;

/** Whether the first date is after the last, so that nothing can match. */
export const isReversed = (query) => Boolean(query.from && query.to) && query.from > query.to;

/** The descriptions of what results should not show. */
export const unwanted = (query) => query.without.split(",").map((part) => part.trim()).filter(Boolean).slice(0, 8);

/** The filters as an expression for the server; null if there are none. */
export function where(query) {
  const conditions = [];
  if (query.from) conditions.push(`taken >= '${query.from}'`);
  if (query.to) conditions.push(`taken <= '${query.to}'`);
  if (query.said) conditions.push(query.said); // from dates and names among the words
  if (query.album) conditions.push(`album = '${query.album.replaceAll("'", "''")}'`);
  if (query.folder) {
    // If several folders were indexed, the path is preceded by the name of its root and two slashes.
    const [root, path] = query.folder.includes("//") ? query.folder.split("//") : ["", query.folder];
    const quoted = (text) => text.replaceAll("'", "''");
    if (root) conditions.push(`root = '${quoted(root)}'`);
    // All paths below a folder sort between "folder/" and "folder0", because 0 is the character after the slash.
    if (path) conditions.push(`path >= '${quoted(path)}/' and path < '${quoted(path)}0'`);
  }
  return conditions.join(" and ") || null;
}

const idIn = (text) => (/^[1-9]\d{0,15}$/.test(text ?? "") ? Number(text) : null);
const languageIn = (text) => (/^[a-z]{2,3}$/.test(text ?? "") ? text : "");
const dateIn = (text) => (/^\d{4}-\d\d-\d\d$/.test(text ?? "") ? text : "");

function weightIn(text) {
  const weight = Number(text ?? 0.5);
  return weight >= 0 && weight <= 1 ? weight : 0.5;
}
