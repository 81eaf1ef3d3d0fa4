import { byId, bytes, count, enable, h, notice, show, table, time, toast } from "./dom.js";
import { get, part, query, request } from "./api.js";
import { address, identity, oneLine } from "./record.js";
import { suggestTopics } from "./topic-input.js";
import * as url from "./url.js";

const FILE_BYTES_MAX = 16 * 1024 * 1024;
const REPLAY_MAX = 100;
// Records per request, so that the progress bar advances with each answer.
const LINES_PER_REQUEST = 5000;

const form = byId("write");
const fields = form.elements;
const state = url.read();

function headerRow(key = "", value = "") {
  const row = h("div", { class: "row header" },
    h("input", { "aria-label": "Header name", placeholder: "name", value: key, spellcheck: "false" }),
    h("input", { "aria-label": "Header value", placeholder: "value", value, spellcheck: "false" }),
    h("button", { type: "button", class: "quiet", "aria-label": "Remove header", onclick: () => row.remove() }, "✕"));
  return row;
}
byId("add-header").addEventListener("click", () => {
  const row = headerRow();
  byId("headers").append(row);
  row.querySelector("input").focus();
});

const headers = () => [...byId("headers").children]
  .map((row) => [...row.querySelectorAll("input")].map((input) => input.value))
  .filter(([key]) => key)
  .map(([key, value]) => ({ key, value }));

function common() {
  const record = {};
  if (fields.key.value) record.key = fields.key.value;
  if (fields.partition.value !== "") record.partition = Number(fields.partition.value);
  const given = headers();
  if (given.length) record.headers = given;
  return record;
}

function base64(data) {
  let text = "";
  for (let start = 0; start < data.length; start += 32768) text += String.fromCharCode(...data.subarray(start, start + 32768));
  return btoa(text);
}

function shape() {
  const kind = fields.kind.value;
  byId("value-field").hidden = !["text", "json", "base64"].includes(kind);
  byId("file-field").hidden = !["file", "lines", "ndjson"].includes(kind);
  byId("file").required = !byId("file-field").hidden;
  fields.key.disabled = kind === "lines" || kind === "ndjson";
}
fields.kind.addEventListener("change", shape);

const asText = (record) => JSON.stringify(record);

// Returns the JSON text of each record.
async function texts() {
  const kind = fields.kind.value;
  const text = fields.value.value;
  if (kind === "tombstone") {
    if (!fields.key.value) throw new Error("A tombstone deletes a key, so it needs one; give the key.");
    return [asText({ ...common(), value: null })];
  }
  if (kind === "text") return [asText({ ...common(), value: text })];
  if (kind === "base64") return [asText({ ...common(), value_b64: text.replaceAll(/\s/g, "") })];
  if (kind === "json") {
    try {
      JSON.parse(text);
    } catch (error) {
      throw new Error(`This is not JSON: ${error.message}`);
    }
    // As the text that was typed: numbers keep the digits that they have.
    return [asText({ ...common(), value: text })];
  }
  const [file] = byId("file").files;
  if (file.size > FILE_BYTES_MAX && kind === "file") throw new Error(`${file.name} has ${bytes(file.size)}; one record may have ${bytes(FILE_BYTES_MAX)}.`);
  if (kind === "file") return [asText({ ...common(), value_b64: base64(new Uint8Array(await file.arrayBuffer())) })];
  const given = (await file.text()).split(/\r?\n/).filter((line) => line !== "");
  if (!given.length) throw new Error(`${file.name} has no lines.`);
  if (kind === "lines") return given.map((value) => asText({ ...common(), value }));
  given.forEach((line, index) => {
    try {
      JSON.parse(line);
    } catch (error) {
      throw new Error(`Line ${index + 1} of ${file.name} is not JSON: ${error.message}`);
    }
  });
  // The lines of the file, because parsing loses digits of large numbers.
  return given;
}

function receipts(topic, answers, durability, errors) {
  const first = answers.slice(0, 50);
  show(byId("receipt"),
    h("header", null, h("h2", null, `${count(answers.length)} ${answers.length === 1 ? "record" : "records"} stored`), h("span", { class: "chip" }, durability)),
    errors.length > 0 && h("p", { class: "notice" }, `${errors.length} were refused. ${errors[0].detail ?? ""}`),
    table("Where", ["Topic", "#Partition", "#Offset", "Time", ""], first.map((result) => h("tr", null,
      h("td", null, topic), h("td", { class: "num mono" }, result.partition), h("td", { class: "num mono" }, result.offset), h("td", { class: "mono" }, time(result.timestamp)),
      h("td", { class: "num" }, h("a", { href: `/console/messages${query({ topic, start: "offset", offset: result.offset, partitions: result.partition, limit: 1, go: 1 })}` }, "view"))))),
    answers.length > first.length && h("p", { class: "soft" }, `and ${count(answers.length - first.length)} more`));
  byId("receipt").hidden = false;
}

