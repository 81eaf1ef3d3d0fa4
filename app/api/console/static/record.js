// Shows one record. Nothing in it is trusted, so all of it is set as text.
import { bytes, copy, h, labelled, show, time, utc } from "./dom.js";
import { curl, get, part, query } from "./api.js";
import { indented } from "./json-text.js";
import { tabList } from "./tabs.js";

// Maximum bytes shown of an opened record; the whole value can be downloaded.
const SHOWN_BYTES = 256 * 1024;
const HEX_BYTES = 4096;

export const identity = (topic, record) => `${topic}/${record.partition}/${record.offset}`;
export const address = (topic, record) =>
  `/v1/topics/${part(topic)}/partitions/${record.partition}/records/${record.offset}`;

export function rawBytes(text, b64) {
  if (b64 !== undefined) return Uint8Array.from(atob(b64), (letter) => letter.charCodeAt(0));
  return text === null || text === undefined ? null : new TextEncoder().encode(text);
}

// A text in one line; binary data and null are shown as such.
export function oneLine(text, b64) {
  if (b64 !== undefined) return h("span", { class: "soft" }, `binary ${b64.slice(0, 60)}${b64.length > 60 ? "…" : ""}`);
  if (text === null || text === undefined) return h("span", { class: "chip plain" }, "null");
  return text.length > 300 ? `${text.slice(0, 300)}…` : text;
}

export function hexDump(data) {
  const lines = [];
  for (let start = 0; start < Math.min(data.length, HEX_BYTES); start += 16) {
    const slice = [...data.slice(start, Math.min(start + 16, HEX_BYTES))];
    const hex = slice.map((byte) => byte.toString(16).padStart(2, "0")).join(" ").padEnd(47);
    const text = slice.map((byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : ".")).join("");
    lines.push(`${start.toString(16).padStart(8, "0")}  ${hex}  ${text}`);
  }
  if (data.length > HEX_BYTES) lines.push(`… the first ${HEX_BYTES} bytes`);
  return lines.join("\n");
}

function views(record) {
  const data = rawBytes(record.value, record.value_b64);
  if (data === null) return { Text: "null: a tombstone" };
  const shown = {};
  if (record.value_b64 === undefined) {
    try {
      shown.JSON = indented(record.value);
    } catch {
      // Not JSON, or cut off; the text is shown.
    }
    shown.Text = record.value;
  } else {
    shown.Text = new TextDecoder().decode(data);
  }
  shown.Hex = hexDump(data);
  return shown;
}

// Narrow screens hide the day; an opened record shows it.
export function moment(ms) {
  const [day, clock] = time(ms).split(" ");
  return clock ? [h("span", { class: "day" }, `${day} `), clock] : day;
}

// The content of an opened record.
export async function detail(topic, glimpse) {
  const path = address(topic, glimpse);
  const record = glimpse.is_cut ? await get(path + query({ preview: SHOWN_BYTES })) : glimpse;
  const shown = views(record);
  const names = Object.keys(shown);
  const body = h("pre", { tabindex: "0", "aria-label": "Value" });
  const tabs = tabList("Show as", names, (name) => { body.textContent = shown[name]; });
  tabs.choose(names[0]);
  const size = record.value_bytes ?? rawBytes(record.value, record.value_b64)?.length;
  const headers = record.headers ?? [];
  return h("div", { class: "stack" },
    h("dl", { class: "pairs" },
      h("dt", null, "Position"), h("dd", { class: "mono" }, `${topic} ${record.partition}:${record.offset}`),
      h("dt", null, "Time"), h("dd", null, time(record.timestamp), " ", h("span", { class: "fine" }, utc(record.timestamp))),
      h("dt", null, "Key"), h("dd", { class: "mono" }, oneLine(record.key, record.key_b64)),
      headers.map((header) => [h("dt", null, `Header ${header.key}`), h("dd", { class: "mono" }, oneLine(header.value, header.value_b64))]),
      h("dt", null, "Value"), h("dd", null, bytes(size), record.is_cut && h("span", { class: "soft" }, `, the first ${bytes(SHOWN_BYTES)} are shown`))),
    tabs.element, body,
    h("div", { class: "row" },
      h("button", { type: "button", onclick: () => copy(curl(path)) }, "Copy as curl"),
      record.value !== null && h("button", { type: "button", onclick: () => copy(body.textContent) }, "Copy what is shown"),
      record.value !== null && h("a", { class: "button", href: `${path}?part=value`, download: "" }, "Download value"),
      h("a", { class: "button", href: `/console/produce${query({ topic, replay: identity(topic, record) })}` }, "Send again…")));
}

// A row of a table of records; opening it shows the record below.
export function recordRow(topic, record, selection) {
  const id = identity(topic, record);
  const label = `${record.partition}:${record.offset}`;
  const open = h("button", { type: "button", class: "open", "aria-expanded": "false", "aria-label": `Open record ${label}` }, "▸");
  const box = h("input", { type: "checkbox", "aria-label": `Select record ${label}` });
  box.checked = selection.has(id);
  box.addEventListener("change", () => selection.toggle(id, box.checked));
  const row = h("tr", { class: "record", "data-id": id },
    h("td", null, h("div", { class: "row" }, box, open)),
    h("td", { class: "num mono" }, record.partition),
    h("td", { class: "num mono" }, record.offset),
    h("td", { class: "time mono", title: utc(record.timestamp) }, moment(record.timestamp)),
    h("td", { class: "key mono" }, oneLine(record.key, record.key_b64)),
    h("td", { class: "cut mono" }, oneLine(record.value, record.value_b64)));
  labelled(RECORD_HEADS, row);
  let inside = null;
  const toggle = async () => {
    if (inside) {
      inside.remove();
      inside = null;
      open.setAttribute("aria-expanded", "false");
      open.textContent = "▸";
      return;
    }
    const cell = h("td", { colspan: 6 }, h("p", { class: "soft" }, "reading…"));
    inside = h("tr", { class: "detail" }, cell);
    row.after(inside);
    open.setAttribute("aria-expanded", "true");
    open.textContent = "▾";
    try {
      show(cell, await detail(topic, record));
    } catch (problem) {
      show(cell, h("p", { class: "notice" }, problem.message));
    }
  };
  open.addEventListener("click", toggle);
  row.addEventListener("click", (event) => { if (!event.target.closest("input, button, a")) toggle(); });
  return row;
}

export const RECORD_HEADS = ["", "#Partition", "#Offset", "Time", "Key", "Value"];
