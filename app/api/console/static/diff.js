// The difference of two texts, line by line.
import { h } from "./dom.js";

// Longer texts take too long to compare; their lines are all shown as changed.
const CELLS_MAX = 4_000_000;

// Returns [sign, line] pairs: " " for lines of both texts, "-" for those of `before` and "+" for those of `after` alone.
export function difference(before, after) {
  const [old, now] = [before.split("\n"), after.split("\n")];
  let start = 0;
  while (start < old.length && start < now.length && old[start] === now[start]) start += 1;
  let end = 0;
  while (end < old.length - start && end < now.length - start && old[old.length - 1 - end] === now[now.length - 1 - end]) end += 1;
  const [left, right] = [old.slice(start, old.length - end), now.slice(start, now.length - end)];
  const same = (lines) => lines.map((line) => [" ", line]);
  return [...same(old.slice(0, start)), ...changes(left, right), ...same(old.slice(old.length - end))];
}

function changes(left, right) {
  const signed = (sign, lines) => lines.map((line) => [sign, line]);
  const width = right.length + 1;
  if ((left.length + 1) * width > CELLS_MAX) return [...signed("-", left), ...signed("+", right)];
  // The length of the longest common subsequence of what follows two positions.
  const lengths = new Uint32Array((left.length + 1) * width);
  for (let i = left.length - 1; i >= 0; i -= 1) {
    for (let j = right.length - 1; j >= 0; j -= 1) {
      lengths[i * width + j] = left[i] === right[j]
        ? lengths[(i + 1) * width + j + 1] + 1 : Math.max(lengths[(i + 1) * width + j], lengths[i * width + j + 1]);
    }
  }
  const found = [];
  let [i, j] = [0, 0];
  while (i < left.length && j < right.length) {
    if (left[i] === right[j]) {
      found.push([" ", left[i]]);
      i += 1;
      j += 1;
    } else if (lengths[(i + 1) * width + j] >= lengths[i * width + j + 1]) {
      found.push(["-", left[i]]);
      i += 1;
    } else {
      found.push(["+", right[j]]);
      j += 1;
    }
  }
  return [...found, ...signed("-", left.slice(i)), ...signed("+", right.slice(j))];
}

const ELEMENTS = { " ": "span", "-": "del", "+": "ins" };

export const shownDifference = (before, after) =>
  difference(before, after).map(([sign, line]) => h(ELEMENTS[sign], null, `${sign} ${line}\n`));
