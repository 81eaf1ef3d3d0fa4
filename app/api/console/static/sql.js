// Runs a statement over topics and shows its rows as they come, as a grid or a chart.
import { byId, bytes, copy, count, duration, enable, h, notice, show, svg, table } from "./dom.js";
import { lines, quoted, request } from "./api.js";
import { suggestTopics } from "./topic-input.js";
import * as url from "./url.js";

const SHOWN_MAX = 1000;
const BARS_MAX = 50;
const NUMBER = /^(U?(TINY|SMALL|BIG|HUGE)INT|U?INTEGER|FLOAT|DOUBLE|DECIMAL)/;
const form = byId("statement");
const fields = form.elements;
let columns = [];
let rows = [];
let running = null;

// ── the answer ──

const isNumber = (column) => NUMBER.test(column.type);
const text = (value) => (value === null ? "null" : typeof value === "string" ? value : JSON.stringify(value));

function grid() {
  const shown = rows.slice(0, SHOWN_MAX);
  show(byId("grid"),
    table("Rows", columns.map((column) => (isNumber(column) ? `#${column.name}` : column.name)), shown.map((row) => h("tr", null,
      row.map((value, index) => h("td", { class: isNumber(columns[index]) ? "num mono" : "key mono", title: text(value) }, value === null ? h("span", { class: "soft" }, "null") : text(value))))),
      "The statement has no rows."),
    rows.length > shown.length && h("p", { class: "soft" }, `The first ${count(shown.length)} of ${count(rows.length)} rows; export CSV for all.`));
}

// One bar per row: the first column names it, the first other column of numbers is its length.
function chart() {
  const at = columns.findIndex((column, index) => index > 0 && isNumber(column));
  if (at < 0 || !rows.length) {
    show(byId("chart"), h("p", { class: "empty" }, "A chart needs a column of names, and one of numbers after it."));
    return;
  }
  const shown = rows.slice(0, BARS_MAX).map((row) => [text(row[0]), Number(row[at] ?? 0)]);
  const most = Math.max(...shown.map(([, value]) => Math.abs(value)), Number.MIN_VALUE);
  show(byId("chart"),
    table(`${columns[at].name} by ${columns[0].name}`, [columns[0].name, `#${columns[at].name}`, ""], shown.map(([name, value]) => h("tr", null,
      h("td", { class: "key mono", title: name }, name), h("td", { class: "num mono" }, String(value)),
      h("td", { class: "cut" }, h("div", { class: "meter" }, svg("svg", { "aria-hidden": "true", preserveAspectRatio: "none", viewBox: "0 0 100 8" },
        svg("rect", { class: "log", height: 8, width: (100 * Math.abs(value)) / most }))))))),
    rows.length > shown.length && h("p", { class: "soft" }, `The first ${BARS_MAX} of ${count(rows.length)} rows.`));
}

function view(isChart) {
  byId("grid").hidden = isChart;
  byId("chart").hidden = !isChart;
  byId("as-grid").setAttribute("aria-pressed", String(!isChart));
  byId("as-chart").setAttribute("aria-pressed", String(isChart));
  if (isChart) chart();
}

function draw() {
  byId("answer").hidden = false;
  grid();
  if (!byId("chart").hidden) chart();
}

// ── running ──

const body = () => ({ sql: fields.sql.value, limit: Number(fields.limit.value) });

function progressed({ offsets, of, bytes: size }) {
  byId("progress").max = Math.max(of, 1);
  byId("progress").value = Math.min(offsets, of);
  byId("status").textContent = `${count(offsets)} of ${count(of)} offsets read, ${bytes(size)}`;
}

async function run() {
  running?.abort();
  const mine = running = new AbortController();
  [columns, rows] = [[], []];
  notice("");
  byId("answer").hidden = true;
  byId("status").textContent = "Running…";
  byId("progress").removeAttribute("value");
  byId("progress").hidden = byId("stop").hidden = false;
  url.write(body(), { push: true });
  let isEnded = false;
  try {
    for await (const line of lines("POST", "/v1/sql", { body: body(), signal: mine.signal, headers: { Accept: "application/x-ndjson" } })) {
      if (line.progress) progressed(line.progress);
      else if (line.columns) columns = line.columns;
      else if (line.rows) {
        const isFirst = !rows.length;
        rows.push(...line.rows);
        if (isFirst) draw();
      } else if (line.error) throw new Error(line.error.detail);
      else if (line.end) {
        isEnded = true;
        byId("status").textContent = `${count(line.end.row_count)} rows${line.end.is_truncated ? ", and there are more" : ""} in ${duration(line.end.elapsed_ms)}, ${bytes(line.end.bytes)} read`;
      }
    }
    if (!isEnded) throw new Error("The answer has no end: the broker broke it off.");
    draw();
  } catch (problem) {
    if (mine !== running) return;
    byId("status").textContent = problem.name === "AbortError" ? "Stopped." : "";
    if (problem.name !== "AbortError") notice(problem.message);
    if (rows.length) draw();
  } finally {
    if (mine === running) {
      byId("progress").hidden = byId("stop").hidden = true;
      running = null;
    }
  }
}

async function exportCsv() {
  try {
    const response = await request("POST", "/v1/sql", { body: { sql: fields.sql.value }, headers: { Accept: "text/csv" } });
    const address = URL.createObjectURL(await response.blob());
    h("a", { href: address, download: "answer.csv" }).click();
    URL.revokeObjectURL(address);
  } catch (problem) {
    notice(problem.message);
  }
}

form.addEventListener("submit", (event) => { event.preventDefault(); run(); });
fields.sql.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
});
byId("stop").addEventListener("click", () => running?.abort());
byId("as-grid").addEventListener("click", () => view(false));
byId("as-chart").addEventListener("click", () => view(true));
byId("csv").addEventListener("click", () => { if (form.reportValidity()) exportCsv(); });
byId("curl").addEventListener("click", () => {
  if (form.reportValidity()) copy(`curl -sN ${quoted(new URL("/v1/sql", location.href).href)} --json ${quoted(JSON.stringify(body()))}`);
});
fields.topic.addEventListener("change", () => {
  const name = fields.topic.value.trim();
  if (!name) return;
  const table = `"${name}"`;
  if (fields.sql.value.trim()) fields.sql.setRangeText(table, fields.sql.selectionStart, fields.sql.selectionEnd, "end");
  else fields.sql.value = `select * from ${table} limit 100`;
  fields.topic.value = "";
  fields.sql.focus();
});

const saved = url.read();
fields.sql.value = saved.sql ?? "";
if (saved.limit) fields.limit.value = saved.limit;
suggestTopics(fields.topic, byId("topics"));
enable("run", "csv", "curl");
window.addEventListener("pagehide", () => running?.abort());
