import { byId, brief, count, every, h, notice, show, table, time, toast } from "./dom.js";
import { get, part, query, send } from "./api.js";
import { lineChart, spark } from "./chart.js";
import { ask } from "./dialog.js";
import { pagesOf, searchBox, showPager } from "./pages.js";
import * as url from "./url.js";

const LIMIT = 50;
const state = url.read();

// ── the list ──

let turn = 0;
async function list() {
  const mine = ++turn;
  const page = Number(state.page ?? 1);
  try {
    const answer = await get(`/v1/groups${query({ search: state.search, page, limit: LIMIT })}`);
    if (mine !== turn) return;
    notice("");
    const rows = answer.groups.map((group) => h("tr", null,
      h("td", null, h("a", { href: `/console/groups${query({ group: group.group })}` }, group.group)),
      h("td", null, h("span", { class: group.state === "Stable" ? "chip" : "chip plain" }, group.state)),
      h("td", { class: "num" }, count(group.members)),
      h("td", { class: "num" }, count(group.lag))));
    show(byId("list"), table(`${count(answer.total)} groups`, ["Group", "State", "#Members", "#Lag"], rows,
      state.search ? `No group has “${state.search}” in its name.` : "No groups yet. A consumer that joins or polls creates one."));
    showPager(state, pagesOf(answer.total, LIMIT), list);
  } catch (problem) {
    notice(problem.message);
  }
}

// ── one group ──

const chart = lineChart("Lag, in records", brief);
const path = state.group && `/v1/groups/${part(state.group)}`;

function members(group) {
  const shown = (topics) => topics.map((topic) => `${topic.topic} ${topic.partitions.join(", ")}`).join(" · ") || "–";
  return table("Members", ["Member", "Client", "Host", "Assigned", "Claimed"], group.members.map((member) => h("tr", null,
    h("td", { class: "key mono", title: member.member_id }, member.member_id),
    h("td", null, member.client_id || "–", member.is_managed && [" ", h("span", { class: "chip plain" }, "managed")], member.epoch !== null && [" ", h("span", { class: "chip plain" }, `epoch ${member.epoch}`)]),
    h("td", { class: "mono" }, member.client_host || "–"),
    h("td", null, shown(member.assignment)),
    h("td", null, shown(member.owned)))), "No members now.");
}

function partitions(group, past) {
  const lags = new Map(past.partitions.map((partition) => [`${partition.topic}/${partition.partition}`, partition.lag]));
  const isShared = group.type === "share";
  return table("Lag of each partition", ["Partition", "#Committed", "#End", "#Lag", ...(isShared ? ["#In flight"] : []), "Last hour", "Assigned to", "Owner"], group.partitions.map((partition) => {
    const history = lags.get(`${partition.topic}/${partition.partition}`) ?? [];
    return h("tr", { "data-partition": `${partition.topic}-${partition.partition}` },
      h("td", null, h("a", { href: `/console/messages${query({ topic: partition.topic, partitions: partition.partition, start: "offset", offset: partition.committed ?? partition.log_start_offset, go: 1 })}` }, `${partition.topic}-${partition.partition}`)),
      h("td", { class: "num" }, count(partition.committed)), h("td", { class: "num" }, count(partition.high_watermark)), h("td", { class: "num" }, count(partition.lag)),
      isShared ? h("td", { class: "num" }, count(partition.in_flight)) : null,
      h("td", null, history.length > 1 ? spark(history, `Lag of ${partition.topic} ${partition.partition} over the last hour`) : "–"),
      h("td", { class: "key mono", title: partition.member_id ?? "" }, partition.member_id ?? "–"), h("td", { class: "key mono", title: partition.owner ?? "" }, partition.owner ?? "–"));
  }), "No committed offsets and no assignments yet.");
}

function leases(group) {
  return group.leases.length > 0 && table("Open leases", ["Partition", "#From", "#To", "#Deliveries", "Expires"],
    group.leases.flatMap((lease) => lease.partitions.map((leased) => h("tr", null,
      h("td", null, `${leased.topic}-${leased.partition}`), h("td", { class: "num" }, count(leased.offset)), h("td", { class: "num" }, count(leased.next_offset)),
      h("td", { class: "num" }, count(leased.deliveries)), h("td", null, time(lease.expires_at))))));
}

function unfinished(group) {
  const who = { available: "anybody", archiving: "its dead letter" };
  return group.unfinished?.length > 0 && table("Delivered and not finished", ["Partition", "#From", "#To", "#Deliveries", "Waits for"],
    group.unfinished.map((records) => h("tr", null,
      h("td", null, h("a", { href: `/console/messages${query({ topic: records.topic, partitions: records.partition, start: "offset", offset: records.first, go: 1 })}` }, `${records.topic}-${records.partition}`)),
      h("td", { class: "num" }, count(records.first)), h("td", { class: "num" }, count(records.last)), h("td", { class: "num" }, count(records.deliveries)),
      h("td", { class: "key mono", title: records.member_id ?? "" }, records.member_id ?? who[records.state]))));
}

const redriveButton = h("button", { type: "button", onclick: () => redrive() }, "Redrive…");
function letters(group) {
  const topic = group.dead_letter_topic;
  return topic && [
    h("p", null, "Letters about records that the group has given up are in ", h("a", { href: `/console/messages${query({ topic, start: "earliest", go: 1 })}` }, topic), "."),
    h("div", { class: "row end" }, redriveButton)];
}

