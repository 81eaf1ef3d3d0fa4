import { byId, bytes, count, duration, enable, every, h, notice, show, table, time, utc } from "./dom.js";
import { get, part, send } from "./api.js";
import { suggestTopics } from "./topic-input.js";
import * as url from "./url.js";

const form = byId("which");
const fields = form.elements;

// ── clients ──

every(5000, async () => {
  try {
    const answer = await get("/v1/connections?limit=200");
    show(byId("connections"), table(`${count(answer.total)} connections`, ["Listener", "From", "Client", "Client id", "#Age", "#In", "#Out"],
      answer.connections.map((connection) => h("tr", null,
        h("td", null, connection.protocol), h("td", { class: "mono" }, connection.peer),
        h("td", { class: "key", title: connection.client_version }, connection.client_name ? `${connection.client_name} ${connection.client_version ?? ""}` : h("span", { class: "soft" }, "unknown")),
        h("td", { class: "key mono" }, connection.client_id ?? "–"),
        h("td", { class: "num" }, duration(connection.age_ms)), h("td", { class: "num" }, bytes(connection.bytes_in)), h("td", { class: "num" }, bytes(connection.bytes_out))))));
  } catch (problem) {
    notice(problem.message);
  }
});

// ── the replica in a bucket ──

// What to do about a state, besides its problem.
const REMEDIES = {
  overtaken: "Two brokers run on copies of one data directory: stop one of them. This one goes on without a replica.",
  stopped: "This broker goes on without a replica until it is restarted.",
};

function loss(replica) {
  if (replica.newest_cut) return `the changes of the last ${duration(replica.lag_seconds * 1000)}, at most`;
  return replica.state === "copying" ? "everything: the first copy is still being made" : "not known: the bucket has not answered yet";
}

function replicaFacts(replica) {
  const { newest_cut: cut, oldest_restorable_at: oldest, counts } = replica;
  const moment = (at) => h("span", { title: utc(at) }, `${time(at).slice(0, 19)}, ${duration(Date.now() - at)} ago`);
  const pairs = [
    ["Lost now with the disk", loss(replica)],
    ["Restores go back to", oldest === null ? "–" : moment(oldest)],
    ["Newest cut", cut ? [moment(cut.at), `, number ${count(cut.sequence)}`] : "–"],
    ["Bucket", h("code", null, replica.url)],
    ["In the bucket", `${bytes(replica.replica_bytes)}, and ${bytes(replica.retained_bytes)} for earlier moments`],
    ["Since the start", `${count(counts.cuts)} cuts, ${bytes(counts.uploaded_bytes)} uploaded, ${count(counts.failed_requests)} failed requests`],
    ["Generation", count(replica.generation)],
  ];
  return h("dl", { class: "pairs" }, pairs.map(([name, value]) => [h("dt", null, name), h("dd", null, value)]));
}

if (byId("replica")) {
  every(5000, async () => {
    try {
      const replica = await get("/v1/replica");
      const { state } = replica;
      const isOff = state === "off";
      const tone = ["overtaken", "stopped"].includes(state) ? "chip bad" : state === "replicating" ? "chip" : "chip warn";
      show(byId("replica"), h("header", null, h("h2", null, "Replica in a bucket"), !isOff && h("span", { class: tone }, state)),
        isOff && h("p", { class: "empty" }, "This broker has no replica: if its disk is lost, so is the data. The setting STELE_REPLICATE_TO names a bucket for one."),
        replica.problem && h("p", { class: state === "failing" ? "notice warn" : "notice" }, replica.problem),
        REMEDIES[state] && h("p", null, REMEDIES[state]),
        !isOff && replicaFacts(replica));
    } catch (problem) {
      notice(problem.message);
    }
  });
}

// ── one partition ──

function forecast(segment, log) {
  if (!segment.is_sealed) return h("span", { class: "chip plain" }, "being written");
  if (segment.is_over_size) return h("span", { class: "chip warn" }, "over size, deleted next");
  if (segment.expires_at === null) return log.retention_ms < 0 ? "never" : "–";
  const left = segment.expires_at - Date.now();
  return h("span", { title: utc(segment.expires_at) }, left <= 0 ? "due" : `in ${duration(left)}`);
}

