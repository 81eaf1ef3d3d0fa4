import { byId, bytes, count, every, h, notice, show, table, time, toast } from "./dom.js";
import { get, lines, part, query, send } from "./api.js";
import { ask } from "./dialog.js";

const TONES = { streaming: "chip", standby: "chip plain", stopped: "chip bad", failed: "chip bad", gap: "chip bad" };
// Schema changes that are listed.
const NEWEST = 20;
const view = byId("view");
const mayChange = view && "changes" in view.dataset;
const topicOf = (connector, name) => `${connector.prefix}.${name}`.replace(/[^A-Za-z0-9._-]/g, "_").slice(0, 249);
const topicLink = (topic, text) => h("a", { href: `/console/topics${query({ topic })}` }, text);
const chip = (word) => h("span", { class: TONES[word] ?? "chip warn" }, word);
let changes = [];

// ── what the connector is asked to do ──

async function request(title, text, { button, danger, fields = [], body }) {
  const done = await ask(title, [text && h("p", null, text), fields], { button, danger, work: (form) => send("POST", "/v1/cdc", body(form.elements)) });
  if (done !== undefined) { toast(`Requested: ${done.action} ${done.tables.join(", ")}`); await refresh(); }
}

const names = (text) => text.split(/[\s,]+/).filter(Boolean);
const add = () => request("Add tables", "The connector adds them to its publication and copies them while changes stream.", {
  button: "Add",
  fields: h("label", null, "Tables: SCHEMA.TABLE, separated by commas", h("input", { name: "tables", required: true, autocomplete: "off", spellcheck: "false", placeholder: "public.orders" })),
  body: ({ tables }) => ({ action: "add", tables: names(tables.value) }),
});
const drop = (name) => request("Drop the table", `The connector stops to follow ${name}. Its topic stays; a table that is added again is copied again.`, {
  button: "Drop", danger: true, body: () => ({ action: "drop", tables: [name] }),
});
const copy = (name) => request("Copy the table", `The rows of ${name} are written once more, with the operation r, while changes stream.`, {
  button: "Copy",
  fields: h("label", null, "Only rows for which this condition in SQL holds; empty stands for all", h("input", { name: "where", autocomplete: "off", spellcheck: "false", maxlength: 4096, placeholder: "price > 100" })),
  body: ({ where }) => ({ action: "copy", tables: [name], where: where.value.trim() }),
});

// ── one connector ──

function progress({ copied, expected, is_copying: isCopying }) {
  const share = isCopying && expected ? Math.min(1, copied / expected) : null;
  return [count(copied), isCopying && expected > 0 && ` of about ${count(expected)}`, share !== null && h("progress", { max: 1, value: String(share), "aria-label": "Copied" })];
}

function tableRow(connector, [name, one]) {
  const button = (label, work, attributes) => h("button", { type: "button", "aria-label": `${label} ${name}`, onclick: () => work(name), ...attributes }, `${label}…`);
  return h("tr", { "data-table": name },
    h("td", null, topicLink(topicOf(connector, name), name)), h("td", null, one.is_copying ? h("span", { class: "chip warn" }, "copying") : chip(connector.state)),
    h("td", { class: "num" }, progress(one)), h("td", { class: "num" }, count(one.changes)),
    mayChange && h("td", { class: "num" }, h("div", { class: "row end" }, button("Copy", copy), button("Drop", drop, { class: "danger" }))));
}

// What a schema change did: columns by name, with their types.
function difference({ before, after }) {
  if (before === null) return after.map(({ name, type }) => `${name} ${type}`).join(", ");
  const had = new Map(before.map((column) => [column.name, column]));
  const has = new Map(after.map((column) => [column.name, column]));
  return [
    ...after.filter(({ name }) => !had.has(name)).map(({ name, type }) => `+ ${name} ${type}`),
    ...before.filter(({ name }) => !has.has(name)).map(({ name }) => `− ${name}`),
    ...after.filter(({ name, type }) => had.has(name) && had.get(name).type !== type).map(({ name, type }) => `${name} ${had.get(name).type} → ${type}`),
    ...after.filter(({ name, key }) => had.has(name) && had.get(name).key !== key).map(({ name, key }) => `${name} ${key ? "is in the key" : "has left the key"}`),
  ].join(", ");
}

