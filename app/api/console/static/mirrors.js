import { byId, bytes, count, h, notice, show, table, toast, every } from "./dom.js";
import { get, part, query, send } from "./api.js";
import { ask, askWithName } from "./dialog.js";
import { shape } from "./mirror-form.js";
import * as url from "./url.js";

const TONES = { level: "chip", paused: "chip plain", failed: "chip bad", diverged: "chip bad", recreated: "chip bad", shrunk: "chip bad", refused: "chip bad" };
const state = url.read();
const view = byId("view");
const mayChange = view && "changes" in view.dataset;
const path = (name, ...rest) => ["/v1/mirrors", ...[name, ...rest].map(part)].join("/");
const link = (name) => `/console/mirrors${query({ mirror: name })}`;
const chip = (word) => h("span", { class: TONES[word] ?? "chip warn" }, word);
const partitions = (mirror) => (mirror.topics ?? []).flatMap(({ topic, partitions: all }) => all.map((one) => ({ topic, ...one })));
// Copies in another cluster are changed with the command, and never promoted.
const isOutward = ({ definition }) => Boolean(definition.to);
const other = ({ definition }) => (definition.to ? `to ${definition.to}` : definition.from);
const cuttable = (mirror) => partitions(mirror).filter((one) => typeof one.common_end === "number");

// The part of the source's offsets that is copied, 0 to 1; null while nobody knows.
function progress({ lag, source_records: all }) {
  if (typeof lag !== "number" || typeof all !== "number") return null;
  return all ? Math.max(0, Math.min(1, 1 - lag / all)) : 1;
}

const percent = (share) => (share === null ? "–" : `${(Math.floor(share * 1000) / 10).toFixed(1)} %`);
const bar = (share, label) => share !== null && h("progress", { max: 1, value: String(share), "aria-label": label });

// ── the list ──

function row(mirror) {
  const share = progress(mirror);
  return h("tr", { "data-mirror": mirror.name },
    h("td", null, h("a", { href: link(mirror.name) }, mirror.name)), h("td", null, chip(mirror.state)),
    h("td", { class: "key mono", title: other(mirror) }, other(mirror)),
    h("td", { class: "key mono", title: mirror.definition.topics }, mirror.definition.topics),
    h("td", { class: "num" }, count(mirror.lag)), h("td", { class: "num" }, percent(share)),
    h("td", { class: "num" }, mirror.bytes_per_s === undefined ? "–" : `${bytes(mirror.bytes_per_s)}/s`));
}

async function list() {
  const { mirrors } = await get("/v1/mirrors");
  show(view, table(mirrors.length === 1 ? "1 mirror" : `${count(mirrors.length)} mirrors`, ["Name", "State", "From", "Topics", "#Lag", "#Copied", "#Rate"], mirrors.map(row),
    "No mirrors yet. A mirror copies topics of another Kafka cluster with the offsets that they have there."));
}

// ── what is done with a mirror ──

let stop = () => {};
// A mirror that goes is gone before its process has ended: it is polled again only if it stays.
async function going(request) {
  stop();
  try {
    return await request();
  } catch (problem) {
    stop = every(2000, refresh);
    throw problem;
  }
}

async function change(mirror) {
  const made = await ask(mirror ? "Change the mirror" : "New mirror", ...shape(mirror, (name, body) => send("PUT", path(name), body)));
  if (made === undefined) return;
  if (mirror) { toast("Mirror changed"); await refresh(); }
  else location.href = link(made.name);
}

async function pause(mirror, paused) {
  const { name, ...body } = mirror.definition;
  try {
    await send("PUT", path(name), { ...body, paused });
    toast(paused ? "Mirror paused" : "Mirror resumed");
  } catch (problem) {
    notice(problem.message);
    return;
  }
  await refresh();
}

