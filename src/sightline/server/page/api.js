// Requests to the server. Every failure becomes a Problem, which says what to tell the visitor.

import { pause } from "./dom.js";
import { unwanted, where } from "./state.js";

const TRIES = 4;
const UNREACHABLE = "The server cannot be reached.";
const NAMES = { q: "The search", not: "A word to leave out", where: "The filter" }; // of fields that a visitor fills in

/** Why a request failed; `status` is 0 if the server cannot be reached. */
export class Problem extends Error {
  constructor(status, detail, wayOut = "") {
    super(detail);
    this.status = status;
    this.wayOut = wayOut;
  }
}

let tokenAsker = async () => { throw new Problem(401, "a token is needed"); };
let tokenAsked = null;

/** Set the function that asks the visitor for a token; it is called once, however many requests need it. */
export function onTokenNeeded(asker) {
  tokenAsker = asker;
}

/** Search with all fields of a query; `rerank: 0` is fastest. */
export function search(query, { k, start, rerank, signal }) {
  const picture = query.picture?.blob;
  const fields = { q: query.words.trim(), lang: query.lang, where: where(query), k, start, rerank };
  if (!picture) return asked(`/v1/search?${parameters(fields, unwanted(query))}`, { signal });
  const form = new FormData();
  for (const [name, value] of parameters({ ...fields, image_weight: query.weight }, unwanted(query))) {
    form.append(name, value);
  }
  form.append("image", picture, "picture");
  return asked("/v1/search", { method: "POST", body: form, signal });
}

export const similar = (id, { k, signal }) => asked(`/v1/items/${id}/similar?k=${k}`, { signal });
export const item = (id) => asked(`/v1/items/${id}`, {});
export const some = (query, k) => asked(`/v1/items?${parameters({ k, where: where(query) })}`, {});
export const timeline = (query) => asked(`/v1/timeline?${parameters({ where: where(query) })}`, {});
export const timelineItems = (query, start, k) =>
  asked(`/v1/timeline/items?${parameters({ start, k, where: where(query) })}`, {});
export const understand = (words, lang, literal, signal) => {
  const given = parameters({ q: words, lang });
  for (const phrase of literal) given.append("literal", phrase);
  return asked(`/v1/understand?${given}`, { signal });
};
export const examples = () => asked("/v1/examples", {});
export const camera = (id, signal) => asked(`/v1/items/${id}/camera`, { signal });
export const pictureText = (id, words) => asked(`/v1/items/${id}/text?${parameters({ q: words })}`, {});
export const albums = () => asked("/v1/albums", {});
export const addToAlbum = (name, ids) => asked(`/v1/albums/${encodeURIComponent(name)}`, sent({ ids }));
export const deleteAlbum = (name) => asked(`/v1/albums/${encodeURIComponent(name)}`, { method: "DELETE" });
export const removeFromAlbum = (name, ids) => asked(`/v1/albums/${encodeURIComponent(name)}/remove`, sent({ ids }));
export const paths = (ids) => asked("/v1/paths", sent({ ids }));
export const reveal = (id) => answered(`/v1/items/${id}/reveal`, { method: "POST" });
export const collection = () => asked("/v1/collection", {});
export const filters = () => asked("/v1/filters", {});
export const explain = (words, lang, id, signal) => asked(`/v1/explain?${parameters({ q: words, lang, id })}`, { signal });

/** Fetch the file of an item's picture. */
export async function file(id, signal) {
  return read(await answered(`/v1/items/${id}/image`, { signal }), "blob");
}

/** Whether the server is up. */
export async function isUp() {
  try {
    return (await fetch("/healthz", { cache: "no-store" })).ok;
  } catch {
    return false;
  }
}

/** Send the token to the server; returns whether it is correct. */
export async function showToken(token) {
  if (!/^[\x20-\x7e]+$/.test(token)) return false; // headers allow only these characters
  const response = await reached("/v1/session", { method: "POST", headers: { Authorization: `Bearer ${token}` } });
  if (response.ok) return true;
  if (response.status === 401) return false;
  throw await problem(response);
}

const sent = (body) => ({
  method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json" },
});

async function asked(address, options) {
  return read(await answered(address, options), "json");
}

/** Read the body of a response, as "json" or as a "blob". */
async function read(response, kind) {
  try {
    return await response[kind]();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    if (error.name === "SyntaxError") throw new Problem(response.status, "The server's answer cannot be read.");
    throw new Problem(0, UNREACHABLE); // the connection broke
  }
}

/** Make a request; if the server is busy, retry after the time it asks for. */
async function answered(address, options, triesLeft = TRIES) {
  const response = await reached(address, options);
  if (response.ok) return response;
  if (response.status === 401) {
    tokenAsked ??= tokenAsker().finally(() => { tokenAsked = null; });
    await tokenAsked;
    return answered(address, options, triesLeft);
  }
  const isBusy = response.status === 429 || response.status === 503;
  if (!isBusy || triesLeft <= 1) throw await problem(response);
  await pause(1000 * Number(response.headers.get("Retry-After") ?? 1), options.signal);
  return answered(address, options, triesLeft - 1);
}

async function reached(address, options) {
  try {
    return await fetch(address, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, UNREACHABLE);
  }
}

async function problem(response) {
  const { detail, way_out: wayOut, errors = [] } = await response.json().catch(() => ({}));
  const [field] = errors[0]?.where.split(".") ?? [];
  if (field in NAMES) return new Problem(response.status, `${NAMES[field]} ${errors[0].what}.`);
  return new Problem(response.status, sentence(detail ?? response.statusText), wayOut);
}

function parameters(fields, without = []) {
  const given = new URLSearchParams();
  for (const [name, value] of Object.entries(fields)) {
    if (value !== null && value !== undefined && value !== "") given.set(name, value);
  }
  for (const one of without) given.append("not", one);
  return given;
}

const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1).replace(/[^.!?]$/, "$&.");
