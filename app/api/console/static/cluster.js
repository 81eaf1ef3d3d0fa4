// The brokers of a cluster, their leases, and the state of shared storage.
import { byId, bytes, copy, count, duration, every, h, milliseconds, notice, show, table } from "./dom.js";
import { get } from "./api.js";
import { brokerTable, isLive, listed } from "./brokers.js";

const tile = (name, value, more) => h("div", { class: "tile" }, h("dt", null, name), h("dd", null, value, more && [" ", h("small", null, more)]));

const STORES = { objects: "Object store", inline: "PostgreSQL" };
const STATES = {
  committed: "with records",
  dead: "without records, kept for readers that still need them",
  fenced: "never committed, to be deleted",
};

function tiles(cluster) {
  const survey = cluster.survey;
  const brokers = listed(cluster);
  const live = brokers.filter(isLive).length;
  const dead = brokers.length - live;
  const committed = (survey?.objects ?? []).filter((total) => total.state === "committed");
  const sum = (read) => (survey?.objects ? committed.reduce((all, total) => all + read(total), 0) : null);
  const merge = survey?.merge_backlog;
  const postgres = survey?.postgres;
  return [
    tile("Live brokers", count(live), dead ? `${count(dead)} dead` : null),
    tile("Topics", count(cluster.topics), `${count(cluster.partitions)} partitions`),
    tile("Records", bytes(survey?.log_bytes)),
    tile("Objects", count(sum((total) => total.count)), bytes(sum((total) => total.bytes))),
    tile("To merge", bytes(merge?.bytes), merge?.oldest_ms === null || !merge ? null : `oldest ${duration(merge.oldest_ms)}`),
    tile("PostgreSQL round trip", milliseconds(postgres?.p50_ms), postgres ? `p99 ${milliseconds(postgres.p99_ms)}` : null),
  ];
}

// Names that differ in a number at their end share a row: a cluster may have dozens of them.
function grouped(leases) {
  const rows = new Map();
  for (const [name, lease] of Object.entries(leases)) {
    const [, stem, number] = /^(.*?)(\d*)$/.exec(name);
    const key = `${lease.broker_id} ${stem}`;
    const row = rows.get(key) ?? { stem, holder: lease.broker_id, numbers: [], names: [], epoch: 0 };
    row.names.push(name);
    if (number) row.numbers.push(Number(number));
    row.epoch = Math.max(row.epoch, lease.epoch);
    rows.set(key, row);
  }
  return [...rows.values()].sort((a, b) => a.stem.localeCompare(b.stem) || a.holder - b.holder);
}

function ranges(numbers) {
  const sorted = [...numbers].sort((a, b) => a - b);
  const parts = [];
  for (const number of sorted) {
    const last = parts.at(-1);
    if (last && last[1] === number - 1) last[1] = number;
    else parts.push([number, number]);
  }
  return parts.map(([from, to]) => (from === to ? `${from}` : `${from}–${to}`)).join(", ");
}

function leaseTable(cluster) {
  return table("Each lease has one holder; the epoch rises with each new one", ["Lease", "Holder", "#Leases", "#Highest epoch"],
    grouped(cluster.leases).map((row) => h("tr", { "data-lease": row.names[0] },
      h("td", { class: "mono" }, row.names.length === 1 ? row.names[0] : `${row.stem}${ranges(row.numbers)}`),
      h("td", null, `Broker ${row.holder}`),
      h("td", { class: "num" }, count(row.names.length)),
      h("td", { class: "num" }, count(row.epoch)))),
    "No broker has a lease at the moment.");
}

