import { byId, bytes, count, duration, enable, h, notice, show, table, toast } from "./dom.js";
import { get, part, query, send } from "./api.js";
import { ask, askWithName } from "./dialog.js";
import { pagesOf, relist, searchBox, showPager } from "./pages.js";
import { tabList } from "./tabs.js";
import { topicTable } from "./topic-table.js";
import * as url from "./url.js";

const LIMIT = 50;
const state = url.read();
const order = byId("order");
order.value = state.order ?? "name";
const internal = byId("internal");
internal.checked = Boolean(state.internal);
let turn = 0;

// ── the list ──

async function list() {
  const mine = ++turn;
  const page = Number(state.page ?? 1);
  try {
    const answer = await get(`/v1/topics${query({ search: state.search, page, limit: LIMIT, sizes: true, order: state.order, internal: state.internal ? "" : false })}`);
    if (mine !== turn) return;
    notice("");
    const rows = answer.topics.map((topic) => h("tr", null,
      h("td", null, h("a", { href: `/console/topics${query({ topic: topic.name })}` }, topic.name),
        topic.storage === "memory" && [" ", h("span", { class: "chip plain" }, "memory")]),
      h("td", { class: "num" }, count(topic.partition_count)),
      h("td", { class: "num" }, count(topic.records)),
      h("td", { class: "num" }, bytes(topic.size_bytes)),
      h("td", { class: "num" }, duration(topic.retention_ms)),
      h("td", { class: "num" }, h("a", { href: `/console/messages${query({ topic: topic.name })}`, "aria-label": `Messages of ${topic.name}` }, "messages"))));
    const pages = pagesOf(answer.total, LIMIT);
    if (page > pages) {
      // The page does not exist, because topics were deleted or the address is old: show the last one.
      state.page = pages;
      url.write(state);
      list();
      return;
    }
    const others = state.internal ? "" : " Internal topics are hidden.";
    const empty = state.search ? `No topic has “${state.search}” in its name.${others}` : "No topics yet. Create one, or produce to a new name.";
    show(byId("list"), table(`${count(answer.total)} topics`, ["Name", "#Partitions", "#Records", "#Size", "#Retention", "#"], rows, empty));
    showPager(state, pages, list);
  } catch (problem) {
    notice(problem.message);
  }
}

order.addEventListener("change", () => {
  state.order = order.value === "name" ? "" : order.value;
  relist(state, list);
});
internal.addEventListener("change", () => {
  state.internal = internal.checked ? 1 : "";
  relist(state, list);
});
searchBox(state, list);

function configLines(text) {
  const configs = {};
  for (const line of text.split("\n").map((entry) => entry.trim()).filter(Boolean)) {
    const equals = line.indexOf("=");
    if (equals < 1) throw new Error(`“${line}” is not NAME=VALUE`);
    configs[line.slice(0, equals).trim()] = line.slice(equals + 1).trim();
  }
  return configs;
}

byId("new").addEventListener("click", async () => {
  const fields = [
    h("label", null, "Name", h("input", { name: "name", required: true, maxlength: 249, pattern: "[a-zA-Z0-9._\\-]+", autocomplete: "off", spellcheck: "false" })),
    h("label", null, "Partitions", h("input", { name: "partitions", type: "number", min: 1, max: 10000, value: 1, required: true })),
    h("label", null, "Configuration, one NAME=VALUE per line", h("textarea", { name: "configs", rows: 4, placeholder: "retention.ms=86400000", spellcheck: "false" })),
  ];
  const made = await ask("New topic", fields, {
    button: "Create",
    work: async (form) => {
      const name = form.elements.name.value.trim();
      await send("PUT", `/v1/topics/${part(name)}`, { partitions: Number(form.elements.partitions.value), configs: configLines(form.elements.configs.value) });
      return name;
    },
  });
  if (made) location.href = `/console/topics${query({ topic: made })}`;
});

// ── one topic ──

const DETAILS = "Details";
const TABLE = "Table";
let tableView = null;

function closeTable() {
  tableView?.stop();
  tableView = null;
}

// Returns `details`, with a tab for the table beside them if the topic is compacted.
function tabbed(topic, details) {
  if (!topic.effective_configs["cleanup.policy"].includes("compact")) {
    closeTable();
    return details;
  }
  tableView ??= topicTable(topic.name, state);
  const panels = {
    [DETAILS]: h("div", { class: "stack", role: "tabpanel", "aria-label": DETAILS }, details),
    [TABLE]: h("div", { role: "tabpanel", "aria-label": TABLE }, tableView.element),
  };
  const tabs = tabList(`Views of ${topic.name}`, [DETAILS, TABLE], (chosen) => {
    for (const [name, panel] of Object.entries(panels)) panel.hidden = name !== chosen;
    if (chosen === TABLE) tableView.start();
    else tableView.stop();
    const tab = chosen === TABLE ? "table" : "";
    if (tab === (state.tab ?? "")) return;
    state.tab = tab;
    url.write(state, { push: true });
  });
  tabs.choose(state.tab === "table" ? TABLE : DETAILS);
  return [tabs.element, panels[DETAILS], panels[TABLE]];
}

