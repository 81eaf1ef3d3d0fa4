import { byId, bytes, count, enable, h, notice, show, table, time, toast } from "./dom.js";
import { get, part, query, request } from "./api.js";
import { address, identity, oneLine } from "./record.js";
import { badge, schemaOf, typeOf } from "./registry.js";
import { suggestTopics } from "./topic-input.js";
import * as url from "./url.js";
import { valueEditor } from "./value-editor.js";

const FILE_BYTES_MAX = 16 * 1024 * 1024;
const REPLAY_MAX = 100;
// Of what is refused, the key.
const OF_KEY = /^the key of |: its key /;
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
  if (fields.key.value && !fields.key.disabled) record.key = fields.key.value;
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
  const isOfMany = kind === "lines" || kind === "ndjson";
  byId("schema-field").hidden = byId("schema-field").disabled = kind !== "schema";
  byId("key-schema-field").hidden = byId("key-schema-field").disabled = !keyEditor || isOfMany;
  byId("file-field").hidden = !["file", "lines", "ndjson"].includes(kind);
  byId("file").required = !byId("file-field").hidden;
  fields.key.disabled = isOfMany || keyEditor !== null;
  byId("key-field").hidden = keyEditor !== null;
}
fields.kind.addEventListener("change", shape);

// ── values with a schema ──

// Ask for a value and a key of the schemas of the topic; null if it has none.
let editor = null;
let keyEditor = null;
let offered = "";

async function offerSchema() {
  const topic = fields.topic.value.trim();
  if (topic === offered || !("registry" in form.dataset)) return;
  offered = topic;
  let [schema, keySchema] = [null, null];
  try {
    if (topic) [schema, keySchema] = await Promise.all([schemaOf(topic, "value"), schemaOf(topic, "key")]);
  } catch {
    // The client may not see it, and can write the value in any other way.
  }
  if (topic !== offered) return;
  editor = schema ? valueEditor(schema, "Value") : null;
  keyEditor = keySchema ? valueEditor(keySchema, "Key", "no key") : null;
  const option = fields.kind.querySelector("[value=schema]");
  option.hidden = option.disabled = !editor;
  const section = (made, of) => made && [badge({ ...of, type: typeOf(of) }), made.element];
  show(byId("schema-field"), section(editor, schema));
  show(byId("key-schema-field"), section(keyEditor, keySchema));
  if (editor && !fields.value.value) fields.kind.value = "schema";
  else if (!editor && fields.kind.value === "schema") fields.kind.value = "text";
  shape();
}
fields.topic.addEventListener("change", offerSchema);

// Shows at its field what the broker refuses. Returns whether there is one.
function failedField(problem) {
  const { pointer, detail } = problem.document?.errors?.[0] ?? {};
  const asked = keyEditor && OF_KEY.test(detail) ? keyEditor : editor;
  if (pointer === undefined || !asked || (asked === editor && fields.kind.value !== "schema")) return false;
  // The field says where it is.
  const [where, from] = [`${pointer}: `, detail.lastIndexOf(`${pointer}: `)];
  const reason = pointer && from >= 0 ? detail.slice(from + where.length) : detail;
  asked.fail(pointer, reason);
  return true;
}

// ── records ──

const asText = (record) => JSON.stringify(record);

// Returns the JSON text of a record with this content.
const record = (content) => `{${[keyEditor && `"key":${keyEditor.json()}`, asText(common()).slice(1, -1), content].filter(Boolean).join(",")}}`;

// Where keys have a schema and are encoded, a value has to be bytes to be left as it is.
const plain = (text) => (keyEditor ? `"value_b64":${asText(base64(new TextEncoder().encode(text)))}` : `"value":${asText(text)}`);

function encodeFor(kind) {
  if (kind === "schema" || kind === "ndjson") return "";
  return keyEditor && kind !== "lines" ? "" : "raw";
}

// Returns the JSON text of each record.
async function texts() {
  const kind = fields.kind.value;
  const text = fields.value.value;
  if (kind === "tombstone") {
    const hasKey = keyEditor ? keyEditor.json() !== "null" : fields.key.value;
    if (!hasKey) throw new Error("A tombstone deletes a key, so it needs one; give the key.");
    return [record('"value":null')];
  }
  if (kind === "schema") return [record(`"value":${editor.json()}`)];
  if (kind === "text") return [record(plain(text))];
  if (kind === "base64") return [record(`"value_b64":${asText(text.replaceAll(/\s/g, ""))}`)];
  if (kind === "json") {
    try {
      JSON.parse(text);
    } catch (error) {
      throw new Error(`This is not JSON: ${error.message}`);
    }
    // As the text that was typed: numbers keep the digits that they have.
    return [record(plain(text))];
  }
  const [file] = byId("file").files;
  if (file.size > FILE_BYTES_MAX && kind === "file") throw new Error(`${file.name} has ${bytes(file.size)}; one record may have ${bytes(FILE_BYTES_MAX)}.`);
  if (kind === "file") return [record(`"value_b64":${asText(base64(new Uint8Array(await file.arrayBuffer())))}`)];
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

async function store(topic, given, { acks, encode }) {
  const stored = [];
  const errors = [];
  let durability = "";
  const bar = byId("progress");
  bar.max = given.length;
  bar.hidden = given.length <= LINES_PER_REQUEST;
  try {
    for (let start = 0; start < given.length; start += LINES_PER_REQUEST) {
      const response = await request("POST", `/v1/topics/${part(topic)}/records${query({ acks, encode })}`, {
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
    const before = stored.length ? ` ${count(stored.length)} records were stored before that.` : "";
    throw Object.assign(new Error(`${problem.message}${where}${before}`), { document: problem.document });
  } finally {
    bar.hidden = true;
  }
  receipts(topic, stored, durability, errors);
}

async function submitted(work) {
  notice("");
  editor?.clear();
  keyEditor?.clear();
  const buttons = document.querySelectorAll("main button");
  buttons.forEach((button) => { button.disabled = true; });
  try {
    await work();
  } catch (problem) {
    if (!failedField(problem)) notice(problem.message);
  } finally {
    buttons.forEach((button) => { button.disabled = false; });
  }
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  submitted(async () => {
    const topic = fields.topic.value.trim();
    await store(topic, await texts(), { acks: fields.acks.value, encode: encodeFor(fields.kind.value) });
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
      await store(target.value.trim(), given, { acks: "all", encode: "raw" });
      toast("Sent again");
    });
  });
  show(section, again);
}

fields.topic.value = state.topic ?? "";
suggestTopics(fields.topic, byId("topics"));
shape();
offerSchema();
enable("add-header", "store");
if (state.replay) replay();
