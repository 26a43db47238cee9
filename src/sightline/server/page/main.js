// The page: each action of the visitor changes the query, which is then searched for, and the results are shown.

import { showActions } from "./actions.js";
import * as api from "./api.js";
import { showChip } from "./chip.js";
import { byId, counted } from "./dom.js";
import { Filters } from "./filters.js";
import { Grid } from "./grid.js";
import { onKeys } from "./keys.js";
import { offerLanguages, showLanguage } from "./language.js";
import { showPhrases, understood } from "./phrases.js";
import { splitByRelevance } from "./relevance.js";
import { selection } from "./selection.js";
import { onUpload } from "./upload.js";
import { reconnect, stopReconnecting } from "./reconnect.js";
import { Searcher } from "./searcher.js";
import * as state from "./state.js";
import * as messages from "./messages.js";
import { Timeline } from "./timeline.js";
import { askForToken } from "./token.js";
import { Viewer } from "./viewer.js";

const MORE = 60; // results per request
const AT_FIRST = 40; // texts on the start page
const AT_ONCE = 2000; // maximum number of pictures that Ctrl+A selects
const SKELETON_MS = 250;
const QUOTED = /"[^"]*"|“[^“”]*”|„[^„“”]*[“”]|«[^«»]*»/g;

let about = null; // the collection
let query = state.nothing();
let meaning = query; // the same, with dates and names turned into filters
let hits = []; // in the order shown
let language = ""; // the language in which the words were read
let line; // the minimum relevance of a match
let shown = ""; // the identity of the query that `hits` answer
let shownMeaning = query;
let isNewStep = true; // whether the next change to the words adds a history entry
let hasBack = false; // whether Back leads from the enlarged view to the results
let isAdding = false; // whether more results are being loaded
let waiting = 0;

const words = byId("words");
const grid = new Grid({ open: view, like });
const timeline = new Timeline({ open: view, like, fail: (error, asked) => asked === meaning && failed(error, query) });
const filters = new Filters({ change, typing: type, deleteAlbum });
const viewer = new Viewer({ move: turn, close: leave, like, starred: () => filters.renew() });
const searcher = new Searcher({ show: answered, fail: failed, canRerank: () => can("match") });

const can = (ability) => about?.kind === "images" && about.abilities.includes(ability);
const hasResults = () => hits.length > 0 || (timeline.isShown && timeline.total > 0);
const focusResults = (id = null) => (timeline.isShown ? timeline.focus(id) : grid.focus(id));
const isCurrent = (asked) => state.identity(asked) === state.identity(query);

// Actions of the visitor

/** Change the query in one step, such as a click, and add a history entry. */
function change(fields) {
  query = { ...query, open: null, ...fields };
  selection.clear();
  history.pushState(state.keep(query), "", state.toAddress(query));
  isNewStep = true;
  render();
}

/** Change the query by typing; all keystrokes until Enter, or until the field loses focus, share a history entry. */
function type(fields) {
  query = { ...query, ...fields };
  query.literal = query.literal.filter((phrase) => query.words.includes(phrase));
  const write = isNewStep ? "pushState" : "replaceState";
  history[write](state.keep(query), "", state.toAddress(query));
  isNewStep = false;
  render({ typing: true });
}

/** Search for more items like this one. */
function like(id) {
  change({ ...state.nothing(), like: id });
  byId("results").focus({ preventScroll: true });
  scrollTo(0, 0);
}

/** Enlarge a result; Back closes it again. */
function view(id) {
  query = { ...query, open: id };
  history.pushState({ ...state.keep(query), isOpen: true }, "", state.toAddress(query));
  isNewStep = true;
  hasBack = true;
  showOpened();
}

/** Move to another result in the enlarged view, without adding a history entry. */
function turn(id) {
  query = { ...query, open: id };
  history.replaceState(history.state, "", state.toAddress(query));
  showOpened();
}

function leave() {
  if (query.open === null) return; // already on the way back
  query = { ...query, open: null };
  if (hasBack) {
    history.back();
    return;
  }
  history.replaceState(state.keep(query), "", state.toAddress(query));
  render();
}

// Display

/** Show the current query: its fields, its results and the enlarged view. */
function render({ typing = false } = {}) {
  if (words.value.trim() !== query.words.trim()) words.value = query.words;
  filters.show(query);
  showLanguage(query.lang, language, Boolean(query.words.trim()));
  showChip(query, hits, about?.kind === "texts");
  document.title = query.words.trim() ? `${query.words.trim()} – Sightline` : "Sightline";
  messages.showExamples(state.isEmpty(query), (example) => change({ words: example }));
  if (query.open === null && viewer.isOpen) focusResults(viewer.close());
  if (shown === state.identity(query)) {
    searcher.stop();
    busy(false);
    understand(shownMeaning);
    showOpened();
    return;
  }
  load({ typing });
}