function storage(survey) {
  const { sweep_backlog: sweep, merge_backlog: merge } = survey;
  const pairs = [
    ["Bytes to merge", `${bytes(merge?.bytes)} in ${count(merge?.partitions)} partitions`],
    ["Oldest of them", merge ? (merge.oldest_ms === null ? "nothing waits" : duration(merge.oldest_ms)) : "–"],
    ["Suspects", `${count(sweep?.suspects)} objects that may have lost their last records`],
    ["To delete", `${count(sweep?.deletable_objects)} objects, ${bytes(sweep?.deletable_bytes)}`],
    ["Ended brokers", `${count(sweep?.silent_uploaders)} whose uncommitted objects are looked for`],
    ["Metadata", `${bytes(survey.metadata_bytes)} of tables and indexes`],
    ["PostgreSQL", `${milliseconds(survey.postgres.p50_ms)} median, ${milliseconds(survey.postgres.max_ms)} slowest round trip of a minute, ${count(survey.postgres.errors)} errors since this broker started`],
  ];
  return [
    table(survey.objects_age_ms === null ? "Objects" : `Objects, counted ${duration(survey.objects_age_ms)} ago`, ["Store", "Objects", "#Number", "#Bytes"],
      (survey.objects ?? []).map((total) => h("tr", { "data-objects": `${total.store} ${total.state}` },
        h("td", null, STORES[total.store] ?? total.store), h("td", null, STATES[total.state] ?? total.state),
        h("td", { class: "num" }, count(total.count)), h("td", { class: "num" }, bytes(total.bytes)))),
      survey.objects ? "There are no objects." : "Objects have not been counted yet."),
    h("dl", { class: "pairs" }, pairs.map(([name, value]) => [h("dt", null, name), h("dd", null, value)])),
  ];
}

// Brokers that all run on one machine are a trial, and whoever looks at it may want to see one die.
function trial(cluster, held) {
  const live = listed(cluster).filter(isLive);
  const hosts = new Set(live.map((broker) => broker.process?.host));
  if (live.length < 2 || hosts.size !== 1 || hosts.has(undefined)) return null;
  const victim = live.reduce((most, broker) => ((held.get(broker.id) ?? 0) > (held.get(most.id) ?? 0) ? broker : most));
  if (victim.id === cluster.broker_id && live.length > 1) {
    const other = live.find((broker) => broker.id !== victim.id);
    return [victim, `http://${other.endpoints.http.host}:${other.endpoints.http.port}/console/cluster`];
  }
  return [victim, null];
}

let shown = "";
function hint(cluster, held) {
  const found = trial(cluster, held);
  const command = found && `kill -9 ${found[0].process.id}`;
  const key = JSON.stringify([command, found?.[1], held.get(found?.[0].id)]);
  // Drawn only when it changes, so that text can be selected.
  if (key === shown) return;
  shown = key;
  byId("trial").hidden = !found;
  if (!found) return;
  const [victim, elsewhere] = found;
  show(byId("trial"), h("header", null, h("h2", null, "Try a failover")),
    h("p", null, `All brokers run on ${victim.process.host}. This command kills broker ${victim.id}, which has ${count(held.get(victim.id) ?? 0)} of the leases; the others take over within about 6 seconds:`),
    h("div", { class: "row" }, h("code", { id: "kill" }, command), h("button", { type: "button", onclick: () => copy(command) }, "Copy")),
    elsewhere && h("p", null, "It also serves this page: ", h("a", { href: elsewhere }, "watch at another broker"), "."));
}

every(1000, async () => {
  try {
    const cluster = await get("/v1/cluster");
    const { survey } = cluster;
    const held = new Map();
    for (const lease of Object.values(cluster.leases)) held.set(lease.broker_id, (held.get(lease.broker_id) ?? 0) + 1);
    if (survey?.problem) notice(`${survey.problem}. ${survey.age_ms === null ? "" : `What is shown is ${duration(survey.age_ms)} old.`}`);
    else notice(survey ? "" : "Your user may not describe the cluster: only addresses and leases are shown.", { warn: true });
    show(byId("tiles"), tiles(cluster));
    show(byId("brokers"), brokerTable(cluster, held));
    show(byId("leases"), leaseTable(cluster));
    byId("storage-card").hidden = !survey;
    if (survey) show(byId("storage"), storage(survey));
    hint(cluster, held);
  } catch (problem) {
    notice(problem.status ? problem.message : "The broker that served this page cannot be reached. Open the console of another broker of the cluster.");
  }
});