async function promote(mirror, topic) {
  const late = mirror.state === "level" ? "" : ` The mirror is ${mirror.state}: ${count(mirror.lag)} records of the source are not copied, and never will be.`;
  const done = await askWithName(topic ? "Promote the topic" : "Promote all topics",
    `${topic ? `${topic} becomes an ordinary topic` : "The copies become ordinary topics, and the mirror is deleted"}. Stop the producers of the source first: what it gets from now on is not copied.${late}`,
    topic ?? mirror.name, "Promote", () => (topic ? send("POST", path(mirror.name, "promote"), { topic }) : going(() => send("POST", path(mirror.name, "promote"), {}))));
  if (done === undefined) return;
  const aborted = done.promoted.reduce((sum, one) => sum + one.aborted_transactions.length, 0);
  toast(`${count(done.promoted.length)} promoted${aborted ? `, ${count(aborted)} open transactions aborted` : ""}`);
  if (done.unfinished) await ask("Not all of the source may be copied", [h("p", null, done.unfinished)], { work: () => true });
  if (topic) await refresh();
  else location.href = "/console/mirrors";
}

async function truncate(mirror) {
  const cut = cuttable(mirror);
  const done = await ask("Cut the copies back", [
    h("p", null, "The source no longer has these records, or has others at their offsets. They are deleted here, and the mirror goes on with what the source has."),
    table("What is cut", ["Partition", "#Ends at", "#Cut to", "#Deleted"], cut.map((one) => h("tr", null, h("td", null, `${one.topic}-${one.partition}`),
      h("td", { class: "num" }, count(one.offset)), h("td", { class: "num" }, count(one.common_end)), h("td", { class: "num" }, count(Math.max(0, one.offset - one.common_end)))))),
    h("p", { class: "soft" }, "Committed offsets past the new ends are moved there."),
  ], { button: "Cut back", danger: true, work: () => send("POST", path(mirror.name, "truncate"), {}) });
  if (done !== undefined) { toast(`${count(done.truncated.length)} partitions cut back`); await refresh(); }
}

async function remove(mirror) {
  const done = await ask("Delete the mirror", [
    h("p", null, `${mirror.name} is forgotten.`),
    h("p", { class: "soft" }, isOutward(mirror) ? "Its copies stay in the other cluster." : "Its copies stay, and stay read-only; a mirror of the same name goes on with them. Promote them to make them ordinary topics."),
  ], { button: "Delete", danger: true, work: () => going(() => send("DELETE", path(mirror.name))) });
  if (done !== undefined) location.href = "/console/mirrors";
}

// ── one mirror ──

let shownActions = "";
function actions(mirror) {
  const isPaused = mirror.state === "paused";
  // They stay while nothing changes for them, so that a click or the focus is never lost.
  const key = JSON.stringify([mirror.state, mirror.definition, cuttable(mirror).length]);
  if (!mayChange || key === shownActions) return;
  shownActions = key;
  const button = (label, work, attributes) => h("button", { type: "button", onclick: work, ...attributes }, label);
  show(byId("tools"), isPaused ? button("Resume", () => pause(mirror, false)) : button("Pause", () => pause(mirror, true)),
    !isOutward(mirror) && button("Change…", () => change(mirror)),
    cuttable(mirror).length > 0 && button("Cut back…", () => truncate(mirror), { class: "danger" }),
    !isOutward(mirror) && button("Promote all…", () => promote(mirror), { class: "danger" }),
    button("Delete…", () => remove(mirror), { class: "danger" }));
}

function topicRow(mirror, { topic, partitions: all }) {
  const states = [...new Set(all.map((one) => one.state))];
  return h("tr", { "data-topic": topic },
    h("td", null, h("a", { href: `/console/topics${query({ topic })}` }, topic)), h("td", null, h("div", { class: "row" }, states.map(chip))),
    h("td", { class: "num" }, count(all.length)), h("td", { class: "num" }, count(all.reduce((sum, one) => sum + (one.lag ?? 0), 0))),
    mayChange && h("td", { class: "num" }, !isOutward(mirror) && !states.includes("refused") && h("button", { type: "button", class: "danger", "aria-label": `Promote ${topic}`, onclick: () => promote(mirror, topic) }, "Promote…")));
}

