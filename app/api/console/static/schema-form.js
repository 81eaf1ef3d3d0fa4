// A form that checks a schema and registers it.
import { h, show } from "./dom.js";
import { query, send } from "./api.js";
import { TYPES, WHOLE, checkPath, subjectPath } from "./registry.js";

const REFERENCE = /^(\S+)\s+(\S+)\s+(\d+)$/;

function references(text) {
  return text.split("\n").map((line) => line.trim()).filter(Boolean).map((line) => {
    const [, name, subject, version] = REFERENCE.exec(line) ?? [];
    if (!name) throw new Error(`“${line}” is not NAME SUBJECT VERSION`);
    return { name, subject, version: Number(version) };
  });
}

// `latest` is what the form begins with; without a `subject` it asks for one. `registered(subject, version)` is called at the end.
export function newSchema({ subject, latest = {}, registered }) {
  const name = h("input", { name: "subject", required: true, autocomplete: "off", spellcheck: "false", placeholder: "orders-value", value: subject ?? "" });
  const type = h("select", { name: "type" }, TYPES.map((value) => h("option", { value }, value)));
  type.value = latest.type ?? TYPES[0];
  const text = h("textarea", { name: "schema", required: true, rows: 14, spellcheck: "false", value: latest.text ?? "" });
  const uses = h("textarea", { name: "references", class: "low", rows: 2, spellcheck: "false", placeholder: "com.example.Address addresses 1",
    value: (latest.references ?? []).map((reference) => `${reference.name} ${reference.subject} ${reference.version}`).join("\n") });
  const result = h("div", { role: "status" });
  const body = () => ({ schema: text.value, schemaType: type.value, references: references(uses.value) });

  async function check() {
    const answer = await send("POST", checkPath(name.value) + query({ verbose: true }), body());
    show(result, answer.is_compatible ? h("p", null, h("span", { class: "chip" }, "compatible"), " It can be registered.")
      : [h("p", null, h("span", { class: "chip bad" }, "not compatible")), h("ul", { class: "reasons" }, (answer.messages ?? []).map((reason) => h("li", null, reason)))]);
  }
  async function register() {
    const { version } = await send("POST", subjectPath(name.value, "versions"), body(), WHOLE);
    registered(name.value, version);
  }
  async function run(work) {
    if (!form.reportValidity()) return;
    buttons.forEach((button) => { button.disabled = true; });
    try {
      await work();
    } catch (problem) {
      show(result, h("p", { class: "notice" }, problem.message));
    } finally {
      buttons.forEach((button) => { button.disabled = false; });
    }
  }
  const buttons = [h("button", { type: "button", onclick: () => run(check) }, "Check compatibility"), h("button", { type: "submit", class: "primary" }, "Register")];
  const form = h("form", { class: "card", "aria-label": "New version", autocomplete: "off" },
    h("header", null, h("h2", null, subject === undefined ? "New subject" : "New version")),
    h("div", { class: "form" },
      h("label", { class: "wide", hidden: subject !== undefined }, "Subject", name), h("label", null, "Type", type),
      h("label", { class: "all" }, "Schema", text), h("label", { class: "all" }, "References, one NAME SUBJECT VERSION per line", uses),
      h("div", { class: "row all" }, buttons)), result);
  form.addEventListener("submit", (event) => { event.preventDefault(); run(register); });
  return form;
}
