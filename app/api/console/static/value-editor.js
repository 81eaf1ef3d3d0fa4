// Asks for a value of a schema: by fields, as far as the schema allows, or as JSON.
import { h, show } from "./dom.js";
import { indented } from "./json-text.js";
import { exampleOf, orNull, shapeOf } from "./schema-shape.js";
import { tabList } from "./tabs.js";

const NUMBER = /^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/;
const INPUTS = ":is(input, select, textarea, button):enabled";
let count = 0;

// An editor of a shape has an `element`, returns its value from `json()` (undefined: left out), and `at(tokens)` returns the
// editor of a place within the value, or that of the innermost place around it. `fail(reason)` shows what is wrong there.

function failing(element, inputOf) {
  const reason = h("span", { class: "wrong", id: `wrong-${++count}`, role: "alert", hidden: true });
  element.append(reason);
  return (text) => {
    reason.textContent = text;
    reason.hidden = false;
    const input = inputOf();
    input?.setAttribute("aria-invalid", "true");
    input?.setAttribute("aria-describedby", reason.id);
    input?.focus();
  };
}

const caption = (name, hint, doc) => [name, hint && h("span", { class: "fine" }, ` ${hint}`), doc && h("span", { class: "fine" }, ` ${doc}`)];

function simple(element, input, json) {
  return { element, json, fail: failing(element, () => input), at() { return this; } };
}

function textEditor(shape, name, doc) {
  const input = h("input", { spellcheck: "false", autocomplete: "off", placeholder: shape.example });
  return simple(h("label", null, h("span", null, caption(name, shape.hint, doc)), input), input, () => JSON.stringify(input.value));
}

// What is no number, such as NaN, goes to the broker as a text.
function numberEditor(shape, name, doc) {
  const input = h("input", { inputmode: "decimal", spellcheck: "false", autocomplete: "off", required: true });
  return simple(h("label", null, h("span", null, caption(name, shape.hint, doc)), input), input,
    () => (NUMBER.test(input.value.trim()) ? input.value.trim() : JSON.stringify(input.value)));
}

function booleanEditor(shape, name, doc) {
  const input = h("input", { type: "checkbox" });
  return simple(h("label", { class: "check" }, input, h("span", null, caption(name, "", doc))), input, () => String(input.checked));
}

function enumEditor(shape, name, doc) {
  const input = h("select", null, shape.texts.map((text) => h("option", { value: text }, typeof JSON.parse(text) === "string" ? JSON.parse(text) : text)));
  return simple(h("label", null, h("span", null, caption(name, "", doc)), input), input, () => input.value);
}

function jsonEditor(shape, name, doc) {
  const input = h("textarea", { class: "low", rows: 3, spellcheck: "false", value: JSON.stringify(shape.example) });
  const editor = simple(h("label", { class: "all" }, h("span", null, caption(name, shape.hint, doc)), input), input, () => {
    try {
      JSON.parse(input.value);
      return input.value;
    } catch (error) {
      editor.fail(`This is not JSON: ${error.message}`);
      throw new Error(`${name || "The value"} is not JSON.`);
    }
  });
  return editor;
}

function recordEditor(shape, name, doc) {
  const editors = new Map(shape.fields.map((field) => [field.name, editorOf(field.shape, field.name, field.doc)]));
  const body = h("div", { class: "form" }, [...editors.values()].map((editor) => editor.element));
  const element = h("fieldset", { class: "all group" }, h("legend", null, caption(name, "", doc)), body);
  return {
    element,
    json: () => `{${[...editors].map(([field, editor]) => [field, editor.json()]).filter(([, json]) => json !== undefined).map(([field, json]) => `${JSON.stringify(field)}:${json}`).join(",")}}`,
    fail: failing(element, () => body.querySelector(INPUTS)),
    at([token, ...rest]) { return editors.get(token)?.at(rest) ?? this; },
  };
}

