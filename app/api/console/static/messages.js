import { brief, byId, bytes, copy, count, enable, h, notice, show } from "./dom.js";
import { curl, lines, part, query, refusal } from "./api.js";
import { parsedRecord } from "./json-text.js";
import { RECORD_HEADS, recordRow } from "./record.js";
import { suggestTopics } from "./topic-input.js";
import * as url from "./url.js";

// Bytes of each part of a record in a row; opening the record fetches more.
const PREVIEW = 2000;
const TAIL_ROWS_MAX = 500;
// People cannot read faster; the broker skips further records and reports their number.
const TAIL_PER_S = 200;
const SELECTED_MAX = 100;
const NAMES = ["topic", "start", "offset", "time", "ago", "partitions", "key", "value", "header", "json", "limit"];

const form = byId("ask");
const fields = Object.fromEntries(NAMES.map((name) => [name, form.elements[name]]));
const body = h("tbody");
const results = h("table", null, h("caption", { class: "soft" }, "Records"),
  h("thead", null, h("tr", null, RECORD_HEADS.map((head) => h("th", { scope: "col", class: head.startsWith("#") ? "num" : null }, head.replace("#", "") || h("span", { class: "fine" }, "")))) ), body);

const selection = {
  ids: new Set(),
  has(id) { return this.ids.has(id); },
  toggle(id, isChosen) {
    if (isChosen && this.ids.size < SELECTED_MAX) this.ids.add(id);
    else this.ids.delete(id);
    const link = byId("resend");
    link.hidden = !this.ids.size;
    link.textContent = `Send ${this.ids.size} again…`;
    link.href = `/console/produce${query({ topic: fields.topic.value.trim(), replay: [...this.ids].join(",") })}`;
  },
};

let running = null;
// The conditions of the last search or tail, and the ranges that it has not scanned.
let current = {};
let rest = "";

function values() {
  const entered = {};
  for (const name of NAMES) entered[name] = fields[name].value.trim();
  return entered;
}

// Shows only the inputs that the chosen start needs.
function shape() {
  for (const name of ["offset", "time", "ago"]) {
    const isWanted = fields.start.value === name;
    byId(`${name}-field`).hidden = !isWanted;
    fields[name].disabled = !isWanted;
    fields[name].required = isWanted;
  }
}

function where(chosen) {
  const common = { partitions: chosen.partitions, key: chosen.key, value: chosen.value, header: chosen.header, json: chosen.json };
  const start = {
    newest: { order: "newest" },
    oldest: { from: "earliest" },
    offset: { from: chosen.offset },
    time: { from: chosen.time && new Date(chosen.time).toISOString() },
    ago: { from: chosen.ago && `-${chosen.ago}` },
  }[chosen.start] ?? { order: "newest" };
  return { ...common, ...start };
}

const searchPath = (topic, more) => `/v1/topics/${part(topic)}/search${query(more)}`;

function busy(kind) {
  byId("stop").hidden = !kind;
  byId("search").disabled = Boolean(kind);
  byId("tail").disabled = Boolean(kind);
  byId("progress").hidden = kind !== "search";
  byId("results").setAttribute("aria-busy", String(Boolean(kind)));
}

function progressed(now) {
  const bar = byId("progress");
  bar.max = Math.max(now.of, 1);
  bar.value = now.offsets;
  const left = now.too_large ? `, ${count(now.too_large)} too large for JSON conditions` : "";
  byId("status").textContent = `${count(now.matched)} found · ${count(now.offsets)} of ${count(now.of)} scanned · ${bytes(now.bytes)} read${left}`;
}

const ENDINGS = {
  limit: "limit reached",
  end: "all records scanned",
  stopped: "stopped",
  failed: "failed",
};

async function run({ ranges } = {}) {
  stop();
  if (!ranges) current = values();
  const mine = new AbortController();
  running = mine;
  busy("search");
  notice("");
  byId("more").hidden = true;
  if (!ranges) {
    show(body);
    selection.ids.clear();
    selection.toggle("", false);
  }
  show(byId("results"), results);
  const limit = current.limit || 50;
  const { from, partitions, ...conditions } = where(current);
  const path = searchPath(current.topic, { ...conditions, ...(ranges ? {} : { from, partitions }), limit, preview: PREVIEW });
  // The ranges to continue with may be too long for a URL.
  const [method, content] = ranges ? ["POST", { ranges }] : ["GET"];
  try {
    for await (const line of lines(method, path, { signal: mine.signal, body: content })) {
      if (line.record) body.append(recordRow(current.topic, line.record, selection));
      else if (line.progress) progressed(line.progress);
      else if (line.end) ended(line.end);
    }
  } catch (problem) {
    if (problem.name !== "AbortError") notice(problem.message);
  } finally {
    if (running === mine) {
      running = null;
      busy("");
    }
  }
}