async function store(topic, given, { acks }) {
  const stored = [];
  const errors = [];
  let durability = "";
  const bar = byId("progress");
  bar.max = given.length;
  bar.hidden = given.length <= LINES_PER_REQUEST;
  try {
    for (let start = 0; start < given.length; start += LINES_PER_REQUEST) {
      const response = await request("POST", `/v1/topics/${part(topic)}/records${query({ acks })}`, {
        body: `{"records":[${given.slice(start, start + LINES_PER_REQUEST).join(",")}]}`,
        headers: { "Content-Type": "application/json" },
      });
      const answer = await response.json();
      stored.push(...answer.records.filter((result) => result.error === undefined));
      errors.push(...(answer.errors ?? []));
      durability = answer.durability;
      bar.value = start;
    }
  } catch (problem) {
    const refused = problem.document?.errors?.[0];
    const where = refused ? ` Record ${refused.index}: ${refused.detail}` : "";
    throw new Error(`${problem.message}${where}${stored.length ? ` ${count(stored.length)} records were stored before that.` : ""}`);
  } finally {
    bar.hidden = true;
  }
  receipts(topic, stored, durability, errors);
}

async function submitted(work) {
  notice("");
  const buttons = document.querySelectorAll("main button");
  buttons.forEach((button) => { button.disabled = true; });
  try {
    await work();
  } catch (problem) {
    notice(problem.message);
  } finally {
    buttons.forEach((button) => { button.disabled = false; });
  }
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  submitted(async () => {
    const topic = fields.topic.value.trim();
    await store(topic, await texts(), { acks: fields.acks.value });
    url.write({ ...state, topic });
  });
});

// ── sending records again ──

async function replay() {
  const ids = state.replay.split(",").slice(0, REPLAY_MAX);
  const section = byId("replay");
  section.hidden = false;
  let chosen;
  try {
    chosen = await Promise.all(ids.map(async (id) => {
      const [topic, partition, offset] = id.split("/");
      return { topic, record: await get(address(topic, { partition, offset }) + query({ decode: "raw" })) };
    }));
  } catch (problem) {
    notice(problem.message);
    return;
  }
  const target = h("input", { name: "target", list: "topics", required: true, value: state.topic ?? "", spellcheck: "false" });
  const keepTime = h("input", { type: "checkbox" });
  const mark = h("input", { type: "checkbox" });
  mark.checked = true;
  suggestTopics(target, byId("topics"));
  const again = h("form", { class: "stack" },
    h("header", null, h("h2", null, `Send ${count(chosen.length)} again`)),
    table("What will be sent: key, value and headers, byte for byte", ["From", "Key", "Value"], chosen.map(({ topic, record }) => h("tr", null,
      h("td", { class: "mono" }, identity(topic, record)), h("td", { class: "key mono" }, oneLine(record.key, record.key_b64)), h("td", { class: "cut mono" }, oneLine(record.value, record.value_b64))))),
    h("div", { class: "form" }, h("label", { class: "wide" }, "To topic", target),
      h("label", { class: "check" }, keepTime, "Keep the timestamps"), h("label", { class: "check" }, mark, "Add a header with the original position")),
    h("div", { class: "row" }, h("button", { type: "submit", class: "primary" }, "Send again")));
  again.addEventListener("submit", (event) => {
    event.preventDefault();
    submitted(async () => {
      const given = chosen.map(({ topic, record }) => {
        const { partition, offset, timestamp, ...kept } = record;
        if (keepTime.checked) kept.timestamp = timestamp;
        if (mark.checked) kept.headers = [...kept.headers, { key: "stele.replayed", value: `${topic}/${partition}/${offset}` }];
        return asText(kept);
      });
      await store(target.value.trim(), given, { acks: "all" });
      toast("Sent again");
    });
  });
  show(section, again);
}

fields.topic.value = state.topic ?? "";
suggestTopics(fields.topic, byId("topics"));
shape();
enable("add-header", "store");
if (state.replay) replay();