/** Take a query to mean this, and show the phrases that became filters. */
function understand(meant) {
  meaning = meant;
  showPhrases(meant, (text) => change({ literal: [...query.literal, text] }));
}

/** Load the results of the query. */
async function load({ typing = false } = {}) {
  const asked = query;
  searcher.stop();
  busy(true);
  try {
    about ??= await api.collection();
    offerLanguages(about.languages, (lang) => change({ lang }));
    const meant = about.kind === "texts" ? asked : await understood(asked);
    if (!isCurrent(asked)) return;
    understand(meant);
    if (state.isEmpty(meant)) await begin(asked, meant);
    else searcher.start(asked, { k: MORE, typing, meant });
  } catch (error) {
    failed(error, asked);
  }
}

/** Show the start page: everything in the collection that passes the filters. */
async function begin(asked, meant) {
  about = await api.collection();
  const isTexts = about.kind === "texts";
  const some = await (isTexts ? api.some(asked, AT_FIRST) : timeline.load(meant));
  if (!isCurrent(asked)) return;
  const [one, many] = messages.nouns(about.kind);
  if (!isTexts) timeline.show(meant, some);
  arrange(some.items ?? [], [], { isTimeline: !isTexts });
  const isWhole = state.filterCount(asked) === 0;
  const several = isWhole && about.collections?.length > 1 ? ` of ${about.collections.length} collections` : "";
  const left = isWhole && about.to_refine ? `, ${about.to_refine.toLocaleString()} still to refine` : "";
  messages.setHeading(`${counted(some.total, one, many)}${several}${left}`);
  if (!about.items) messages.showMessage(`Nothing is indexed yet. Add ${many} to the folder, and run sightline index.`);
  else if (!some.total) messages.showNothingFound(filtersOf(asked));
  showOpened();
}

/** Show results. Those that are not final were not reranked, so they are no reason yet to say that nothing matches. */
function answered(answer, asked, isFinal) {
  if (!isCurrent(asked)) return;
  language = answer.lang ?? "";
  showLanguage(asked.lang, language, Boolean(asked.words.trim()));
  const found = withoutJoined(answer.hits, asked);
  const [likely, unlikely] = splitByRelevance(found, answer.line);
  if (!likely.length && !isFinal) return;
  arrange(likely, unlikely);
  const heading = messages.resultCount(likely, unlikely, about.kind, answer.line, hasMoreMatches(found, likely));
  messages.setHeading(heading, { timing: messages.timing(answer), aloud: isFinal });
  messages.showRemark(answer, (meant) => change({ words: meant }));
  if (!found.length) {
    const isQuoted = asked.words.search(QUOTED) >= 0;
    messages.showNothingFound({ isQuoted, languages: about.languages, ...filtersOf(asked) });
  }
  if (!isFinal) {
    shown = "";
    busy(true);
    return;
  }
  line = answer.line;
  byId("further").hidden = answer.hits.length < MORE || asked.like !== null;
  showOpened();
}

/** Whether a query has filters, set or among its words, and whether its dates are the wrong way round. */
const filtersOf = (asked) => ({
  isFiltered: state.filterCount(asked) > 0 || Boolean(meaning.said),
  isReversed: state.isReversed(asked),
});

const withoutJoined = (found, asked) =>
  state.isJoined(asked) ? found.map(({ relevance, ...hit }) => hit) : found;

/** Whether there may be more matches than those loaded: the page is full, and its last result is a match. */
const hasMoreMatches = (found, likely) => found.length >= MORE && likely.includes(found.at(-1));

const nearEnd = new IntersectionObserver(
  (seen) => seen.some((one) => one.isIntersecting) && addMore(),
  { rootMargin: "600px" },
);

/** Load the next results, and add them to the current ones. */
async function addMore() {
  const asked = query;
  if (byId("further").hidden || isAdding || shown !== state.identity(asked)) return;
  isAdding = true; // a disabled button would lose the focus
  try {
    const answer = await api.search(meaning, { k: MORE, start: hits.length });
    if (!isCurrent(asked) || shown !== state.identity(asked)) return;
    const known = new Set(hits.map((hit) => hit.id));
    const added = withoutJoined(answer.hits, asked).filter((hit) => !known.has(hit.id));
    const [likely, unlikely] = splitByRelevance([...hits, ...added], line);
    hits = [...likely, ...unlikely];
    grid.show(likely, unlikely);
    const isOpen = answer.hits.length >= MORE && likely.includes(added.at(-1));
    byId("heading").textContent = messages.resultCount(likely, unlikely, about.kind, line, isOpen);
    byId("divider").hidden = !likely.length || !unlikely.length;
    const isEnd = answer.hits.length < MORE;
    if (isEnd && document.activeElement === byId("further")) grid.focus(hits.at(-1).id);
    byId("further").hidden = isEnd;
  } catch (error) {
    failed(error, asked);
  } finally {
    isAdding = false;
    nearEnd.unobserve(byId("further")); // observing again reports whether the new end is in view
    nearEnd.observe(byId("further"));
  }
}