function arrayEditor(shape, name, doc) {
  const items = [];
  const list = h("div", { class: "stack" });
  const renumber = () => items.forEach((item, index) => item.remove.setAttribute("aria-label", `Remove item ${index + 1} of ${name}`));
  const add = h("button", { type: "button", class: "quiet", "aria-label": `Add an item to ${name}`, onclick: () => {
    const editor = editorOf(shape.items, "item", "");
    const remove = h("button", { type: "button", class: "quiet", onclick: () => {
      items.splice(items.findIndex((other) => other.editor === editor), 1);
      row.remove();
      renumber();
      add.focus();
    } }, "✕");
    const row = h("div", { class: "row item" }, editor.element, remove);
    items.push({ editor, remove });
    list.append(row);
    renumber();
    editor.element.querySelector(INPUTS)?.focus();
    add.dispatchEvent(new Event("input", { bubbles: true }));
  } }, "Add an item");
  const element = h("fieldset", { class: "all group" }, h("legend", null, caption(name, "", doc)), list, add);
  return {
    element,
    json: () => `[${items.map(({ editor }) => editor.json() ?? "null").join(",")}]`,
    fail: failing(element, () => add),
    at([token, ...rest]) { return items[Number(token)]?.editor.at(rest) ?? this; },
  };
}

function optionalEditor(shape, name, doc) {
  const inner = editorOf(shape.shape, name, doc);
  const absent = h("input", { type: "checkbox", "aria-label": `${name}: ${shape.word}` });
  absent.checked = true;
  const inside = h("fieldset", { class: "grow" }, inner.element);
  inside.disabled = true;
  absent.addEventListener("change", () => {
    inside.disabled = absent.checked;
    inside.querySelector(INPUTS)?.focus();
  });
  return {
    element: h("div", { class: inner.element.classList.contains("all") ? "optional all" : "optional" }, inside, h("label", { class: "check" }, absent, shape.word)),
    json: () => (absent.checked ? shape.json : inner.json()),
    fail: inner.fail,
    at(tokens) { return inner.at(tokens); },
  };
}

const EDITORS = { record: recordEditor, array: arrayEditor, enum: enumEditor, boolean: booleanEditor, number: numberEditor, text: textEditor, optional: optionalEditor, json: jsonEditor };
const editorOf = (shape, name, doc) => EDITORS[shape.kind](shape, name, doc);

const FIELDS = "Fields";
const JSON_TEXT = "JSON";

// Returns an editor of the values of a schema of the registry, which it calls `name`. With `none`, that stands for null.
export function valueEditor(schema, name, none) {
  const shape = none ? orNull(shapeOf(schema), none) : shapeOf(schema);
  const root = editorOf(shape, name, "");
  const text = jsonEditor({ hint: "", example: null }, name, "");
  const area = text.element.querySelector("textarea");
  area.classList.remove("low");
  area.value = indented(exampleOf(shape) ?? "null");
  const panel = h("div", null);
  let chosen = "";
  let isTouched = false;
  root.element.addEventListener("input", () => { isTouched = true; });
  const names = shape.kind === "json" ? [JSON_TEXT] : [FIELDS, JSON_TEXT];
  const tabs = tabList(`${name} as`, names, (tab) => {
    // Before anything was filled in, JSON is an example.
    if (chosen === FIELDS && isTouched) {
      try {
        area.value = indented(root.json());
      } catch {
        // A field has no JSON yet.
      }
    }
    chosen = tab;
    show(panel, tab === FIELDS ? root.element : text.element);
  });
  tabs.choose(names[0]);
  return {
    element: h("div", { class: "stack" }, tabs.element, panel),
    json: () => (chosen === FIELDS ? root : text).json(),
    // Shows a reason at the field that a JSON pointer names.
    fail(pointer, reason) {
      const tokens = pointer.split("/").slice(1).map((token) => token.replaceAll("~1", "/").replaceAll("~0", "~"));
      if (chosen === FIELDS) root.at(tokens).fail(reason);
      else text.fail(`${pointer ? `${pointer}: ` : ""}${reason}`);
    },
    clear() {
      for (const shown of panel.querySelectorAll(".wrong")) shown.hidden = true;
      for (const input of panel.querySelectorAll("[aria-invalid]")) input.removeAttribute("aria-invalid");
    },
  };
}
