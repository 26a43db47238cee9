// Draw where in a picture a word was found: its cosines with the parts of the picture, as a smooth glow over the dimmed
// picture. The maximum brightness shows how strong the word is compared with the strongest word of the query.
//
// Some parts resemble every word, simply because they show something. So half of the words' mean is subtracted from
// each: of 22 words for things at known places in the demo's pictures, 21 are then brightest at the right place;
// without this, 16 are.

const SIDE = 224;
const COMMON = 0.5;
const RAMP = [ // heat, and its colour and opacity
  [0, [10, 8, 18, 0.58]],
  [0.3, [92, 22, 48, 0.52]],
  [0.65, [232, 88, 30, 0.46]],
  [1, [255, 218, 100, 0.5]],
];

/** Draw one word of an explanation on a canvas that covers the whole picture. */
export function draw(canvas, explanation, word, ratio) {
  canvas.width = Math.round(ratio >= 1 ? SIDE : SIDE * ratio);
  canvas.height = Math.round(ratio >= 1 ? SIDE / ratio : SIDE);
  const pen = canvas.getContext("2d", { willReadFrequently: true }); // drawn pixel by pixel, so not on a GPU
  const pixels = pen.createImageData(canvas.width, canvas.height);
  const heat = heatOf(explanation, word);
  for (let y = 0, at = 0; y < canvas.height; y += 1) {
    for (let x = 0; x < canvas.width; x += 1, at += 4) {
      const [red, green, blue, opacity] = colour(heat((x + 0.5) / canvas.width, (y + 0.5) / canvas.height));
      pixels.data.set([red, green, blue, opacity * 255], at);
    }
  }
  pen.putImageData(pixels, 0, 0);
}

/** How strong a word is compared with the strongest word of its query, 0 to 1. */
export function strength(explanation, word) {
  const best = Math.max(...explanation.words.map((other) => other.score));
  return best > 0 ? Math.max(0, word.score) / best : 0;
}

/** A function that returns the heat, 0 to 1, at a point given as fractions of the picture's width and height.
 *
 * The heat is 0 at the median of the word's values and below, and largest at their maximum. Outside the box that the
 * model saw, it is 0.
 */
export function heatOf(explanation, word) {
  const { rows, columns, box } = explanation;
  const grid = ownGrid(explanation, word);
  const sorted = grid.flat().sort((one, other) => one - other);
  const middle = sorted[sorted.length >> 1];
  const span = sorted.at(-1) - middle;
  const most = 0.35 + 0.65 * strength(explanation, word);
  return (x, y) => {
    const across = (x - box.left) / (box.right - box.left);
    const down = (y - box.top) / (box.bottom - box.top);
    if (across < 0 || across > 1 || down < 0 || down > 1 || span <= 0) return 0;
    const cosine = smooth(grid, down * rows - 0.5, across * columns - 0.5, rows, columns);
    return most * Math.min(1, Math.max(0, (cosine - middle) / span));
  };
}

/** A word's cosines, minus half the mean over all words. */
export function ownGrid({ words, rows, columns }, word) {
  const mean = (row, column) => words.reduce((sum, other) => sum + other.grid[row][column], 0) / words.length;
  return Array.from({ length: rows }, (_, row) =>
    Array.from({ length: columns }, (__, column) => word.grid[row][column] - COMMON * mean(row, column)));
}

/** Interpolate a grid with Catmull-Rom splines in both directions. */
function smooth(grid, row, column, rows, columns) {
  const top = Math.floor(row);
  const left = Math.floor(column);
  const lines = [-1, 0, 1, 2].map((step) => {
    const line = grid[within(top + step, rows)];
    return spline([-1, 0, 1, 2].map((side) => line[within(left + side, columns)]), column - left);
  });
  return spline(lines, row - top);
}

const within = (place, count) => Math.min(count - 1, Math.max(0, place));

function spline([before, from, to, after], t) {
  return from + (t / 2) * (to - before + t * (2 * before - 5 * from + 4 * to - after
    + t * (3 * (from - to) + after - before)));
}

function colour(heat) {
  const next = Math.max(1, RAMP.findIndex(([at]) => at >= heat));
  const [low, from] = RAMP[next - 1];
  const [high, to] = RAMP[next];
  const share = (heat - low) / (high - low);
  return from.map((value, place) => value + share * (to[place] - value));
}
