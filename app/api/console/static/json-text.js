// JSON as it was written, because JSON.parse loses digits of large numbers and repeated members.
import { h } from "./dom.js";

// Tokens of JSON: strings, punctuation, and everything else, such as numbers.
const TOKENS = /"[^"\\]*(?:\\.[^"\\]*)*"|[{}[\],:]|[^\s{}[\],:"]+/g;
const DEPTH_MAX = 100;

// Indents JSON and keeps every token. Throws if the text is not JSON or is nested too deep.
export function indented(text) {
  JSON.parse(text);
  const parts = [];
  let depth = 0;
  let before = "";
  const turn = () => parts.push("\n", "  ".repeat(depth));
  for (const [token] of text.matchAll(TOKENS)) {
    const isEnd = token === "}" || token === "]";
    if (isEnd) depth -= 1;
    const isEmpty = isEnd && (before === "{" || before === "[");
    if ((isEnd && !isEmpty) || before === "," || (!isEnd && (before === "{" || before === "["))) turn();
    parts.push(token === ":" ? ": " : token);
    if (token === "{" || token === "[") depth += 1;
    if (depth > DEPTH_MAX) throw new RangeError("nested too deep to indent");
    before = token;
  }
  return parts.join("");
}

const LONG_INTEGER = /[0-9]{16}/;
// A number that JSON.stringify writes with the digits that it came with.
const exact = (_, value, context) =>
  (typeof value === "number" && Math.abs(value) > Number.MAX_SAFE_INTEGER && context && JSON.rawJSON ? JSON.rawJSON(context.source) : value);
const digits = (value) => value?.rawJSON;

// Parses a record of an answer, or a line with one. Integers within keys and values keep their digits, if the browser can.
export function parsedRecord(text) {
  if (!LONG_INTEGER.test(text)) return JSON.parse(text);
  const found = JSON.parse(text, exact);
  const record = found.record ?? found;
  for (const name of ["offset", "timestamp"]) if (digits(record[name])) record[name] = Number(digits(record[name]));
  return found;
}

// Nodes of a tree that are shown; the whole value is JSON beside it.
const NODES_MAX = 2000;

// Shows a parsed JSON value as a tree of its members.
export function tree(value) {
  let left = NODES_MAX;
  const leaf = (item) => h("span", { class: "mono" }, item === null ? h("span", { class: "chip plain" }, "null") : digits(item) ?? (typeof item === "string" ? item : JSON.stringify(item)));
  const named = (name) => h("span", { class: "soft mono" }, name);
  function node(name, item) {
    left -= 1;
    if (item === null || typeof item !== "object" || digits(item)) return h("li", null, name !== null && [named(name), ": "], leaf(item));
    const members = Array.isArray(item) ? item.map((member, index) => [String(index), member]) : Object.entries(item);
    const size = Array.isArray(item) ? `[${members.length}]` : `{${members.length}}`;
    const items = [];
    for (const [key, member] of members) {
      if (left <= 0) {
        items.push(h("li", { class: "soft" }, "… JSON has all of it"));
        break;
      }
      items.push(node(key, member));
    }
    const list = h("ul", null, items);
    return name === null ? h("li", null, list) : h("li", null, h("details", { open: true }, h("summary", null, named(name), " ", h("span", { class: "fine" }, size)), list));
  }
  return h("ul", { class: "tree" }, node(null, value));
}
