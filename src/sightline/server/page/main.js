// The page: what the visitor does changes the query, the query is searched for, and the answer is shown.

import { showActions } from "./actions.js";
import * as api from "./api.js";
import { showChip } from "./chip.js";
import { byId, counted } from "./dom.js";
import { Filters } from "./filters.js";
import { Grid } from "./grid.js";
import { offerLanguages, showLanguage } from "./language.js";
import { showPhrases, understood } from "./phrases.js";
import { splitByRelevance } from "./relevance.js";
import { selection } from "./selection.js";
import { onUpload, prepareUpload } from "./upload.js";
import { reconnect, stopReconnecting } from "./reconnect.js";
import { Searcher } from "./searcher.js";
import * as state from "./state.js";
import * as messages from "./messages.js";
import { Timeline } from "./timeline.js";
import { askForToken } from "./token.js";
import { Viewer } from "./viewer.js";

const MORE = 60; // results that are asked for at once
const AT_FIRST = 40; // texts
const AT_ONCE = 2000; // pictures that Ctrl+A selects
const SKELETON_MS = 250;
const QUOTED = /"[^"]*"|“[^“”]*”|„[^„“”]*[“”]|«[^«»]*»/g;

let about = null; // the collection
let query = state.nothing();
let meaning = query; // the same, its dates and names made filters
let hits = []; // in the order in which they are shown
let language = ""; // the language that the words were read in
let line; // the least relevance of a match
let shown = ""; // the identity of the query that they answer
let isNewStep = true; // whether the next change of the words is a step of the history
let hasBack = false; // whether Back leads from the enlarged view to its results
let waiting = 0;

const words = byId("words");
const grid = new Grid({ open: view, like });
const timeline = new Timeline({ open: view, like, fail: failed });
const viewer = new Viewer({ move: turn, close: leave, like });
const filters = new Filters({ change, typing: type });
const searcher = new Searcher({ show: answered, fail: failed, canRerank: () => can("match") });

const can = (ability) => about?.kind === "images" && about.abilities.includes(ability);
const hasResults = () => hits.length > 0 || (timeline.isShown && timeline.total > 0);
const focusResults = (id = null) => (timeline.isShown ? timeline.focus(id) : grid.focus(id));
const isCurrent = (asked) => state.identity(asked) === state.identity(query);

// What the visitor does

/** Change the query by something that is done at once: a step of the history. */
function change(fields) {
  query = { ...query, open: null, ...fields };
  if (selection.isOn) selection.clear();
  history.pushState(state.keep(query), "", state.toAddress(query));
  isNewStep = true;
  render();
}

/** Change the query by typing: all keystrokes until Enter, or until the field is left, are one step. */
function type(fields) {
  query = { ...query, ...fields };
  query.literal = query.literal.filter((phrase) => query.words.includes(phrase));
  const write = isNewStep ? "pushState" : "replaceState";
  history[write](state.keep(query), "", state.toAddress(query));
  isNewStep = false;
  render({ typing: true });
}

/** More like an item. */
function like(id) {
  change({ ...state.nothing(), like: id });
  byId("results").focus({ preventScroll: true });
  scrollTo(0, 0);
}

/** Search by a picture, and by the words that are there. */
async function take(file) {
  try {
    change({ picture: await prepareUpload(file), like: null });
  } catch (error) {
    failed(error, query);
  }
}

/** Enlarge a result; Back closes it again. */
function view(id) {
  query = { ...query, open: id };
  history.pushState({ ...state.keep(query), isOpen: true }, "", state.toAddress(query));
  isNewStep = true;
  hasBack = true;
  showOpened();
}

/** Go on to another result, without a step of the history for each. */
function turn(id) {
  query = { ...query, open: id };
  history.replaceState(history.state, "", state.toAddress(query));
  showOpened();
}

function leave() {
  if (hasBack) {
    history.back();
    return;
  }
  query = { ...query, open: null };
  history.replaceState(state.keep(query), "", state.toAddress(query));
  render();
}

// What is shown

/** Show what the query says: fields, results and the enlarged view. */
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
    showOpened();
    return;
  }
  load({ typing });
}

/** Ask for what the query wants. */
async function load({ typing = false } = {}) {
  const asked = query;
  searcher.stop();
  busy(true);
  try {
    about ??= await api.collection();
    offerLanguages(about.languages, (lang) => change({ lang }));
    const meant = about.kind === "texts" ? asked : await understood(asked);
    if (!isCurrent(asked)) return;
    meaning = meant;
    showPhrases(meant.phrases, (text) => change({ literal: [...query.literal, text] }));
    if (state.isEmpty(meant)) await begin(asked, meant);
    else searcher.start(asked, { k: MORE, typing, meant });
  } catch (error) {
    failed(error, asked);
  }
}

