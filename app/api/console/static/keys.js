// API keys: list, create with the key shown once, delete.
import { copy, h, time, toast, utc } from "./dom.js";
import { part, send } from "./api.js";
import { ask, tell } from "./dialog.js";

export const ID = "keys";
export const PATH = "/v1/keys";
export const HEADS = ["Owner", "Description", "Created", "Expires", "Id"];
export const EMPTY = "No keys. A program logs in with a key instead of a user and password.";

const DAY_MS = 86_400_000;
const USER = "User:";
const moment = (ms) => h("td", { title: utc(ms) }, time(ms));

export const entries = (answer) => answer.keys;
export const text = (key) => `${key.principal} ${key.description} ${key.id}`;
export const cells = (key) => [
  h("td", { class: "key mono", title: key.principal }, key.principal),
  h("td", { class: "key", title: key.description }, key.description),
  moment(key.created_at),
  key.expires_at === null ? h("td", null, "never")
    : key.expires_at > Date.now() ? moment(key.expires_at)
      : h("td", { title: utc(key.expires_at) }, h("span", { class: "chip bad" }, "expired")),
  h("td", { class: "mono" }, key.id)];

export function buttons(key, refresh, { user, all }) {
  if (all === undefined && key.principal !== USER + user) return [];
  return [h("button", { type: "button", class: "danger", "aria-label": `Delete key ${key.id} of ${key.principal}`, onclick: () => remove(key, refresh) }, "Delete…")];
}

export async function add(refresh, { user }) {
  const made = await ask("New API key", [
    h("p", { class: "soft" }, "A key acts as a user: it may do what the user may do."),
    h("div", { class: "form" },
      h("label", { class: "all" }, "User", h("input", { name: "user", value: user, required: true, maxlength: 255, autocomplete: "off", spellcheck: "false" })),
      h("label", { class: "all" }, "Description, such as the program that uses it", h("input", { name: "description", maxlength: 255, autocomplete: "off" })),
      h("label", { class: "all" }, "Days until it expires; empty stands for never", h("input", { name: "days", type: "number", min: 1, max: 36500, step: 1 }))),
  ], {
    button: "Create",
    work: ({ elements }) => send("POST", PATH, {
      user: elements.user.value,
      description: elements.description.value,
      expires_in_ms: elements.days.value ? Number(elements.days.value) * DAY_MS : null,
    }),
  });
  if (made === undefined) return;
  // The key is in this dialog alone, and leaves the page with it.
  await tell("API key created", [
    h("p", null, "Copy the key now. It cannot be shown again."),
    h("pre", { tabindex: "0", "aria-label": "API key" }, made.key),
    h("div", { class: "row" }, h("button", { type: "button", onclick: () => copy(made.key) }, "Copy")),
  ]);
  await refresh();
}

async function remove(key, refresh) {
  const done = await ask("Delete the API key", [
    h("p", null, `Key ${key.id} of ${key.principal}${key.description && `: ${key.description}`}.`),
    h("p", { class: "soft" }, "Connections and sessions that began with it end. Programs that use it can no longer log in."),
  ], { button: "Delete", danger: true, work: () => send("DELETE", `${PATH}/${part(key.id)}`) });
  if (done !== undefined) { toast("Key deleted"); await refresh(); }
}
