import { byId, count, h, notice, show, table, toast } from "./dom.js";
import { get, query, send } from "./api.js";
import { ask } from "./dialog.js";
import { LEVELS, MODES, inEffect, link, path, rulePath, subjectPath, typeOf } from "./registry.js";
import { pagesOf, relist, searchBox, showPager } from "./pages.js";
import { newSchema } from "./schema-form.js";
import { subjectView } from "./subject.js";
import * as url from "./url.js";

const LIMIT = 25;
const state = url.read();
let turn = 0;

// ── rules ──

const INHERIT = "";
const NO_RULE = 404;

// Asks for the level or the mode of a subject, or of all subjects, and sets it. Returns whether it was set.
async function changeRule(kind, current, subject) {
  const [title, field, values] = kind === "config" ? ["compatibility", "compatibility", LEVELS] : ["mode", "mode", MODES];
  const select = h("select", { name: "rule" }, h("option", { value: INHERIT }, subject === undefined ? "The default" : "That of all subjects"),
    values.map((value) => h("option", { value }, value)));
  if (values.includes(current)) select.value = current;
  const set = async () => {
    if (select.value !== INHERIT) return send("PUT", rulePath(kind, subject), { [field]: select.value });
    try {
      return await send("DELETE", rulePath(kind, subject));
    } catch (problem) {
      if (problem.status === NO_RULE) return null;
      throw problem;
    }
  };
  const done = await ask(`Set the ${title}`, [h("p", null, subject === undefined ? "Of all subjects without one of their own." : `Of ${subject}.`),
    h("label", null, kind === "config" ? "Compatibility" : "Mode", select)], { button: "Set", work: set });
  if (done !== undefined) toast(`The ${title} was set`);
  return done !== undefined;
}

async function showGlobal() {
  const section = byId("global");
  if (!section) return;
  const [level, mode] = await Promise.all([inEffect("config"), inEffect("mode")]);
  const button = (kind, label, current) => "changes" in section.dataset && h("button", { type: "button", class: "quiet", "aria-label": `Set the ${label} of all subjects`,
    onclick: async () => { if (await changeRule(kind, current)) { showGlobal(); list(); } } }, "Set…");
  show(section, h("div", { class: "row" }, h("span", { class: "soft" }, "All subjects:"), h("span", null, "compatibility ", h("span", { class: "chip plain" }, level)),
    button("config", "compatibility", level), h("span", null, "mode ", h("span", { class: "chip plain" }, mode)), button("mode", "mode", mode)));
  section.hidden = false;
}

// ── the list ──

// Fills the cells of a row, which need requests of their own.
async function fill(name, isDeleted, { type, version, id, level }) {
  const latest = get(subjectPath(name, "versions", "latest") + query({ deleted: isDeleted || "" }));
  const [rule, { value: schema }] = await Promise.allSettled([inEffect("config", name), latest]);
  show(level, rule.value);
  // The client may see the name alone.
  if (!schema) return;
  show(type, typeOf(schema));
  show(version, count(schema.version));
  show(id, schema.id);
}

function row(name, isDeleted) {
  const cells = { type: h("td"), version: h("td", { class: "num" }), id: h("td", { class: "num" }), level: h("td") };
  fill(name, isDeleted, cells);
  return h("tr", null, h("td", null, h("a", { href: link(name) }, name), isDeleted && [" ", h("span", { class: "chip warn" }, "deleted")]), Object.values(cells));
}

async function list() {
  const mine = ++turn;
  const search = (state.search ?? "").toLowerCase();
  try {
    const [names, living] = await Promise.all([get(path("subjects") + query({ deleted: state.deleted && true })), state.deleted ? get(path("subjects")) : null]);
    if (mine !== turn) return;
    notice("");
    const isLiving = new Set(living ?? names);
    const found = names.filter((name) => name.toLowerCase().includes(search));
    const pages = pagesOf(found.length, LIMIT);
    const page = Math.min(Number(state.page ?? 1), pages);
    const rows = found.slice((page - 1) * LIMIT, page * LIMIT).map((name) => row(name, !isLiving.has(name)));
    const empty = state.search ? `No subject has “${state.search}” in its name.` : "No subjects yet. A serializer registers its schema, or register one here.";
    show(byId("list"), table(found.length === 1 ? "1 subject" : `${count(found.length)} subjects`, ["Name", "Type", "#Version", "#Id", "Compatibility"], rows, empty));
    showPager(state, pages, list);
  } catch (problem) {
    notice(problem.message);
  }
}

function openList() {
  const deleted = byId("deleted");
  deleted.checked = Boolean(state.deleted);
  deleted.addEventListener("change", () => { state.deleted = deleted.checked ? 1 : ""; relist(state, list); });
  searchBox(state, list);
  showGlobal();
  list();
}

// ── one subject ──

async function open() {
  byId("tools").hidden = true;
  byId("back").hidden = false;
  const title = state.subject ?? (state.new ? "New subject" : `Schema ${state.id}`);
  byId("title").textContent = title;
  document.title = `${title} · Stele`;
  try {
    if (state.id && state.subject === undefined) {
      // A record names the id alone.
      const [found] = await get(path("schemas", "ids", state.id, "versions") + query({ deleted: true }));
      if (!found) throw new Error(`You may see no subject with the schema ${state.id}.`);
      location.replace(link(found.subject, found.version));
    } else if (state.subject === undefined) show(byId("subject"), newSchema({ registered: (subject, version) => { location.href = link(subject, version); } }));
    else show(byId("subject"), await subjectView(state, { changeRule, reopen: open }));
  } catch (problem) {
    notice(problem.message);
  }
}

// A broker without a registry serves this page without a list.
if (byId("list")) {
  window.addEventListener("popstate", () => location.reload());
  if (state.subject !== undefined || state.id || state.new) open();
  else openList();
}
