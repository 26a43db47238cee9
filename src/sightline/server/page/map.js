// Where a photo was taken, on a sketch of the world. Nothing is loaded from other sites: the continents are drawn here.

import { byId } from "./dom.js";

const SVG = "http://www.w3.org/2000/svg";
// Rough outlines: the longitude and latitude of a few points on each coast.
const LAND = [
  [-168, 66, -156, 71, -128, 70, -95, 72, -82, 73, -64, 60, -56, 52, -66, 44, -76, 35, -81, 26, -84, 30, -97, 27, -97, 20, -88, 21, -83, 10, -78, 8, -86, 12, -105, 20, -114, 30, -124, 40, -125, 49, -140, 59, -160, 56],
  [-78, 8, -72, 12, -60, 9, -50, 0, -35, -6, -39, -18, -48, -27, -58, -36, -66, -46, -69, -54, -74, -50, -73, -36, -70, -18, -81, -5],
  [-56, 82, -25, 82, -20, 72, -42, 60, -54, 67, -70, 77],
  [-10, 36, -9, 43, -2, 44, -4, 48, 4, 52, 8, 57, 12, 54, 20, 55, 22, 60, 30, 60, 24, 66, 18, 60, 12, 58, 5, 60, 14, 68, 28, 71, 44, 67, 68, 69, 80, 73, 105, 78, 140, 73, 180, 68, 178, 63, 162, 56, 156, 51, 150, 59, 136, 54, 140, 47, 128, 40, 122, 39, 122, 30, 110, 20, 106, 10, 100, 13, 103, 2, 98, 10, 92, 22, 80, 14, 77, 8, 72, 20, 58, 25, 56, 18, 44, 12, 35, 28, 36, 36, 27, 37, 23, 37, 19, 42, 13, 45, 18, 40, 15, 38, 8, 44, 0, 39, -5, 36],
  [-17, 15, -10, 30, -6, 36, 10, 37, 20, 31, 32, 31, 37, 20, 43, 11, 51, 12, 40, -4, 40, -16, 33, -27, 26, -34, 18, -34, 12, -18, 9, 0, 8, 5, -8, 4],
  [114, -22, 122, -18, 131, -12, 136, -12, 142, -11, 146, -19, 153, -27, 150, -37, 144, -39, 138, -34, 130, -32, 116, -35],
  [-6, 50, 1, 51, -2, 56, -5, 58], [-24, 65, -14, 66, -18, 63], [130, 32, 136, 34, 141, 36, 142, 43, 140, 41, 136, 36],
  [44, -25, 47, -25, 50, -15, 44, -17], [95, 5, 106, -6, 100, 0], [109, 1, 117, 6, 118, 0, 115, -4], [131, -1, 150, -6, 147, -9, 138, -8],
  [167, -46, 174, -41, 178, -38, 173, -35, 173, -40], [-180, -78, -120, -74, -60, -72, -20, -73, 40, -68, 110, -66, 160, -72, 180, -78, 180, -90, -180, -90],
];

/** Show a place ({ latitude, longitude }); without one, hide the sketch. */
export function showPlace(place) {
  byId("map").hidden = !place;
  if (!place) return;
  const { latitude, longitude } = place;
  const sketch = byId("map-sketch");
  const lines = [-60, -30, 0, 30, 60].map((at) => line(-180, at, 180, at));
  lines.push(...[-120, -60, 0, 60, 120].map((at) => line(at, -90, at, 90)));
  const land = LAND.map((points) => shape("polygon", { class: "land", points: points.map((at, place) => (place % 2 ? -at : at)).join(" ") }));
  const marks = [shape("circle", { class: "ring", cx: longitude, cy: -latitude, r: 9 }), shape("circle", { class: "mark", cx: longitude, cy: -latitude, r: 3.5 })];
  sketch.replaceChildren(...lines, ...land, ...marks);
  const words = `${degrees(latitude, "N", "S")}, ${degrees(longitude, "E", "W")}`;
  sketch.setAttribute("aria-label", `Taken at ${words}`);
  byId("map-place").textContent = words;
}

const degrees = (value, positive, negative) => `${Math.abs(value).toFixed(4)}° ${value < 0 ? negative : positive}`;
const line = (x1, y1, x2, y2) => shape("line", { x1, y1, x2, y2 });

function shape(name, attributes) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}
