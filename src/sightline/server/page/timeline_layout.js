// Where the tiles of a timeline are: squares in rows, under a heading for each month. All positions are computed from
// the number of items in each month, before any item is loaded.

const HEADING = 48; // pixels for the heading above the first row of a month

/** Lay out months ({ month, items }, in order) in a width. side: approximate width of a tile. gap: space between tiles.
 */
export function layOut(months, width, { side, gap }) {
  const columns = Math.max(2, Math.round((width + gap) / (side + gap)));
  const own = (width + gap) / columns - gap;
  const step = own + gap;
  const sections = [];
  let [top, first] = [0, 0];
  for (const { month, items } of months) {
    const height = HEADING + Math.ceil(items / columns) * step;
    sections.push({ month, first, items, top, height });
    top += height;
    first += items;
  }
  const at = (place) => sections[sectionAt(sections, (one) => one.first <= place)];

  return {
    sections,
    width,
    height: top,
    /** The box of the tile at a position. */
    box(place) {
      const section = at(place);
      const within = place - section.first;
      const row = Math.floor(within / columns);
      return { left: (within % columns) * step, top: section.top + HEADING + row * step, side: own };
    },
    /** The range of positions with tiles between two heights: the first, and the one after the last. */
    between(from, to) {
      if (!sections.length) return [0, 0];
      const start = sections[sectionAt(sections, (one) => one.top <= from)];
      const end = sections[sectionAt(sections, (one) => one.top <= to)];
      const row = (section, height) => Math.floor((height - section.top - HEADING) / step);
      const low = start.first + Math.min(start.items, Math.max(0, row(start, from)) * columns);
      const high = end.first + Math.min(end.items, Math.max(0, row(end, to) + 1) * columns);
      return [low, Math.max(low, high)];
    },
    /** The position that a key leads to; undefined for other keys. */
    neighbour(place, key, total) {
      const section = at(place);
      const column = (place - section.first) % columns;
      const next = {
        ArrowLeft: () => place - 1,
        ArrowRight: () => place + 1,
        ArrowUp: () => (place - columns >= section.first ? place - columns : lastRow(sections, section, column, columns)),
        ArrowDown: () => below(sections, section, place, column, columns),
        Home: () => 0,
        End: () => total - 1,
      }[key]?.();
      return next === undefined || next < 0 || next >= total ? undefined : next;
    },
  };
}

/** The last section for which a condition holds, as it must for all before it; the first if it holds for none. */
function sectionAt(sections, holds) {
  let [low, high] = [0, sections.length - 1];
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (holds(sections[middle])) low = middle;
    else high = middle - 1;
  }
  return low;
}

function lastRow(sections, section, column, columns) {
  const above = sections[sections.indexOf(section) - 1];
  if (!above) return undefined;
  const start = above.first + Math.floor((above.items - 1) / columns) * columns;
  return Math.min(start + column, above.first + above.items - 1);
}

function below(sections, section, place, column, columns) {
  const end = section.first + section.items;
  if (place + columns < end) return place + columns;
  const isLastRow = Math.floor((place - section.first) / columns) === Math.floor((section.items - 1) / columns);
  if (!isLastRow) return end - 1;
  const next = sections[sections.indexOf(section) + 1];
  return next ? next.first + Math.min(column, next.items - 1) : undefined;
}
