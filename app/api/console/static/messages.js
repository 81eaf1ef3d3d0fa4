import { brief, byId, bytes, copy, count, h, notice, show } from "./dom.js";
import { curl, lines, part, query, request } from "./api.js";
import { RECORD_HEADS, recordRow } from "./record.js";
import { suggestTopics } from "./topic-input.js";
import * as url from "./url.js";

// Bytes of each part of a record in a row; an opened one asks for more.
const PREVIEW = 2000;
const TAIL_ROWS_MAX = 500;
// Nobody reads faster; the broker leaves out what is more, and says how much.
const TAIL_PER_S = 200;
const SELECTED_MAX = 100;
const NAMES = ["topic", "start", "offset", "time", "ago", "partitions", "key", "value", "header", "json", "limit"];

const form = byId("ask");
const fields = Object.fromEntries(NAMES.map((name) => [name, form.elements[name]]));
const body = h("tbody");
const results = h("table", null, h("caption", { class: "soft" }, "Records"),
  h("thead", null, h("tr", null, RECORD_HEADS.map((one) => h("th", { scope: "col", class: one.startsWith("#") ? "num" : null }, one.replace("#", "") || h("span", { class: "fine" }, "")))) ), body);

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
// What was asked last, and what of it was not looked at.
let asked = {};
let rest = "";

function values() {
  const found = {};
  for (const name of NAMES) found[name] = fields[name].value.trim();
  return found;
}

// Which inputs a start needs; the others are not in the way.
function shape() {
  for (const name of ["offset", "time", "ago"]) {
    const isWanted = fields.start.value === name;
    byId(`${name}-field`).hidden = !isWanted;
    fields[name].disabled = !isWanted;
    fields[name].required = isWanted;
  }
}

function where(asked) {
  const common = { partitions: asked.partitions, key: asked.key, value: asked.value, header: asked.header, json: asked.json };
  const start = {
    newest: { order: "newest" },
    oldest: { from: "earliest" },
    offset: { from: asked.offset },
    time: { from: asked.time && new Date(asked.time).toISOString() },
    ago: { from: asked.ago && `-${asked.ago}` },
  }[asked.start] ?? { order: "newest" };
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
  const left = now.too_large ? `, ${count(now.too_large)} too large to look into` : "";
  byId("status").textContent = `${count(now.matched)} found · ${count(now.offsets)} of ${count(now.of)} looked at · ${bytes(now.bytes)} read${left}`;
}

const ENDINGS = {
  limit: "the limit is reached",
  end: "all of it was looked at",
  stopped: "stopped",
  failed: "failed",
};

async function run({ ranges } = {}) {
  stop();
  if (!ranges) asked = values();
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
  const limit = asked.limit || 50;
  const path = searchPath(asked.topic, { ...where(asked), limit, preview: PREVIEW });
  // Where to go on may be more than fits into an address.
  const [method, given] = ranges ? ["POST", { ranges }] : ["GET"];
  try {
    for await (const line of lines(method, path, { signal: mine.signal, body: given })) {
      if (line.record) body.append(recordRow(asked.topic, line.record, selection));
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
  if (!body.children.length) show(byId("results"), h("p", { class: "empty" }, "Nothing was found."));
  if (end.errors.length) notice(end.errors.map((error) => error.detail).join(" "), { warn: true });
}

function tail() {
  stop();
  asked = values();
  const { key, value, header, json } = asked;
  const path = `/v1/topics/${part(asked.topic)}/records${query({ key, value, header, json, preview: PREVIEW, max_per_s: TAIL_PER_S })}`;
  const source = new EventSource(path);
  const only = asked.partitions && new Set(asked.partitions.split(",").map(Number));
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
    const rows = waiting.map((record) => recordRow(asked.topic, record, selection)).reverse();
    waiting = [];
    body.prepend(...rows);
    const records = body.querySelectorAll("tr.record");
    for (let place = TAIL_ROWS_MAX; place < records.length; place += 1) {
      const below = records[place].nextElementSibling;
      if (below?.classList.contains("detail")) below.remove();
      records[place].remove();
    }
    const left = dropped ? `, ${brief(dropped)} came faster than they can be shown` : "";
    byId("status").textContent = `Live: ${count(seen)} records, the newest first${left}`;
  };
  source.addEventListener("message", (event) => {
    const record = JSON.parse(event.data);
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
      refusal(path).then(notice);
    } else byId("status").textContent = "The connection was lost; trying again…";
  });
}

// Why a tail was refused: an EventSource does not tell.
async function refusal(path) {
  const asking = new AbortController();
  try {
    await request("GET", path, { signal: asking.signal, headers: { Accept: "text/event-stream" } });
    return "The tail ended; begin it again.";
  } catch (problem) {
    return problem.message;
  } finally {
    asking.abort();
  }
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
  return searchPath(now.topic, { ...where(now), format });
}

form.addEventListener("submit", (event) => { event.preventDefault(); submit("go"); });
byId("tail").addEventListener("click", () => submit("live"));
byId("stop").addEventListener("click", () => {
  const said = byId("status").textContent;
  stop();
  byId("status").textContent = `Stopped. ${said}`;
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
  const given = url.read();
  for (const name of NAMES) fields[name].value = given[name] ?? (name === "start" ? "newest" : "");
  if (!fields.start.value) fields.start.value = "newest";
  shape();
  // Nothing is asked of the broker before the question is complete.
  if (!given.topic) fields.topic.focus();
  else if (given.live) tail();
  else if (given.go) run();
}

suggestTopics(fields.topic, byId("topics"));
window.addEventListener("popstate", load);
window.addEventListener("pagehide", stop);
load();
