// Dialogs. Escape closes them; errors of a form appear inside.
import { h } from "./dom.js";

// Resolves with the result of `work(form)` once it succeeds, or with undefined if the dialog is closed first.
export function ask(title, fields, { button = "OK", danger = false, work, isReady = () => true }) {
  return new Promise((resolve) => {
    const error = h("p", { class: "notice", role: "alert", hidden: true });
    const submit = h("button", { type: "submit", class: danger ? "danger primary" : "primary" }, button);
    const form = h("form", { class: "stack" }, h("h2", { id: "dialog-title" }, title), error, fields,
      h("div", { class: "row end" }, h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"), submit));
    const dialog = h("dialog", { "aria-labelledby": "dialog-title" }, form);
    let result;
    const check = () => { submit.disabled = !isReady(form); };
    form.addEventListener("input", check);
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      if (submit.disabled) return;
      submit.disabled = true;
      error.hidden = true;
      try {
        result = (await work(form)) ?? null;
        dialog.close();
      } catch (problem) {
        error.textContent = problem.message;
        error.hidden = false;
        check();
      }
    });
    dialog.addEventListener("close", () => { dialog.remove(); resolve(result); });
    document.body.append(dialog);
    check();
    dialog.showModal();
  });
}

// Confirms an action that cannot be undone: the user must type the name.
export function askWithName(title, text, name, button, work) {
  const input = h("input", { name: "typed", autocomplete: "off", spellcheck: "false", required: true });
  const fields = [h("p", null, text), h("label", null, `Type ${name} to confirm`, input)];
  return ask(title, fields, { button, danger: true, work, isReady: () => input.value === name });
}

// Shows something that needs no decision. Resolves when the dialog is closed.
export function tell(title, fields) {
  return new Promise((resolve) => {
    const dialog = h("dialog", { "aria-labelledby": "dialog-title" },
      h("form", { method: "dialog", class: "stack" }, h("h2", { id: "dialog-title" }, title), fields,
        h("div", { class: "row end" }, h("button", { class: "primary" }, "Done"))));
    dialog.addEventListener("close", () => { dialog.remove(); resolve(); });
    document.body.append(dialog);
    dialog.showModal();
  });
}