function totals(past) {
  const topics = [...new Set(past.partitions.map((partition) => partition.topic))].slice(0, 4);
  return topics.map((topic) => ({
    name: topic,
    values: past.at.map((_, index) => {
      const known = past.partitions.filter((partition) => partition.topic === topic && partition.lag[index] !== null);
      return known.length ? known.reduce((sum, partition) => sum + partition.lag[index], 0) : null;
    }),
  }));
}

async function refresh() {
  try {
    const [group, past] = await Promise.all([get(path), get(`${path}/lag/history`)]);
    notice("");
    const tile = (label, value) => h("div", { class: "tile" }, h("dt", null, label), h("dd", null, value));
    show(byId("tiles"), tile("State", group.state), tile(group.type === "classic" ? "Generation" : "Epoch", count(group.generation)), tile("Members", count(group.members.length)), tile("Lag", count(group.lag)), tile("Protocol", group.protocol || "–"));
    show(byId("partitions"), partitions(group, past));
    show(byId("members"), members(group));
    const held = leases(group);
    byId("leases").hidden = !held;
    show(byId("leases"), held);
    for (const [name, shown] of [["unfinished", unfinished(group)], ["letters", letters(group)]]) {
      byId(name).hidden = !shown;
      show(byId(name), shown);
    }
    chart.update(past.at, totals(past));
  } catch (problem) {
    notice(problem.message);
  }
}

async function redrive() {
  const done = await ask(`Redrive the dead letters of ${state.group}`, [
    h("p", { class: "soft" }, "Appends the record of each letter to the partition that it came from, oldest letter first. A letter is redriven once.")], {
    button: "Redrive",
    work: async () => {
      const total = { redriven: 0, lost: 0 };
      for (let more = true; more;) {
        const answer = await send("POST", `${path}/share/redrive`, {});
        total.redriven += answer.redriven;
        total.lost += answer.lost;
        more = answer.is_more;
      }
      return total;
    },
  });
  if (done) { toast(`${count(done.redriven)} records redriven${done.lost ? `, ${count(done.lost)} lost` : ""}`); refresh(); }
}

async function reset() {
  const kind = h("select", { name: "kind", "aria-label": "To" }, [["earliest", "The earliest record"], ["latest", "The end: only new records"], ["time", "A time"], ["ago", "A time ago"], ["offset", "An offset, in every partition"]]
    .map(([value, text]) => h("option", { value }, text)));
  const when = h("input", { name: "time", type: "datetime-local", step: 1 });
  const ago = h("input", { name: "ago", placeholder: "1h, 30m, 7d", pattern: "[0-9]{1,12}(ms|s|m|h|d)" });
  const offset = h("input", { name: "offset", type: "number", min: 0 });
  const topics = h("input", { name: "topics", placeholder: "all topics of the group", spellcheck: "false" });
  const extras = { time: h("label", null, "Time (local)", when), ago: h("label", null, "How long ago", ago), offset: h("label", null, "Offset", offset) };
  const preview = h("div", { "aria-live": "polite" });
  let previewed = "";
  const request = () => {
    const to = { time: when.value && new Date(when.value).toISOString(), ago: ago.value && `-${ago.value}`, offset: offset.value && Number(offset.value) }[kind.value] ?? kind.value;
    const names = topics.value.split(",").map((name) => name.trim()).filter(Boolean);
    return names.length ? { to, topics: names } : { to };
  };
  const look = h("button", { type: "button" }, "Preview");
  const shape = () => { for (const [name, field] of Object.entries(extras)) field.hidden = kind.value !== name; };
  const done = await ask(`Reset the offsets of ${state.group}`, [
    h("p", { class: "soft" }, "Sets the offsets at which the group continues. Stop its members first. The preview changes nothing."),
    h("label", null, "To", kind), Object.values(extras), h("label", null, "Topics, separated by commas", topics), h("div", { class: "row" }, look), preview,
  ].flat(), {
    button: "Reset",
    danger: true,
    isReady: (form) => {
      shape();
      look.onclick = async () => {
        try {
          const answer = await send("PUT", `${path}/offsets?dry_run=true`, request());
          previewed = JSON.stringify(request());
          show(preview, table("Preview", ["Partition", "#Now", "#After", "#Lag after"], answer.offsets.map((change) => h("tr", null,
            h("td", null, `${change.topic}-${change.partition}`), h("td", { class: "num" }, count(change.before)), h("td", { class: "num" }, count(change.after)), h("td", { class: "num" }, count(change.lag)))), "No partition changes."));
        } catch (problem) {
          previewed = "";
          show(preview, h("p", { class: "notice" }, problem.message));
        }
        form.dispatchEvent(new Event("input"));
      };
      // Only the previewed reset can be carried out.
      return previewed !== "" && previewed === JSON.stringify(request());
    },
    work: () => send("PUT", `${path}/offsets`, request()),
  });
  if (done) { toast("Offsets reset"); refresh(); }
}

if (state.group) {
  document.title = `${state.group} · Stele`;
  byId("title").textContent = state.group;
  byId("back").hidden = false;
  byId("tools").hidden = true;
}
if (state.group === "." || state.group === "..") {
  // Browsers resolve these names as path segments, even if they are encoded.
  notice(`Browsers cannot request a group with this name. Use a shell: stele groups describe ${state.group}`);
} else if (state.group) {
  byId("group").hidden = false;
  byId("chart").append(chart.element);
  byId("reset").addEventListener("click", reset);
  every(2000, refresh);
} else {
  searchBox(state, list);
  every(5000, list);
}
window.addEventListener("popstate", () => location.reload());
