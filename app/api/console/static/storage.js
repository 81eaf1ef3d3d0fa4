import { byId, bytes, count, duration, every, h, notice, show, table, time, utc } from "./dom.js";
import { get, part, send } from "./api.js";
import { suggestTopics } from "./topic-input.js";
import * as url from "./url.js";

const form = byId("which");
const fields = form.elements;

// ── clients ──

every(5000, async () => {
  try {
    const found = await get("/v1/connections?limit=200");
    show(byId("connections"), table(`${count(found.total)} connections`, ["Listener", "From", "Client", "Client id", "#For", "#In", "#Out"],
      found.connections.map((one) => h("tr", null,
        h("td", null, one.protocol), h("td", { class: "mono" }, one.peer),
        h("td", { class: "key", title: one.client_version }, one.client_name ? `${one.client_name} ${one.client_version ?? ""}` : h("span", { class: "soft" }, "did not say")),
        h("td", { class: "key mono" }, one.client_id ?? "–"),
        h("td", { class: "num" }, duration(one.age_ms)), h("td", { class: "num" }, bytes(one.bytes_in)), h("td", { class: "num" }, bytes(one.bytes_out))))));
  } catch (problem) {
    notice(problem.message);
  }
});

// ── change data capture ──

function copied(tables) {
  return Object.entries(tables ?? {}).map(([name, one]) => `${name}: ${count(one.copied)} copied, ${count(one.changes)} changes`).join(" · ");
}

every(5000, async () => {
  try {
    const { connectors } = await get("/v1/cdc");
    show(byId("cdc"), h("header", null, h("h2", null, "Changes out of PostgreSQL")),
      table("Slots", ["Slot", "State", "#Lag", "Confirmed", "#Events", "#Restarts", "Tables"], connectors.map((one) => h("tr", null,
        h("td", null, one.slot, one.database && h("div", { class: "fine" }, one.database)),
        h("td", null, h("span", { class: ["failed", "stopped"].includes(one.state) ? "chip bad" : "chip" }, one.state), one.last_error && h("div", { class: "fine" }, one.last_error)),
        h("td", { class: "num" }, bytes(one.lag_bytes)), h("td", { class: "mono" }, one.confirmed_lsn ?? "–"),
        h("td", { class: "num" }, count(one.events)), h("td", { class: "num" }, count(one.restarts)), h("td", null, copied(one.tables)))),
      "This broker runs no connector."));
  } catch (problem) {
    notice(problem.message);
  }
});

// ── one partition ──

function forecast(segment, found) {
  if (!segment.is_sealed) return h("span", { class: "chip plain" }, "being written");
  if (segment.is_over_size) return h("span", { class: "chip warn" }, "over size: next");
  if (segment.expires_at === null) return found.retention_ms < 0 ? "kept" : "–";
  const left = segment.expires_at - Date.now();
  return h("span", { title: utc(segment.expires_at) }, left <= 0 ? "due" : `in ${duration(left)}`);
}

function verdict(found) {
  if (!found) return h("p", { class: "soft" }, "Not checked since the broker began.");
  const text = `${count(found.segments)} segments, ${count(found.batches)} batches, ${count(found.records)} records, ${bytes(found.size_bytes)} in ${duration(found.took_ms)}, at ${time(found.at).slice(0, 19)}`;
  return [
    h("p", null, h("span", { class: found.is_good ? "chip" : "chip bad" }, found.is_good ? "all CRCs and indexes are good" : `${count(found.problem_count)} problems`), " ", h("span", { class: "soft" }, text)),
    found.problems.length > 0 && h("ul", null, found.problems.map((one) => h("li", { class: "mono" }, one))),
  ];
}

function describe(topic, partition, found) {
  const path = `/v1/topics/${part(topic)}/partitions/${partition}`;
  const verify = h("button", { type: "button" }, "Check all bytes");
  const place = h("div", { class: "stack", role: "status" }, verdict(found.verified));
  verify.addEventListener("click", async () => {
    verify.disabled = true;
    show(place, h("p", { class: "soft" }, "reading every batch…"));
    try {
      show(place, verdict(await send("POST", `${path}/verify`)));
    } catch (problem) {
      show(place, h("p", { class: "notice" }, problem.message));
    }
    verify.disabled = false;
  });
  const rows = found.segments.map((segment) => h("tr", null,
    h("td", { class: "mono" }, segment.file), h("td", { class: "num" }, count(segment.base_offset)), h("td", { class: "num" }, count(segment.next_offset)),
    h("td", { class: "num" }, bytes(segment.size_bytes)), h("td", { class: "num" }, bytes(segment.index_bytes)), h("td", null, time(segment.max_timestamp)),
    h("td", null, h("span", { class: segment.is_synced ? "chip" : "chip warn" }, segment.is_synced ? "synced" : "not yet"), segment.corrupt_ranges.length > 0 && h("span", { class: "chip bad", title: segment.corrupt_ranges.join("; ") }, "damaged")),
    h("td", { class: "num" }, forecast(segment, found))));
  const kept = `Kept ${found.retention_ms < 0 ? "for good" : `for ${duration(found.retention_ms)}`}, ${found.retention_bytes < 0 ? "without a limit of size" : `up to ${bytes(found.retention_bytes)}`}`;
  show(byId("segments"),
    h("header", null, h("h2", null, `${topic}-${partition}`), h("span", { class: "soft" }, `${bytes(found.size_bytes)} · ${kept}`), h("span", { class: "grow" }), verify),
    place,
    table("Segments, the oldest first", ["File", "#First offset", "#Next offset", "#Size", "#Indexes", "Newest record", "State", "#Deleted"], rows,
      found.storage === "memory" ? "This topic is in memory: it has no files." : "No segments."));
  byId("segments").hidden = false;
}

async function look() {
  const topic = fields.topic.value.trim();
  const partition = Number(fields.partition.value || 0);
  url.write({ topic, partition });
  try {
    describe(topic, partition, await get(`/v1/topics/${part(topic)}/partitions/${partition}/segments`));
    notice("");
  } catch (problem) {
    byId("segments").hidden = true;
    notice(problem.message);
  }
}

form.addEventListener("submit", (event) => { event.preventDefault(); look(); });
suggestTopics(fields.topic, byId("topics"));
const state = url.read();
fields.topic.value = state.topic ?? "";
fields.partition.value = state.partition ?? 0;
if (state.topic) look();

// ── all of the broker ──

every(5000, async () => {
  try {
    const now = await get("/v1/overview");
    const tile = (label, value) => h("div", { class: "tile" }, h("dt", null, label), h("dd", null, value));
    show(byId("tiles"), tile("Log on disk", bytes(now.disk.log_bytes)), tile("Disk free", bytes(now.disk.free_bytes)), tile("Partitions", count(now.partitions)),
      tile("Syncs", count(now.syncs.count)), tile("Memory", bytes(now.process.resident_bytes)));
  } catch (problem) {
    notice(problem.message);
  }
});