function ended(end) {
  progressed(end);
  byId("status").textContent += ` · ${ENDINGS[end.reason]}`;
  rest = end.ranges;
  byId("more").hidden = !(end.reason === "limit" && rest);
  if (!body.children.length) show(byId("results"), h("p", { class: "empty" }, "No matching records."));
  if (end.errors.length) notice(end.errors.map((error) => error.detail).join(" "), { warn: true });
}

function tail() {
  stop();
  current = values();
  const { key, value, header, json } = current;
  const path = `/v1/topics/${part(current.topic)}/records${query({ key, value, header, json, preview: PREVIEW, max_per_s: TAIL_PER_S })}`;
  const source = new EventSource(path);
  const only = current.partitions && new Set(current.partitions.split(",").map(Number));
  let waiting = [];
  let seen = 0;
  let dropped = 0;
  let frame = 0;
  running = { abort() { source.close(); cancelAnimationFrame(frame); } };
  busy("tail");
  notice("");
  byId("more").hidden = true;
  show(body);
  show(byId("results"), results);
  byId("status").textContent = "Connecting…";
  source.addEventListener("open", () => { if (!seen) byId("status").textContent = "Live: waiting for records"; });
  const draw = () => {
    frame = 0;
    const rows = waiting.map((record) => recordRow(current.topic, record, selection)).reverse();
    waiting = [];
    body.prepend(...rows);
    const records = body.querySelectorAll("tr.record");
    for (let index = TAIL_ROWS_MAX; index < records.length; index += 1) {
      const below = records[index].nextElementSibling;
      if (below?.classList.contains("detail")) below.remove();
      records[index].remove();
    }
    const left = dropped ? `, ${brief(dropped)} skipped because they arrived too fast` : "";
    byId("status").textContent = `Live: ${count(seen)} records, newest first${left}`;
  };
  source.addEventListener("message", (event) => {
    const record = parsedRecord(event.data);
    if (only && !only.has(record.partition)) return;
    seen += 1;
    waiting.push(record);
    if (waiting.length > TAIL_ROWS_MAX) { waiting.shift(); dropped += 1; }
    if (!frame) frame = requestAnimationFrame(draw);
  });
  source.addEventListener("skipped", (event) => { dropped += JSON.parse(event.data).records; });
  source.addEventListener("error", (event) => {
    if (event.data) notice(JSON.parse(event.data).detail, { warn: true });
    else if (source.readyState === EventSource.CLOSED) {
      stop();
      refusal(path).then((problem) => notice(problem?.message ?? "The tail has ended; start it again."));
    } else byId("status").textContent = "Connection lost, reconnecting…";
  });
}

function stop() {
  running?.abort();
  running = null;
  busy("");
}

function submit(mode) {
  shape();
  if (!form.reportValidity()) return;
  url.write({ ...values(), [mode]: 1 }, { push: true });
  if (mode === "live") tail();
  else run();
}

function exportPath(format) {
  const now = values();
  // Lines of NDJSON can be produced again, byte for byte; a spreadsheet shows what schemas say.
  return searchPath(now.topic, { ...where(now), format, decode: format === "ndjson" ? "raw" : "" });
}

form.addEventListener("submit", (event) => { event.preventDefault(); submit("go"); });
byId("tail").addEventListener("click", () => submit("live"));
byId("stop").addEventListener("click", () => {
  const progress = byId("status").textContent;
  stop();
  byId("status").textContent = `Stopped. ${progress}`;
  byId("search").focus();
});
byId("more").addEventListener("click", () => run({ ranges: rest }));
fields.start.addEventListener("change", shape);
byId("curl").addEventListener("click", () => {
  if (form.reportValidity()) copy(curl(searchPath(values().topic, { ...where(values()), limit: values().limit })));
});
for (const format of ["ndjson", "csv"]) {
  byId(format).addEventListener("click", () => {
    if (form.reportValidity()) h("a", { href: exportPath(format), download: `${values().topic}.${format}` }).click();
  });
}

function load() {
  stop();
  const saved = url.read();
  for (const name of NAMES) fields[name].value = saved[name] ?? (name === "start" ? "newest" : "");
  if (!fields.start.value) fields.start.value = "newest";
  shape();
  // No request is sent before the form is complete.
  if (!saved.topic) fields.topic.focus();
  else if (saved.live) tail();
  else if (saved.go) run();
}

suggestTopics(fields.topic, byId("topics"));
window.addEventListener("popstate", load);
window.addEventListener("pagehide", stop);
enable("curl", "ndjson", "csv");
// Enables the buttons that start a search or a tail.
load();