/** The first screen: what there is. */
async function begin(asked, meant) {
  about = await api.collection();
  const isTexts = about.kind === "texts";
  const some = await (isTexts ? api.some(asked, AT_FIRST) : api.timeline(meant));
  if (!isCurrent(asked)) return;
  const [one, many] = messages.nouns(about.kind);
  if (!isTexts) await timeline.show(meant, some);
  if (!isCurrent(asked)) return;
  arrange(some.items ?? [], [], { isTimeline: !isTexts });
  const isWhole = state.filterCount(asked) === 0;
  const several = isWhole && about.collections?.length > 1 ? ` of ${about.collections.length} collections` : "";
  const left = isWhole && about.to_refine ? `, ${about.to_refine.toLocaleString()} still to refine` : "";
  messages.setHeading(`${counted(some.total, one, many)}${several}${left}`);
  if (!about.items) messages.showMessage(`Nothing is indexed yet. Add ${many} to the folder, and run sightline index.`);
  else if (!some.total) messages.showMessage("Nothing matches these filters.");
  showOpened();
}

/** Show an answer. One that is not final has only had a quick look, and is no reason yet to say that nothing fits. */
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
  if (!found.length) messages.showNothingFound(about.languages, asked.words.search(QUOTED) >= 0);
  if (!isFinal) {
    shown = "";
    busy(true);
    return;
  }
  line = answer.line;
  byId("further").hidden = answer.hits.length < MORE || asked.like !== null;
  showOpened();
}

const withoutJoined = (found, asked) =>
  state.isJoined(asked) ? found.map(({ relevance, ...hit }) => hit) : found;

/** Whether results that were not asked for yet are matches too: the last one is, and it may have others after it. */
const hasMoreMatches = (found, likely) => found.length >= MORE && likely.includes(found.at(-1));

const nearEnd = new IntersectionObserver(
  (seen) => seen.some((one) => one.isIntersecting) && addMore(),
  { rootMargin: "600px" },
);

/** Add the results after those that are there. */
async function addMore() {
  const asked = query;
  if (byId("further").hidden || byId("further").disabled || shown !== state.identity(asked)) return;
  byId("further").disabled = true;
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
    byId("further").hidden = answer.hits.length < MORE;
  } catch (error) {
    failed(error, asked);
  } finally {
    byId("further").disabled = false;
    nearEnd.unobserve(byId("further")); // it tells again where the end is now
    nearEnd.observe(byId("further"));
  }
}

/** Put results on the page. */
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
}

/** Say what went wrong. While the server cannot be reached, what is there stays, and it is tried again. */
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

/** While an answer is on its way, what is there stays; where nothing is, skeletons show after a moment. */
function busy(isBusy) {
  clearTimeout(waiting);
  byId("results").setAttribute("aria-busy", String(isBusy));
  byId("progress").hidden = true;
  if (!isBusy) return;
  waiting = setTimeout(() => {
    byId("progress").hidden = false;
    if (hasResults()) return;
    shown = ""; // whoever takes the search back must be told again what was said here
    messages.showMessage();
    messages.setHeading("Searching …", { aloud: false });
    grid.wait();
  }, SKELETON_MS);
}

/** Enlarge what the address names, if it is there. */
async function showOpened() {
  const { open } = query;
  if (open === null) return;
  const at = hits.findIndex((hit) => hit.id === open);
  const found = hits[at] ?? timeline.find(open) ?? (await api.item(open).catch(() => null));
  const around = timeline.isShown ? await timeline.around(open) : at < 0 ? [] : [hits[at - 1], hits[at + 1]];
  if (!found || query.open !== open) return;
  const seen = meaning.words.replace(QUOTED, " ").trim(); // what is in quotes is read, not seen
  viewer.show(found, around, can("fragments") ? seen : "", about?.text ? meaning.words.trim() : null, language);
}

// What is listened to

words.addEventListener("input", () => {
  const isTexts = about?.kind === "texts"; // likeness to a text cannot be joined with words
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
document.addEventListener("keydown", (event) => {
  const isField = event.target.matches("input, select, textarea");
  if (event.key === "/" && !isField && !document.querySelector("dialog[open]")) {
    event.preventDefault();
    words.focus();
    words.select();
  } else if (event.key === "ArrowDown" && event.target === words) {
    event.preventDefault();
    focusResults();
  }
});
document.addEventListener("keydown", (event) => {
  if (document.querySelector("dialog[open]") || event.target.matches("input, select, textarea")) return;
  const picked = event.target.closest(".tile")?.dataset;
  if (event.key === "x" && picked?.id && !event.ctrlKey && !event.metaKey) {
    selection.clicked(Number(picked.id), Number(picked.place ?? 0), { shiftKey: false });
  } else if (event.key === "a" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    if (timeline.isShown) timeline.range(0, Math.min(timeline.total, AT_ONCE) - 1).then((ids) => selection.add(ids));
    else selection.add(hits.map((hit) => hit.id));
  } else if (event.key === "Escape" && selection.isOn) {
    selection.clear();
  }
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
onUpload(take);
api.onTokenNeeded(askForToken);

/** Go to where the address leads. */
function arrive(kept) {
  query = state.fromAddress(location.search, kept);
  isNewStep = true;
  hasBack = Boolean(kept?.isOpen);
  render();
}

addEventListener("popstate", (event) => arrive(event.state));
arrive(history.state);
