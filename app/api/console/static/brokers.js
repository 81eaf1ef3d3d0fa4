// The brokers of a cluster as a table, and sums over them.
import { brief, bytes, count, duration, h, table, time } from "./dom.js";

export const NAMES = { http: "HTTP", binary: "Binary", kafka: "Kafka", registry: "Registry" };

// The live brokers of a survey; those that clients are shown if there is no survey.
export const listed = (cluster) => cluster.survey?.brokers ?? cluster.brokers.map((broker) => ({ ...broker, status: "live" }));

const total = (brokers, read) => brokers.reduce((sum, broker) => sum + (read(broker) ?? 0), 0);
const connections = (broker) => Object.values(broker.connections ?? {}).reduce((sum, number) => sum + number, 0);
export const isLive = (broker) => broker.status === "live";

export function sums(brokers) {
  const live = brokers.filter(isLive);
  return {
    live: live.length,
    records: total(live, (broker) => broker.rates?.records_in_per_s),
    bytesIn: total(live, (broker) => broker.rates?.bytes_in_per_s),
    bytesOut: total(live, (broker) => broker.rates?.bytes_out_per_s),
    connections: total(live, connections),
  };
}

function address(broker) {
  const ports = broker.endpoints ?? {};
  return Object.keys(NAMES).filter((name) => ports[name]).map((name) =>
    h("div", null, h("span", { class: "soft" }, `${NAMES[name]} `), h("span", { class: "mono" }, `${ports[name].host}:${ports[name].port}`)));
}

const state = (broker) => (isLive(broker)
  ? [h("span", { class: "chip" }, "live"), broker.started_at && h("div", { class: "soft", title: `joined at ${time(broker.started_at)}` }, `joined ${duration(Math.max(0, Date.now() - broker.started_at))} ago`)]
  : [h("span", { class: "chip bad" }, "dead"), h("div", { class: "soft" }, `for ${duration(broker.heartbeat_age_ms)}`)]);

// `leases` counts the leases by broker id, or is null where they are not of interest.
export function brokerTable(cluster, leases = null) {
  const brokers = listed(cluster);
  const rates = (broker) => (isLive(broker) ? broker.rates : null);
  const row = (broker) => h("tr", { "data-broker": broker.id },
    h("th", { scope: "row", class: "name" }, `Broker ${broker.id}`, broker.id === cluster.broker_id && h("div", { class: "soft" }, "this one")),
    h("td", { class: "time" }, state(broker)),
    h("td", { class: "time" }, broker.rack ?? "–"),
    leases && h("td", { class: "time" }, address(broker)),
    leases && h("td", { class: "time" }, broker.version ?? "–", broker.process && h("div", { class: "soft" }, `process ${broker.process.id} on ${broker.process.host}`)),
    leases && h("td", { class: "num" }, isLive(broker) ? duration(broker.heartbeat_age_ms) : "–"),
    leases && h("td", { class: "num" }, count(leases.get(broker.id) ?? 0)),
    h("td", { class: "num" }, brief(rates(broker)?.records_in_per_s)),
    h("td", { class: "num" }, bytes(rates(broker)?.bytes_in_per_s)),
    h("td", { class: "num" }, bytes(rates(broker)?.bytes_out_per_s)),
    h("td", { class: "num" }, isLive(broker) ? count(connections(broker)) : "–"));
  const sum = sums(brokers);
  const last = h("tr", { class: "sum" }, h("th", { scope: "row", class: "name" }, "All live brokers"), h("td", null, count(sum.live)),
    Array.from({ length: leases ? 5 : 1 }, () => h("td")),
    h("td", { class: "num" }, brief(sum.records)), h("td", { class: "num" }, bytes(sum.bytesIn)), h("td", { class: "num" }, bytes(sum.bytesOut)),
    h("td", { class: "num" }, count(sum.connections)));
  return table("Rates over about ten seconds, as each broker reports them",
    ["Broker", "State", "Rack", ...(leases ? ["Addresses", "Version", "#Heartbeat", "#Leases"] : []), "#Records in /s", "#In /s", "#Out /s", "#Connections"],
    [...brokers.map(row), last]);
}
