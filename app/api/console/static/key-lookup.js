// Looks up the newest record of one key of a compacted topic.
import { copy, h, show } from "./dom.js";
import { curl, getRecord, part, query } from "./api.js";
import { PREVIEW } from "./table-rows.js";
import { detail } from "./record.js";
import * as url from "./url.js";

// `kafka_code` of a key without a record; a topic that does not exist has another one.
const NO_KEY = 91;

const base64Of = (text) => btoa(String.fromCharCode(...new TextEncoder().encode(text)));

function pathOf(topic, key, encoding, more) {
  // Browsers resolve these keys as path segments, even if they are encoded.
  const isDots = encoding !== "base64" && (key === "." || key === "..");
  const shown = isDots ? base64Of(key) : key;
  return `/v1/topics/${part(topic)}/keys/${part(shown)}${query({ encoding: isDots ? "base64" : encoding, ...more })}`;
}

function refused(topic, key, problem) {
  if (problem.status !== 404 || problem.document.kafka_code !== NO_KEY) return h("p", { class: "notice" }, problem.message);
  const { partition, offset } = problem.document;
  if (offset === undefined) return h("p", { class: "soft" }, `No record of ${topic} has the key “${key}”.`);
  return h("p", { class: "soft" }, `The key “${key}” was deleted, by the tombstone at offset ${offset} of partition ${partition}.`);
}

export function keyLookup(topic, state) {
  const key = h("input", { name: "key", required: true, maxlength: 8000, spellcheck: "false", autocomplete: "off", placeholder: "ada", value: state.key ?? "" });
  const encoding = h("select", { name: "encoding" }, h("option", { value: "" }, "Text"), h("option", { value: "base64" }, "Base64"));
  encoding.value = state.encoding === "base64" ? "base64" : "";
  const result = h("div", { "aria-live": "polite" });
  const form = h("form", { class: "card", "aria-label": "Look up a key", autocomplete: "off" },
    h("div", { class: "form" },
      h("label", { class: "wide" }, "Key", key), h("label", null, "Key is", encoding),
      h("div", { class: "row wide" }, h("button", { type: "submit", class: "primary" }, "Look up"),
        h("button", { type: "button", class: "quiet", onclick: () => { if (form.reportValidity()) copy(curl(pathOf(topic, key.value, encoding.value))); } }, "Copy as curl"))),
    result);
  let turn = 0;
  async function look() {
    const mine = ++turn;
    state.key = key.value;
    state.encoding = encoding.value;
    url.write(state);
    let found;
    try {
      const record = await getRecord(pathOf(topic, state.key, state.encoding, { preview: PREVIEW }));
      found = await detail(topic, record);
    } catch (problem) {
      found = refused(topic, state.key, problem);
    }
    if (mine !== turn) return;
    found.classList.add("found");
    show(result, found);
  }
  form.addEventListener("submit", (event) => { event.preventDefault(); look(); });
  return { element: form, look };
}
