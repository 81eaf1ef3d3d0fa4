import { byId, count, duration, every, h, notice, show, table, time, toast } from "./dom.js";
import { get, part, query, send } from "./api.js";
import { ask } from "./dialog.js";
import { pagesOf, searchBox, showPager } from "./pages.js";
import * as url from "./url.js";

const LIMIT = 50;
const ROWS = 500;
const OPEN = "Ongoing,PrepareCommit,PrepareAbort";
const state = url.read();

// ── aborting ──

async function abort(title, what, path) {
  const done = await ask(title, [
    h("p", null, what),
    h("p", { class: "soft" }, "Its records are never delivered to readers of committed records, and its producer is fenced: it must begin again."),
  ], { button: "Abort", danger: true, work: () => send("DELETE", path) });
  if (done !== undefined) { toast("Transaction aborted"); refresh(); }
}

function abortId(id) {
  // Browsers resolve these names as path segments, even if they are encoded.
  if (id === "." || id === "..") notice(`Browsers cannot request a transaction with this id. Use a shell: stele transactions abort ${id}`);
  else abort("Abort the transaction", `Abort the open transaction of ${id} in all its partitions?`, `/v1/transactions/${part(id)}`);
}

const abortThere = (row) => abort("Abort the transaction in this partition", `Abort what producer ${row.producer_id} has open in ${row.topic}-${row.partition}?`,
  `/v1/topics/${part(row.topic)}/partitions/${row.partition}/transactions/${row.producer_id}`);

// ── open transactions, oldest first ──

function listed(answer) {
  return answer.transactions.map((row) => h("tr", { "data-id": row.transactional_id },
    h("td", { class: "key mono", title: row.transactional_id }, row.transactional_id),
    h("td", null, h("span", { class: row.state === "Ongoing" ? "chip" : "chip plain" }, row.state)),
    h("td", { class: "num" }, String(row.producer_id)),
    h("td", null, time(row.started_at)),
    h("td", { class: "num" }, duration(Math.max(0, answer.now - row.started_at))),
    h("td", null, h("button", { type: "button", class: "danger", "aria-label": `Abort the transaction of ${row.transactional_id}`, onclick: () => abortId(row.transactional_id) }, "Abort…"))));
}

function held(answer) {
  return answer.transactions.filter((row) => row.holds_back || row.hanging).map((row) => h("tr", { "data-partition": `${row.topic}-${row.partition}` },
    h("td", null, h("a", { href: `/console/topics${query({ topic: row.topic })}` }, `${row.topic}-${row.partition}`)),
    h("td", { class: "num" }, count(row.first_offset)),
    h("td", { class: "key mono", title: row.transactional_id ?? "" }, row.transactional_id ?? h("span", { class: "chip bad" }, "hanging")),
    h("td", { class: "num" }, String(row.producer_id)),
    h("td", { class: "num" }, duration(Math.max(0, answer.now - row.since))),
    h("td", null, row.hanging && h("button", { type: "button", class: "danger", "aria-label": `Abort producer ${row.producer_id} in ${row.topic}-${row.partition}`, onclick: () => abortThere(row) }, "Abort…"))));
}

let turn = 0;
async function refresh() {
  const mine = ++turn;
  const page = Number(state.page ?? 1);
  try {
    const [open, holds] = await Promise.all([
      get(`/v1/transactions${query({ state: OPEN, order: "oldest", search: state.search, page, limit: LIMIT })}`),
      get(`/v1/open-transactions${query({ limit: ROWS })}`),
    ]);
    if (mine !== turn) return;
    notice("");
    show(byId("list"), table(`${count(open.total)} open transactions`, ["Transactional id", "State", "#Producer", "Started", "#Open for", ""], listed(open),
      state.search ? `No open transaction has “${state.search}” in its id.` : "No transaction is open."));
    showPager(state, pagesOf(open.total, LIMIT), refresh);
    const more = holds.total - holds.transactions.length;
    show(byId("held"), table("Partitions held back", ["Partition", "#Held at", "Transactional id", "#Producer", "#Open for", ""], held(holds), "No partition is held back."),
      more > 0 && h("p", { class: "soft" }, `${count(more)} younger ones are not shown.`));
  } catch (problem) {
    if (mine === turn) notice(problem.message);
  }
}

searchBox(state, refresh);
every(2000, refresh);
window.addEventListener("popstate", () => location.reload());
