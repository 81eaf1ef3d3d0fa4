// Users with a password: list, add, change the password, delete.
import { h, notice, toast } from "./dom.js";
import { part, send } from "./api.js";
import { ask, askWithName } from "./dialog.js";

export const ID = "users";
export const PATH = "/v1/users";
export const HEADS = ["Name", "Mechanisms"];
export const EMPTY = "No users. A user with a password can log in on every listener that has logins.";

export const entries = (answer) => answer.users;
export const text = (user) => user.name;
export const cells = (user) => [
  h("td", { class: "key mono", title: user.name }, user.name),
  h("td", null, user.mechanisms.map((mechanism) => [h("span", { class: "chip plain" }, mechanism), " "]))];

// Browsers resolve these names as path segments, even if they are encoded.
const isAddressable = (name, command) => {
  if (name !== "." && name !== "..") return true;
  notice(`Browsers cannot request a user with this name. Use a shell: stele user ${command} ${name}`);
  return false;
};

const password = (label) => h("label", null, label, h("input", { name: "password", type: "password", required: true, minlength: 8, maxlength: 1024, autocomplete: "new-password" }));

export function buttons(user, refresh) {
  return [
    h("button", { type: "button", "aria-label": `Change the password of ${user.name}`, onclick: () => isAddressable(user.name, "passwd") && change(user, refresh) }, "Password…"),
    h("button", { type: "button", class: "danger", "aria-label": `Delete user ${user.name}`, onclick: () => isAddressable(user.name, "delete") && remove(user, refresh) }, "Delete…")];
}

export async function add(refresh) {
  const name = await ask("New user", [
    h("label", null, "Name", h("input", { name: "name", required: true, maxlength: 255, autocomplete: "off", spellcheck: "false" })),
    password("Password, of 8 characters or more"),
  ], {
    button: "Create",
    work: async ({ elements }) => (await send("POST", PATH, { name: elements.name.value, password: elements.password.value })).name,
  });
  if (name !== undefined) { toast(`User ${name} created`); await refresh(); }
}

async function change(user, refresh) {
  const done = await ask(`Change the password of ${user.name}`, [
    h("p", { class: "soft" }, "Connections and sessions that began with the old password end."), password("New password, of 8 characters or more"),
  ], { button: "Change", work: ({ elements }) => send("PUT", `${PATH}/${part(user.name)}/password`, { password: elements.password.value }) });
  if (done !== undefined) { toast("Password changed"); await refresh(); }
}

async function remove(user, refresh) {
  const done = await askWithName("Delete the user", `Deletes ${user.name} and its API keys. Its connections and sessions end. Access rules and quotas for it stay.`,
    user.name, "Delete", () => send("DELETE", `${PATH}/${part(user.name)}`));
  if (done !== undefined) { toast(`User ${user.name} deleted`); await refresh(); }
}