const partitionRow = (one) => h("tr", { "data-partition": `${one.topic}-${one.partition}` },
  h("td", null, `${one.topic}-${one.partition}`), h("td", null, chip(one.state)),
  h("td", { class: "num" }, count(one.offset)), h("td", { class: "num" }, count(one.source_end)), h("td", { class: "num" }, count(one.lag)),
  h("td", null, one.error ?? "", typeof one.common_end === "number" && h("p", { class: "soft" }, `Both have the same records before offset ${count(one.common_end)}.`)));

async function openOne() {
  const mirror = await get(path(state.mirror));
  const share = progress(mirror);
  const tile = (label, ...value) => h("div", { class: "tile" }, h("dt", null, label), h("dd", null, value));
  const { definition, unlisted } = mirror;
  const missing = mirror.not_copied ?? [];
  const pairs = [definition.to ? ["To", definition.to] : ["From", definition.from], ["Topics", definition.topics], ["Groups", definition.groups ?? "none"],
    ["Access rules and quotas", definition.acls ? "copied" : "not copied"], ["Limit", definition.rate === null ? "none: gives way to other clients" : `${bytes(definition.rate)}/s`]];
  actions(mirror);
  show(view,
    h("dl", { class: "tiles" }, tile("State", chip(mirror.state)), tile("Lag", count(mirror.lag), " ", h("small", null, "records")), tile("Copied", percent(share)),
      tile("Rate", mirror.bytes_per_s === undefined ? "–" : `${bytes(mirror.bytes_per_s)}/s`), tile("Stopped", count(mirror.stopped), " ", h("small", null, "partitions")),
      tile("Restarts", count(mirror.restarts))),
    bar(share, "Copied"),
    mirror.last_error && h("p", { class: mirror.state === "failed" ? "notice" : "notice warn" }, mirror.last_error),
    h("section", { class: "card", "aria-label": "Definition" }, h("dl", { class: "pairs" }, pairs.map(([name, value]) => [h("dt", null, name), h("dd", { class: "mono" }, value)]))),
    h("section", { class: "card", "aria-label": "Topics" }, table("Topics", ["Topic", "State", "#Partitions", "#Lag", ...(mayChange ? [""] : [])], (mirror.topics ?? []).map((one) => topicRow(mirror, one)), "No topic is copied yet.")),
    h("section", { class: "card", "aria-label": "Partitions" }, table("Partitions", ["Partition", "State", "#Copied up to", "#Source ends at", "#Lag", "What is wrong"], partitions(mirror).map(partitionRow), "No partition is copied yet."),
      unlisted && h("p", { class: "soft" }, `${count(unlisted.partitions)} more partitions with a lag of ${count(unlisted.lag)}.`)),
    h("section", { class: "card", "aria-labelledby": "missing-title" }, h("h2", { id: "missing-title" }, "Not copied"),
      missing.length ? h("ul", { class: "plain" }, missing.map((text) => h("li", null, text))) : h("p", { class: "soft" }, "Nothing that the mirror knows of.")));
}

let turn = 0;
async function refresh() {
  const mine = ++turn;
  try {
    await (state.mirror === undefined ? list() : openOne());
    if (mine === turn) notice("");
  } catch (problem) {
    if (mine === turn) notice(problem.message);
  }
}

// A client without the right to see mirrors gets this page without a list.
if (view) {
  if (state.mirror !== undefined) {
    byId("back").hidden = false;
    byId("title").textContent = state.mirror;
    document.title = `${state.mirror} · Stele`;
  } else if (mayChange) show(byId("tools"), h("button", { type: "button", class: "primary", onclick: () => change(null) }, "New mirror…"));
  stop = every(2000, refresh);
  window.addEventListener("popstate", () => location.reload());
}