const changeRow = ({ table: name, before, after, source }) => h("tr", null,
  h("td", null, time(source.ts_ms)), h("td", null, name), h("td", null, before === null ? "first followed" : "altered"), h("td", { class: "mono" }, difference({ before, after })));

function connectorView(connector) {
  const tile = (label, ...value) => h("div", { class: "tile" }, h("dt", null, label), h("dd", null, value));
  const tables = Object.entries(connector.tables ?? {});
  const refused = Object.entries(connector.refused_tables ?? {});
  return [
    h("dl", { class: "tiles" }, tile("State", chip(connector.state)), tile("Lag", bytes(connector.lag_bytes), " ", h("small", null, "of WAL")),
      tile("Kept by the slot", bytes(connector.retained_bytes), " ", h("small", null, "of WAL")), tile("Records", count(connector.events)),
      tile("Last commit", connector.commit_ms ? time(connector.commit_ms).slice(0, 19) : "–"), tile("Restarts", count(connector.restarts))),
    connector.last_error && h("p", { class: ["failed", "gap"].includes(connector.state) ? "notice" : "notice warn" }, connector.last_error),
    connector.exceeds_max_lag && h("p", { class: "notice warn" }, "The slot holds back more WAL than the limit."),
    connector.wal_status && !["reserved", "extended"].includes(connector.wal_status) && h("p", { class: "notice" }, `PostgreSQL is about to remove WAL that the slot needs: it is ${connector.wal_status}.`),
    h("section", { class: "card", "aria-label": "Tables" },
      table(tables.length === 1 ? "1 table" : `${count(tables.length)} tables`, ["Table", "State", "#Copied", "#Changes", ...(mayChange ? [""] : [])], tables.map((entry) => tableRow(connector, entry)), "No table is followed yet."),
      refused.length > 0 && [h("h2", null, "Requested, and cannot be followed"), h("ul", { class: "plain" }, refused.map(([name, reason]) => h("li", null, `${name}: ${reason}`)))]),
    h("section", { class: "card", "aria-label": "Schema changes" }, table("Schema changes", ["Time", "Table", "Change", "Columns"], changes.map(changeRow), "No schema change is known.")),
    h("section", { class: "card", "aria-label": "Places" }, h("dl", { class: "pairs" },
      [["Database", connector.database ?? "–"], ["Slot", connector.slot], ["Confirmed", connector.confirmed_lsn ?? "–"], ["Prefix of topics", connector.prefix]].map(([name, value]) => [h("dt", null, name), h("dd", { class: "mono" }, value)]))),
  ];
}

async function readChanges(connector) {
  const topic = topicOf(connector, "schema-changes");
  const found = [];
  // It is created with the first one.
  const { topics } = await get(`/v1/topics${query({ prefix: topic, limit: 1 })}`);
  if (topics.some(({ name }) => name === topic)) {
    for await (const record of lines("GET", `/v1/topics/${part(topic)}/search${query({ order: "newest", limit: NEWEST, format: "ndjson" })}`)) found.push(record.value);
  }
  changes = found.map((value) => (typeof value === "string" ? JSON.parse(value) : value));
}

let turn = 0;
let known = "";
async function refresh() {
  const mine = ++turn;
  try {
    const { connectors } = await get("/v1/cdc");
    const [connector] = connectors;
    // Read again when there may be more of them.
    const key = JSON.stringify([connector?.state, Object.keys(connector?.tables ?? {}), connector?.transactions]);
    if (connector && key !== known) { await readChanges(connector); known = key; }
    if (mine !== turn) return;
    show(view, connector ? connectorView(connector) : h("p", { class: "empty" }, "This broker runs no connector. Set STELE_CDC_DSN and STELE_CDC_TABLES to follow tables of PostgreSQL."));
    if (connector && mayChange && !byId("tools").hasChildNodes()) show(byId("tools"), h("button", { type: "button", class: "primary", onclick: add }, "Add tables…"));
    notice("");
  } catch (problem) {
    if (mine === turn) notice(problem.message);
  }
}

// A client without the right to see connectors gets this page without them.
if (view) every(2000, refresh);
