// Quotas of users, client ids and addresses: list, set, remove.
import { bytes, count, h, toast } from "./dom.js";
import { send } from "./api.js";
import { ask } from "./dialog.js";

export const ID = "quotas";
export const PATH = "/v1/quotas";
export const HEADS = ["For", "Quota", "#Limit"];
export const EMPTY = "No quotas: no client is limited.";

const OF_CLIENTS = ["producer_byte_rate", "consumer_byte_rate", "request_percentage"];
const OF_ADDRESSES = ["connection_creation_rate"];
const NAMES = { user: "user", "client-id": "client id", ip: "address" };
// Which names a quota of each kind has.
const KINDS = { user: ["user"], "client-id": ["client-id"], both: ["user", "client-id"], ip: ["ip"] };

const whom = (entity) => Object.keys(NAMES).filter((kind) => kind in entity)
  .map((kind) => (entity[kind] === null ? `each ${NAMES[kind]} without a quota of its own` : `${NAMES[kind]} ${entity[kind]}`)).join(", ");

function limit({ quota, value }) {
  if (quota.endsWith("_byte_rate")) return `${bytes(value)}/s`;
  return quota === "request_percentage" ? `${value} %` : `${count(value)}/s`;
}

export const entries = (answer) => answer.quotas.flatMap(({ entity, values }) => Object.entries(values).map(([quota, value]) => ({ entity, quota, value })));
export const text = ({ entity, quota }) => `${whom(entity)} ${quota}`;
export const cells = (entry) => [
  h("td", { class: "key", title: whom(entry.entity) }, whom(entry.entity)),
  h("td", { class: "mono" }, entry.quota),
  h("td", { class: "num", title: String(entry.value) }, limit(entry))];

export function buttons(entry, refresh) {
  return [h("button", { type: "button", class: "danger", "aria-label": `Remove ${entry.quota} of ${whom(entry.entity)}`, onclick: () => remove(entry, refresh) }, "Remove…")];
}

async function remove(entry, refresh) {
  const done = await ask("Remove the quota", [
    h("p", null, `${entry.quota} of ${whom(entry.entity)}: ${limit(entry)}.`), h("p", { class: "soft" }, "Its clients are no longer limited by it, from now on."),
  ], { button: "Remove", danger: true, work: () => send("PATCH", PATH, { entity: entry.entity, values: { [entry.quota]: null } }) });
  if (done !== undefined) { toast("Quota removed"); await refresh(); }
}

const select = (name, options) => h("select", { name }, options.map(([value, label]) => h("option", { value }, label)));

export async function add(refresh) {
  const kind = select("kind", [["user", "a user"], ["client-id", "a client id"], ["both", "a user and client id"], ["ip", "an address"]]);
  const quota = select("quota", []);
  const inputs = Object.fromEntries(Object.keys(NAMES).map((name) => [name, h("input", { name, autocomplete: "off", spellcheck: "false" })]));
  const labels = Object.fromEntries(Object.entries(inputs).map(([name, input]) => [name, h("label", { class: "all" }, `Name of the ${NAMES[name]}; empty stands for each without a quota of its own`, input)]));
  let shaped = "";
  const shape = () => {
    for (const [name, label] of Object.entries(labels)) label.hidden = !KINDS[kind.value].includes(name);
    if (shaped !== kind.value) quota.replaceChildren(...(kind.value === "ip" ? OF_ADDRESSES : OF_CLIENTS).map((value) => h("option", { value }, value)));
    shaped = kind.value;
  };
  const done = await ask("Set a quota", [
    h("p", { class: "soft" }, "Rates are per second: bytes, or connections. request_percentage is the share of the broker's time."),
    h("div", { class: "form" }, h("label", null, "For", kind), Object.values(labels), h("label", null, "Quota", quota),
      h("label", null, "Limit", h("input", { name: "value", type: "number", min: 0, step: "any", required: true }))),
  ], {
    button: "Set",
    isReady: () => { shape(); return true; },
    work: ({ elements }) => send("PATCH", PATH, {
      entity: Object.fromEntries(KINDS[kind.value].map((name) => [name, inputs[name].value || null])),
      values: { [quota.value]: Number(elements.value.value) },
    }),
  });
  if (done !== undefined) { toast("Quota set"); await refresh(); }
}
