// Pictures to search by: chosen, dropped or pasted, and shrunk before they are sent.

import { byId } from "./dom.js";
import { Problem } from "./api.js";

const SIDE = 1024; // pixels; larger than the input of any model
const SMALL_BYTES = 1_000_000;
const MOST_BYTES = 20 * 2 ** 20; // the maximum that the server accepts

let count = 0;

/** Call `take(picture)` for every picture that the visitor chooses, drops or pastes, or `fail(error)`. */
export function onUpload({ take: done, fail }) {
  let last = null;
  const take = (chosen) => {
    last = chosen;
    const isLast = () => last === chosen; // a smaller one may be ready before it
    prepare(chosen).then((picture) => isLast() && done(picture), (error) => isLast() && fail(error));
  };
  const file = byId("file");
  byId("pick").addEventListener("click", () => file.click());
  file.addEventListener("change", () => {
    if (file.files[0]) take(file.files[0]);
    file.value = "";
  });
  document.addEventListener("paste", (event) => {
    const pasted = pictureIn(event.clipboardData?.files);
    if (!pasted) return;
    event.preventDefault();
    take(pasted);
  });
  onDrop(take);
}

function onDrop(take) {
  const veil = byId("drop");
  const holdsFiles = (event) => event.dataTransfer?.types.includes("Files");
  document.addEventListener("dragover", (event) => {
    if (!holdsFiles(event)) return;
    event.preventDefault();
    veil.hidden = false;
  });
  document.addEventListener("dragleave", (event) => {
    if (!event.relatedTarget) veil.hidden = true;
  });
  document.addEventListener("drop", (event) => {
    veil.hidden = true;
    if (!holdsFiles(event)) return;
    event.preventDefault();
    take(pictureIn(event.dataTransfer.files) ?? event.dataTransfer.files[0]);
  });
}

const pictureIn = (files) => [...(files ?? [])].find((file) => file.type.startsWith("image/"));

/** Prepare a picture for sending: { number, blob, name, address }. One that the browser cannot open is sent unchanged.
*/
async function prepare(file) {
  const bitmap = await createImageBitmap(file, { imageOrientation: "from-image" }).catch(() => null);
  if (!bitmap && file.type && !file.type.startsWith("image/")) throw new Problem(415, `${file.name} is not a picture.`);
  if (!bitmap && file.size > MOST_BYTES) throw new Problem(413, `${file.name} is too large to upload.`);
  const blob = bitmap ? await scaledDown(file, bitmap) : file;
  bitmap?.close();
  count += 1;
  return { number: count, blob, name: file.name, address: bitmap ? URL.createObjectURL(blob) : "" };
}

async function scaledDown(file, bitmap) {
  const scale = SIDE / Math.max(bitmap.width, bitmap.height);
  if (scale >= 1 && file.size <= SMALL_BYTES) return file;
  const canvas = document.createElement("canvas");
  canvas.width = Math.max(1, Math.round(bitmap.width * Math.min(1, scale)));
  canvas.height = Math.max(1, Math.round(bitmap.height * Math.min(1, scale)));
  const pen = canvas.getContext("2d");
  pen.fillStyle = "#fff"; // transparent areas would become black
  pen.fillRect(0, 0, canvas.width, canvas.height);
  pen.imageSmoothingQuality = "high";
  pen.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  return new Promise((resolve) => { canvas.toBlob((made) => resolve(made ?? file), "image/jpeg", 0.9); });
}
