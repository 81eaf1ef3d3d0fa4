import { byId, count, h, notice, show, table } from "./dom.js";
import { get } from "./api.js";
import * as keys from "./keys.js";
import * as quotas from "./quotas.js";
import * as rules from "./rules.js";
import * as url from "./url.js";
import * as users from "./users.js";

// Rows shown of each table; the search finds the others.
const ROWS = 200;
const state = url.read();
const search = byId("search");

// The template leaves out the sections that the client may not see.
const sections = [users, keys, rules, quotas].map((kind) => ({ kind, card: byId(kind.ID), entries: [], problem: "" })).filter((section) => section.card);

function shown({ kind, card, entries, problem }) {
  const rows = card.querySelector(".rows");
  if (problem) {
    show(rows, h("p", { class: "empty" }, problem));
    return;
  }
  const wanted = (state.search ?? "").toLowerCase();
  const found = entries.filter((entry) => kind.text(entry).toLowerCase().includes(wanted));
  const mayChange = "changes" in card.dataset;
  const body = found.slice(0, ROWS).map((entry) => h("tr", null, kind.cells(entry),
    mayChange && h("td", { class: "num" }, h("div", { class: "row end" }, kind.buttons(entry, refresh, card.dataset)))));
  show(rows, table(`${count(found.length)} of ${count(entries.length)}`, mayChange ? [...kind.HEADS, ""] : kind.HEADS, body,
    entries.length ? "Nothing has this in its name." : kind.EMPTY),
  found.length > ROWS && h("p", { class: "soft" }, `The first ${count(ROWS)} are shown. Search for others.`));
}

async function load(section) {
  try {
    section.entries = section.kind.entries(await get(section.kind.PATH));
    section.problem = "";
  } catch (problem) {
    // Without logins or rules, one section has no data, and the others do.
    section.entries = [];
    section.problem = problem.message;
  }
  section.card.querySelector(".new")?.toggleAttribute("disabled", section.problem !== "");
  shown(section);
}

async function refresh() {
  notice("");
  await Promise.all(sections.map(load));
}

for (const { kind, card } of sections) card.querySelector(".new")?.addEventListener("click", () => kind.add(refresh, card.dataset));
if (search) {
  search.value = state.search ?? "";
  search.addEventListener("input", () => {
    state.search = search.value.trim();
    url.write(state);
    sections.forEach(shown);
  });
}
refresh();
window.addEventListener("popstate", () => location.reload());