/** Replace the results on the page. */
function arrange(likely, unlikely, { isTimeline = false } = {}) {
  stopReconnecting();
  if (!isTimeline && timeline.isShown) {
    timeline.hide();
    scrollTo(0, 0);
  }
  messages.showMessage();
  busy(false);
  byId("divider").hidden = !likely.length || !unlikely.length;
  byId("further").hidden = true;
  grid.show(likely, unlikely);
  hits = [...likely, ...unlikely];
  shown = state.identity(query);
  shownMeaning = meaning;
}

/** Show an error. If the server cannot be reached, the current results stay, and the request is retried. */
function failed(error, asked) {
  if (!isCurrent(asked)) return;
  if (error.status === undefined) throw error;
  if (error.status !== 0 || !hasResults()) arrange([], []);
  busy(false);
  shown = "";
  if (error.status === 0) {
    reconnect(() => load());
  } else {
    messages.setHeading("Search failed");
    messages.showProblem(error, () => load());
  }
}

/** While loading, keep the current results; if there are none, show placeholders after a moment. */
function busy(isBusy) {
  clearTimeout(waiting);
  byId("results").setAttribute("aria-busy", String(isBusy));
  byId("progress").hidden = true;
  if (!isBusy) return;
  waiting = setTimeout(() => {
    byId("progress").hidden = false;
    if (hasResults()) return;
    shown = ""; // going back to the previous query must restore the message
    messages.showMessage();
    messages.setHeading("Searching …", { aloud: false });
    grid.wait();
  }, SKELETON_MS);
}

/** Enlarge the item named in the address, if it exists. */
async function showOpened() {
  const { open } = query;
  if (open === null) return;
  const at = hits.findIndex((hit) => hit.id === open);
  const found = hits[at] ?? timeline.find(open) ?? (await api.item(open).catch(() => null));
  if (!found || query.open !== open) return;
  const seen = meaning.words.replace(QUOTED, " ").trim(); // quoted parts are text in the picture, not what it shows
  const show = (around) =>
    viewer.show(found, around, can("fragments") ? seen : "", about?.text ? meaning.words.trim() : null, language);
  if (!timeline.isShown || !viewer.isOpen) show(at < 0 ? [] : [hits[at - 1], hits[at + 1]]);
  const around = timeline.isShown && (await timeline.around(open));
  if (around && query.open === open) show(around);
}

// Events

words.addEventListener("input", () => {
  const isTexts = about?.kind === "texts"; // similarity to a text cannot be combined with words
  type({ words: words.value, ...(isTexts && { like: null }) });
});
words.addEventListener("change", () => { isNewStep = true; });
byId("search").addEventListener("submit", (event) => {
  event.preventDefault();
  isNewStep = true;
  if (shown !== state.identity(query)) load();
});
byId("chip-remove").addEventListener("click", () => {
  change({ picture: null, like: null });
  words.focus();
});
byId("home").addEventListener("click", (event) => {
  if (event.metaKey || event.ctrlKey || event.shiftKey) return;
  event.preventDefault();
  change(state.nothing());
});
byId("further").addEventListener("click", addMore);
nearEnd.observe(byId("further"));
onKeys({
  focusResults,
  selectAll: () => {
    if (timeline.isShown) selection.addLater(timeline.range(0, Math.min(timeline.total, AT_ONCE) - 1));
    else selection.add(hits.map((hit) => hit.id));
  },
});
showActions({
  album: () => query.album,
  changed: (name) => {
    filters.renew();
    if (query.album !== name) return;
    shown = "";
    load();
  },
  say: messages.toast,
});
onUpload({ take: (picture) => change({ picture, like: null }), fail: (error) => failed(error, query) });
api.onTokenNeeded(askForToken);

/** Delete an album once the visitor has agreed, and stop filtering by it. */
async function deleteAlbum(name) {
  if (!confirm(`Delete the album “${name}”? Its pictures stay.`)) return;
  try {
    await api.deleteAlbum(name);
    messages.toast(`The album “${name}” was deleted.`);
  } catch (error) {
    messages.toast(error.message);
    return;
  }
  filters.renew();
  change({ album: "" });
}

/** Show what the address asks for. */
function arrive(kept) {
  const before = query;
  query = state.fromAddress(location.search, kept);
  if (!isCurrent(before)) selection.clear();
  isNewStep = true;
  hasBack = Boolean(kept?.isOpen);
  render();
}

addEventListener("popstate", (event) => arrive(event.state));
arrive(history.state);
