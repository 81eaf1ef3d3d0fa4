import { byId, bytes, count, duration, every, h, notice, show, table, time } from "./dom.js";
import { get, part, query } from "./api.js";
import * as url from "./url.js";

const TONES = { level: "chip", writing: "chip", running: "chip", idle: "chip plain", standby: "chip plain", failed: "chip bad" };
// Snapshots that are listed; a day has more than a thousand.
const NEWEST = 20;
const { topic } = url.read();
const view = byId("view");
const chip = (word) => h("span", { class: TONES[word] ?? "chip warn" }, word);
const lag = (one) => (one.lag_records === null ? "–" : count(one.lag_records));
const committed = (one) => (one.committed_ms === null ? "–" : time(one.committed_ms));

// ── the list ──

const row = (one) => h("tr", { "data-table": one.topic },
  h("td", null, h("a", { href: `/console/tables${query({ topic: one.topic })}` }, one.topic)), h("td", null, chip(one.state)),
  h("td", { class: "key mono" }, one.mode), h("td", { class: "num" }, count(one.rows)), h("td", { class: "num" }, count(one.error_rows)),
  h("td", { class: "num" }, lag(one)), h("td", null, committed(one)));

async function list() {
  const writer = await get("/v1/iceberg");
  show(view,
    writer.last_error && h("p", { class: writer.state === "failed" ? "notice" : "notice warn" }, writer.last_error),
    h("section", { class: "card", "aria-label": "Tables" },
      table(writer.topics.length === 1 ? "1 table" : `${count(writer.topics.length)} tables`, ["Topic", "State", "Mode", "#Rows", "#Errors", "#Lag", "Committed"], writer.topics.map(row),
        "No topic is a table yet. Set the configuration stele.iceberg.mode of a topic to key_value or value_schema."),
      h("p", { class: "soft" }, "Warehouse: ", h("span", { class: "mono" }, writer.warehouse), ". The process that writes is ", chip(writer.state), ".")));
}

// ── one table ──

const snapshotRow = ({ summary, ...one }) => h("tr", null,
  h("td", null, time(one["timestamp-ms"])), h("td", null, summary.operation === "replace" ? "compaction" : summary.operation),
  h("td", { class: "num" }, count(Number(summary["added-records"] ?? 0) - Number(summary["deleted-records"] ?? 0))),
  h("td", { class: "num" }, count(Number(summary["total-records"] ?? 0))), h("td", { class: "num" }, count(Number(summary["total-data-files"] ?? 0))),
  h("td", { class: "num" }, bytes(Number(summary["total-files-size"] ?? 0))));

async function open() {
  const one = await get(`/v1/iceberg/${part(topic)}`);
  // There is no table before the first commit.
  const loaded = one.rows || one.snapshot_id !== null ? await get(`/iceberg/v1/namespaces/stele/tables/${part(topic)}`) : {};
  const all = loaded.metadata?.snapshots ?? [];
  const tile = (label, ...value) => h("div", { class: "tile" }, h("dt", null, label), h("dd", null, value));
  show(view,
    h("dl", { class: "tiles" }, tile("State", chip(one.state)), tile("Rows", count(one.rows)), tile("Errors", count(one.error_rows), " ", h("small", null, "records")),
      tile("Lag", lag(one), " ", h("small", null, one.lag_seconds ? duration(one.lag_seconds * 1000) : "records")), tile("Committed", committed(one)),
      tile("Lost", count(one.lost_records), " ", h("small", null, "offsets"))),
    one.reason && h("p", { class: one.state === "failed" ? "notice" : "notice warn" }, one.reason),
    h("section", { class: "card", "aria-label": "Snapshots" },
      table(`${count(all.length)} snapshots`, ["Committed", "Kind", "#New rows", "#Rows", "#Files", "#Size"], all.slice(-NEWEST).reverse().map(snapshotRow), "No snapshot yet."),
      all.length > NEWEST && h("p", { class: "soft" }, `${count(all.length - NEWEST)} older ones are not shown.`)),
    h("section", { class: "card", "aria-label": "Places" }, h("dl", { class: "pairs" },
      h("dt", null, "Topic"), h("dd", null, h("a", { href: `/console/topics${query({ topic })}` }, topic)),
      h("dt", null, "Table"), h("dd", { class: "mono" }, one.table),
      h("dt", null, "Records that do not fit"), h("dd", { class: "mono" }, `${one.table}_errors`))));
}

let turn = 0;
async function refresh() {
  const mine = ++turn;
  try {
    await (topic === undefined ? list() : open());
    if (mine === turn) notice("");
  } catch (problem) {
    if (mine === turn) notice(problem.message);
  }
}

if (topic !== undefined) {
  byId("back").hidden = false;
  byId("title").textContent = topic;
  document.title = `${topic} · Stele`;
}
every(topic === undefined ? 2000 : 5000, refresh);
window.addEventListener("popstate", () => location.reload());
