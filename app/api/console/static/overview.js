import { brief, byId, bytes, count, duration, every, h, milliseconds, notice, show, svg, table } from "./dom.js";
import { get } from "./api.js";
import { lineChart } from "./chart.js";
import { brokerTable } from "./brokers.js";

const charts = {
  records: lineChart("Records in, per second", brief),
  bytesIn: lineChart("Bytes in by listener, per second", bytes),
  bytesOut: lineChart("Bytes out by listener, per second", bytes),
  syncs: lineChart("Sync time (fdatasync)", milliseconds),
  log: lineChart("Log on disk", bytes),
  connections: lineChart("Connections", count),
};
show(byId("charts"), Object.values(charts).map((chart) => h("div", { class: "card" }, chart.element)));

const tile = (name, value, more) => h("div", { class: "tile" }, h("dt", null, name), h("dd", null, value, more && [" ", h("small", null, more)]));

function tiles(now) {
  const { rates, syncs, disk } = now;
  return [
    tile("Records in", rates ? brief(rates.records_in_per_s) : "–", "/s"),
    tile("Bytes in", rates ? bytes(rates.bytes_in_per_s) : "–", "/s"),
    tile("Bytes out", rates ? bytes(rates.bytes_out_per_s) : "–", "/s"),
    tile("Sync p99", milliseconds(syncs.p99_ms), `median ${milliseconds(syncs.p50_ms)}`),
    tile("Connections", count(now.listeners.reduce((sum, listener) => sum + listener.connections, 0))),
    tile("Disk free", bytes(disk.free_bytes), `of ${bytes(disk.total_bytes)}`),
  ];
}

function meter(disk) {
  const total = disk.total_bytes ?? 0;
  if (!total) return h("p", { class: "soft" }, "Disk usage is unknown.");
  const log = ((disk.log_bytes ?? 0) / total) * 100;
  const used = ((total - disk.free_bytes) / total) * 100;
  return [
    h("div", { class: "meter" }, svg("svg", { viewBox: "0 0 100 8", preserveAspectRatio: "none", role: "img",
      "aria-label": `${used.toFixed(0)} percent of the disk used, ${log.toFixed(1)} percent by the log` },
    svg("rect", { class: "other", width: used.toFixed(2), height: 8 }), svg("rect", { class: "log", width: log.toFixed(2), height: 8 }))),
    h("p", { class: "soft" }, `${bytes(disk.log_bytes)} of log, ${bytes(disk.free_bytes)} free of ${bytes(total)} at `, h("code", null, disk.path)),
  ];
}

function facts(now) {
  const pairs = [
    ["Topics", h("a", { href: "/console/topics" }, `${count(now.topics)} with ${count(now.partitions)} partitions`)],
    ["Groups", h("a", { href: "/console/groups" }, count(now.groups))],
    ["Records written", count(now.totals.records_in)],
    ["Uptime", duration(now.uptime_ms)],
    ["Memory", bytes(now.process.resident_bytes)],
    ["Searches in progress", count(now.searches.active)],
    ["Cluster", h("code", null, now.cluster_id)],
  ];
  return h("dl", { class: "pairs" }, pairs.map(([name, value]) => [h("dt", null, name), h("dd", null, value)]));
}

function listeners(now) {
  const names = { http: "HTTP", binary: "Binary", kafka: "Kafka" };
  return table("Listeners, with rates over the last ten seconds",
    ["Listener", "Address", "#Connections", "#In /s", "#Out /s", "#In, total", "#Out, total"],
    now.listeners.map((listener) => h("tr", { "data-listener": listener.name },
      h("td", null, names[listener.name] ?? listener.name),
      h("td", { class: "mono" }, listener.port ? `${listener.host}:${listener.port}` : "–"),
      h("td", { class: "num" }, count(listener.connections)),
      h("td", { class: "num" }, bytes(listener.bytes_in_per_s)),
      h("td", { class: "num" }, bytes(listener.bytes_out_per_s)),
      h("td", { class: "num" }, bytes(listener.bytes_in)),
      h("td", { class: "num" }, bytes(listener.bytes_out)))));
}

every(2000, async () => {
  try {
    const isShared = byId("brokers") !== null;
    const [now, past, cluster] = await Promise.all([get("/v1/overview"), get("/v1/overview/history"), isShared ? get("/v1/cluster") : null]);
    notice(now.health.reason);
    const state = byId("state");
    state.textContent = now.health.status;
    state.className = now.health.status === "ready" ? "chip" : "chip bad";
    if (cluster) {
      show(byId("brokers"), brokerTable(cluster));
      byId("which").textContent = `Broker ${now.broker_id}, which serves this page`;
    }
    show(byId("tiles"), tiles(now));
    show(byId("listeners"), listeners(now));
    show(byId("disk"), meter(now.disk));
    show(byId("facts"), facts(now));
    const at = past.at;
    charts.records.update(at, [{ name: "records", values: past.records_in_per_s }]);
    charts.bytesIn.update(at, past.listeners.map((listener) => ({ name: listener.name, values: listener.bytes_in_per_s })));
    charts.bytesOut.update(at, past.listeners.map((listener) => ({ name: listener.name, values: listener.bytes_out_per_s })));
    charts.syncs.update(at, [{ name: "median", values: past.sync_p50_ms }, { name: "p99", values: past.sync_p99_ms }]);
    charts.log.update(at, [{ name: "log", values: past.log_bytes }]);
    charts.connections.update(at, past.listeners.map((listener) => ({ name: listener.name, values: listener.connections })));
  } catch (problem) {
    notice(problem.message);
  }
});