function verdict(result) {
  if (!result) return h("p", { class: "soft" }, "Not verified since the broker started.");
  const text = `${count(result.segments)} segments, ${count(result.batches)} batches, ${count(result.records)} records, ${bytes(result.size_bytes)} in ${duration(result.took_ms)}, at ${time(result.at).slice(0, 19)}`;
  return [
    h("p", null, h("span", { class: result.is_good ? "chip" : "chip bad" }, result.is_good ? "all CRCs and indexes are valid" : `${count(result.problem_count)} problems`), " ", h("span", { class: "soft" }, text)),
    result.problems.length > 0 && h("ul", null, result.problems.map((problem) => h("li", { class: "mono" }, problem))),
  ];
}

function describe(topic, partition, log) {
  const path = `/v1/topics/${part(topic)}/partitions/${partition}`;
  const verify = h("button", { type: "button" }, "Verify");
  const box = h("div", { class: "stack", role: "status" }, verdict(log.verified));
  verify.addEventListener("click", async () => {
    verify.disabled = true;
    show(box, h("p", { class: "soft" }, "Reading every batch…"));
    try {
      show(box, verdict(await send("POST", `${path}/verify`)));
    } catch (problem) {
      show(box, h("p", { class: "notice" }, problem.message));
    }
    verify.disabled = false;
  });
  const rows = log.segments.map((segment) => h("tr", null,
    h("td", { class: "mono" }, segment.file), h("td", { class: "num" }, count(segment.base_offset)), h("td", { class: "num" }, count(segment.next_offset)),
    h("td", { class: "num" }, bytes(segment.size_bytes)), h("td", { class: "num" }, bytes(segment.index_bytes)), h("td", null, time(segment.max_timestamp)),
    h("td", null, h("span", { class: segment.is_synced ? "chip" : "chip warn" }, segment.is_synced ? "synced" : "not synced"), segment.corrupt_ranges.length > 0 && h("span", { class: "chip bad", title: segment.corrupt_ranges.join("; ") }, "corrupt")),
    h("td", { class: "num" }, forecast(segment, log))));
  const compacted = log.cleanup_policy.includes("compact");
  const newest = compacted ? `Compacted${log.dirty_ratio === null ? "" : `, ${Math.round(log.dirty_ratio * 100)} % new since the last pass`} · ` : "";
  const kept = `${newest}Kept ${log.retention_ms < 0 ? "forever" : `for ${duration(log.retention_ms)}`}, ${log.retention_bytes < 0 ? "without a size limit" : `up to ${bytes(log.retention_bytes)}`}`;
  show(byId("segments"),
    h("header", null, h("h2", null, `${topic}-${partition}`), h("span", { class: "soft" }, `${bytes(log.size_bytes)} · ${kept}`), h("span", { class: "grow" }), verify),
    box,
    table("Segments, oldest first", ["File", "#First offset", "#Next offset", "#Size", "#Indexes", "Newest record", "State", "#Deleted"], rows,
      log.storage === "memory" ? "This topic is stored in memory and has no files." : "No segments."));
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
enable("show");
suggestTopics(fields.topic, byId("topics"));
const state = url.read();
fields.topic.value = state.topic ?? "";
fields.partition.value = state.partition ?? 0;
if (state.topic) look();

// ── the broker ──

every(5000, async () => {
  try {
    const now = await get("/v1/overview");
    const tile = (label, value) => h("div", { class: "tile" }, h("dt", null, label), h("dd", null, value));
    show(byId("tiles"), tile("Log on disk", bytes(now.disk.log_bytes)), tile("Disk free", bytes(now.disk.free_bytes)), tile("Partitions", count(now.partitions)),
      tile("Syncs", count(now.syncs.count)),
      now.compaction.partitions > 0 && tile("Compaction passes", now.compaction.failures > 0 ? `${count(now.compaction.passes)}, ${count(now.compaction.failures)} failed` : count(now.compaction.passes)),
      tile("Memory", bytes(now.process.resident_bytes)));
  } catch (problem) {
    notice(problem.message);
  }
});
