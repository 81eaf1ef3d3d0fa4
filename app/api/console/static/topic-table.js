// The table of a compacted topic: a row per key that follows the changes, and the look-up of one key.
import { copy, count, h, labelled, notice, show, utc } from "./dom.js";
import { curl, part, query, refusal } from "./api.js";
import { parsedRecord } from "./json-text.js";
import { KEYS_MAX, PREVIEW, ROWS_MAX, TableRows } from "./table-rows.js";
import { detail, moment, oneLine } from "./record.js";
import { keyLookup } from "./key-lookup.js";

// Until the next attempt after a refusal that may pass, such as too many tables read at once.
const RETRY_MS = 3000;
const HEADS = ["", "Key", "Value", "#Partition", "#Offset", "Time"];

// A row of the table. An opened record stays as it is when a newer one comes: somebody is reading it.
class Row {
  #topic;
  #record = null;
  #inside = null;
  #state = null;
  #open = h("button", { type: "button", class: "open", "aria-expanded": "false" }, "▸");
  #cells = ["", "key mono", "cut mono", "num mono", "num mono", "time mono"].map((kind) => h("td", { class: kind }));
  element = h("tr", { class: "record" }, this.#cells);

  constructor(topic, record) {
    this.#topic = topic;
    this.#cells[0].append(this.#open);
    labelled(HEADS, this.element);
    this.#open.addEventListener("click", () => this.#toggle());
    this.element.addEventListener("click", (event) => { if (!event.target.closest("button")) this.#toggle(); });
    this.update(record);
  }

  update(record) {
    if (record === this.#record) return;
    this.#record = record;
    this.element.dataset.id = `${this.#topic}/${record.partition}/${record.offset}`;
    this.#open.setAttribute("aria-label", `Open record ${record.partition}:${record.offset}`);
    const [, key, value, partition, offset, at] = this.#cells;
    show(key, oneLine(record.key, record.key_b64));
    show(value, oneLine(record.value, record.value_b64));
    show(partition, record.partition);
    show(offset, record.offset);
    show(at, moment(record.timestamp));
    at.title = utc(record.timestamp);
    if (this.#state) this.#state.textContent = `Replaced by the record at offset ${record.offset}; close and open the row to see it.`;
  }

  // Returns whether the focus was in the row.
  remove() {
    const had = this.element.contains(document.activeElement) || Boolean(this.#inside?.contains(document.activeElement));
    this.#inside?.remove();
    this.element.remove();
    return had;
  }

  async #toggle() {
    if (this.#inside) {
      this.#inside.remove();
      this.#inside = this.#state = null;
      this.#open.setAttribute("aria-expanded", "false");
      this.#open.textContent = "▸";
      return;
    }
    const content = h("div", null, h("p", { class: "soft" }, "reading…"));
    this.#state = h("p", { class: "soft", role: "status" }, "The newest record of its key.");
    this.#inside = h("tr", { class: "detail" }, h("td", { colspan: HEADS.length }, this.#state, content));
    this.element.after(this.#inside);
    this.#open.setAttribute("aria-expanded", "true");
    this.#open.textContent = "▾";
    try {
      show(content, await detail(this.#topic, this.#record));
    } catch (problem) {
      show(content, h("p", { class: "notice" }, problem.message));
    }
  }
}

export function topicTable(topic, state) {
  const tablePath = `/v1/topics/${part(topic)}/table`;
  const path = tablePath + query({ preview: PREVIEW });
  const status = h("p", { class: "soft", role: "status" }, "Not read yet.");
  const beyond = h("p", { class: "soft" });
  const body = h("tbody");
  const heads = HEADS.map((head) => h("th", { scope: "col", class: head.startsWith("#") ? "num" : null }, head.replace("#", "") || h("span", { class: "fine" }, "")));
  const results = h("div", { id: "results", class: "scroll", tabindex: "0", role: "group", "aria-label": "Rows of the table" },
    h("table", null, h("caption", null, "Rows of the table"), h("thead", null, h("tr", null, heads)), body));
  const button = h("button", { type: "button", onclick: press }, "Pause");
  const lookup = keyLookup(topic, state);
  const element = h("div", { class: "stack" }, lookup.element,
    h("section", { class: "card", "aria-label": "Table" },
      h("header", null, status, h("span", { class: "grow" }), button,
        h("button", { type: "button", class: "quiet", onclick: () => copy(curl(tablePath)) }, "Copy as curl"),
        h("a", { class: "button quiet", href: tablePath + query({ decode: "raw" }), download: `${topic}.ndjson` }, "Export NDJSON")),
      results, beyond));

  const drawn = new Map();
  let rows = new TableRows();
  let source = null;
  let frame = 0;
  let retry = 0;
  // "idle", "connecting", "reading", "live", "lost" or "ended".
  let phase = "idle";
  // True if `rows` has the whole table, and changes follow.
  let isComplete = false;
  let isPaused = false;
  // Changes since the pause.
  let waiting = 0;
  let hasProblem = false;

  function said() {
    const keys = count(rows.count) + (rows.count === 1 ? " key" : " keys");
    if (phase === "connecting") return "Connecting…";
    if (phase === "lost") return "Connection lost, reconnecting…";
    if (phase === "ended") return rows.isOver ? `More than ${count(KEYS_MAX)} keys; their changes are not followed` : "Ended";
    if (isPaused) return `Paused: ${count(waiting)} ${waiting === 1 ? "change" : "changes"} since then`;
    return phase === "reading" ? `Reading the table: ${keys} so far` : `Live: ${keys}`;
  }

  function saidBeyond() {
    const long = rows.left > 0 ? `Records with keys of about ${count(PREVIEW)} bytes or more are not shown. ` : "";
    if (rows.count <= rows.shown.size && !rows.isOver) return isComplete && !rows.count ? `${long}The table is empty.` : long;
    const all = rows.isOver ? `more than ${count(KEYS_MAX)}` : count(rows.count);
    return `${long}${count(rows.shown.size)} of ${all} keys are shown, at most ${count(ROWS_MAX)}. Look up any other key, or export the table.`;
  }

  function draw() {
    frame = 0;
    status.textContent = said();
    button.textContent = phase === "ended" ? "Read again" : isPaused ? "Resume" : "Pause";
    results.setAttribute("aria-busy", String(phase === "connecting" || phase === "reading"));
    // A table that is read again replaces the old rows when it is complete.
    if (isPaused || !(isComplete || rows.isOver || drawn.size === 0)) return;
    for (const [id, row] of drawn) {
      if (rows.shown.has(id)) continue;
      if (row.remove()) results.focus();
      drawn.delete(id);
    }
    const added = [];
    for (const [id, record] of rows.shown) {
      const row = drawn.get(id);
      if (row) row.update(record);
      else {
        drawn.set(id, new Row(topic, record));
        added.push(drawn.get(id).element);
      }
    }
    body.append(...added);
    beyond.textContent = saidBeyond();
  }

  function redraw() {
    if (!frame) frame = requestAnimationFrame(draw);
  }

  function start() {
    stop();
    phase = "connecting";
    isComplete = false;
    const mine = new EventSource(path);
    source = mine;
    mine.addEventListener("open", () => {
      if (isComplete) phase = "live";
      redraw();
    });
    mine.addEventListener("start-of-snapshot", () => {
      rows = new TableRows();
      isComplete = false;
      phase = "reading";
      hasProblem = false;
      redraw();
    });
    mine.addEventListener("end-of-snapshot", () => {
      isComplete = true;
      phase = "live";
      if (!hasProblem) notice("");
      redraw();
    });
    mine.addEventListener("message", (event) => {
      rows.apply(parsedRecord(event.data));
      if (isPaused && isComplete) waiting += 1;
      if (rows.isOver) {
        close();
        isPaused = isComplete = false;
        phase = "ended";
      }
      redraw();
    });
    mine.addEventListener("error", (event) => {
      if (event.data) {
        hasProblem = true;
        notice(JSON.parse(event.data).detail, { warn: true });
      } else if (mine.readyState === EventSource.CLOSED) refused(mine);
      else {
        phase = "lost";
        redraw();
      }
    });
    redraw();
  }

  async function refused(mine) {
    const problem = await refusal(path);
    if (source !== mine) return;
    const mayPass = !problem || !problem.status || problem.document.retriable;
    if (problem) notice(problem.message, { warn: mayPass });
    phase = mayPass ? "lost" : "ended";
    if (mayPass) retry = setTimeout(start, RETRY_MS);
    redraw();
  }

  function press() {
    if (phase === "ended") {
      start();
      return;
    }
    isPaused = !isPaused;
    waiting = 0;
    redraw();
  }

  function close() {
    source?.close();
    source = null;
    clearTimeout(retry);
  }

  function stop() {
    close();
    phase = "idle";
  }

  return {
    element,
    start() {
      if (phase === "idle") start();
    },
    stop,
    look() { if (state.key) lookup.look(); },
  };
}
