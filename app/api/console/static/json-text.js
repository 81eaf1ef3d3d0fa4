// JSON as it was written, because JSON.parse loses digits of large numbers and repeated members.

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