function describe(topic) {
  const name = topic.name;
  document.title = `${name} · Stele`;
  byId("title").textContent = name;
  const records = topic.partitions.reduce((sum, partition) => sum + partition.high_watermark - partition.log_start_offset, 0);
  const size = topic.partitions.reduce((sum, partition) => sum + partition.size_bytes, 0);
  const tile = (label, value) => h("div", { class: "tile" }, h("dt", null, label), h("dd", null, value));
  const partitions = table("Partitions", ["Partition", "#First offset", "#End offset", "#Records", "#Synced to", "#Size", "#Segments", "#"],
    topic.partitions.map((partition) => h("tr", null,
      h("td", null, partition.partition),
      h("td", { class: "num" }, count(partition.log_start_offset)),
      h("td", { class: "num" }, count(partition.high_watermark)),
      h("td", { class: "num" }, count(partition.high_watermark - partition.log_start_offset)),
      h("td", { class: "num" }, count(partition.synced_offset)),
      h("td", { class: "num" }, bytes(partition.size_bytes)),
      h("td", { class: "num" }, count(partition.segments)),
      h("td", { class: "num" }, h("a", { href: `/console/storage${query({ topic: name, partition: partition.partition })}`, "aria-label": `Segments of partition ${partition.partition}` }, "segments")))));
  const configs = table("Configuration", ["Name", "In effect", ""], Object.entries(topic.effective_configs).map(([key, value]) => {
    const isSet = key in topic.configs;
    return h("tr", null, h("td", { class: "mono" }, key),
      h("td", { class: "mono" }, value, " ", isSet && h("span", { class: "chip" }, "set")),
      h("td", { class: "num" },
        isSet && h("button", { type: "button", class: "quiet", "aria-label": `Reset ${key} to its default`, onclick: () => alter({ configs: { [key]: null } }) }, "default"),
        h("button", { type: "button", class: "quiet", "aria-label": `Edit ${key}`, onclick: () => edit(key, value) }, "edit")));
  }));
  show(byId("topic"),
    h("dl", { class: "tiles" }, tile("Records", count(records)), tile("Size", bytes(size)), tile("Partitions", count(topic.partition_count)),
      tile("Retention", duration(Number(topic.effective_configs["retention.ms"])))),
    h("div", { class: "row" },
      h("a", { class: "button primary", href: `/console/messages${query({ topic: name })}` }, "Messages"),
      h("a", { class: "button", href: `/console/produce${query({ topic: name })}` }, "Produce"),
      h("a", { class: "button", href: `/console/schemas${query({ search: name })}` }, "Schemas"),
      h("button", { type: "button", onclick: grow }, "Add partitions"),
      h("button", { type: "button", class: "danger", onclick: purge }, "Purge…"),
      h("button", { type: "button", class: "danger", onclick: remove }, "Delete…")),
    tabbed(topic, [h("section", { class: "card" }, partitions), h("section", { class: "card" }, configs)]));

  async function alter(change) {
    try {
      describe(await send("PATCH", `/v1/topics/${part(name)}`, change));
      toast("Changed");
    } catch (problem) {
      notice(problem.message);
    }
  }
  async function edit(key, value) {
    const changed = await ask(`Edit ${key}`, h("label", null, key, h("input", { name: "value", value, autocomplete: "off" })), {
      button: "Save",
      work: (form) => send("PATCH", `/v1/topics/${part(name)}`, { configs: { [key]: form.elements.value.value.trim() } }),
    });
    if (changed) { describe(changed); toast(`${key} changed`); }
  }
  async function grow() {
    const least = topic.partition_count + 1;
    const fields = [h("p", null, "New records may go to other partitions than earlier records with the same key. The number cannot be reduced."),
      h("label", null, "Partitions", h("input", { name: "partitions", type: "number", min: least, value: least, required: true }))];
    const changed = await ask("Add partitions", fields, {
      button: "Add",
      work: (form) => send("PATCH", `/v1/topics/${part(name)}`, { partitions: Number(form.elements.partitions.value) }),
    });
    if (changed) { closeTable(); describe(changed); }
  }
  async function purge() {
    const text = `All ${count(records)} records are deleted permanently. The topic and its configuration remain, and its offsets continue.`;
    const done = await askWithName("Purge a topic", text, name, "Purge", () => send("DELETE", `/v1/topics/${part(name)}/records`));
    if (done) { toast(`${count(done.partitions.reduce((sum, partition) => sum + partition.deleted, 0))} records deleted`); open(); }
  }
  async function remove() {
    const done = await askWithName("Delete a topic", "The topic and all its records are deleted permanently.", name, "Delete",
      async () => { await send("DELETE", `/v1/topics/${part(name)}`); return true; });
    if (done) location.href = "/console/topics";
  }
}

async function open() {
  byId("tools").hidden = true;
  byId("back").hidden = false;
  byId("title").textContent = state.topic;
  try {
    const topic = await get(`/v1/topics/${part(state.topic)}`);
    // Its records may have been purged.
    closeTable();
    describe(topic);
    if (state.tab === "table") tableView?.look();
  } catch (problem) {
    notice(problem.message);
  }
}

enable("new");
window.addEventListener("popstate", () => location.reload());
window.addEventListener("pagehide", () => tableView?.stop());
window.addEventListener("pageshow", (event) => { if (event.persisted && state.tab === "table") tableView?.start(); });
if (state.topic) open();
else list();
