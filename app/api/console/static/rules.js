// Access rules (ACLs): list, add, remove.
import { h, toast } from "./dom.js";
import { query, send } from "./api.js";
import { ask } from "./dialog.js";

export const ID = "rules";
export const PATH = "/v1/acls";
export const HEADS = ["Principal", "May", "Operation", "On", "From"];
export const EMPTY = "No rules. Only super users may do anything.";

const CLUSTER = "kafka-cluster";
const OPERATIONS = {
  TOPIC: ["READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"],
  GROUP: ["READ", "DELETE", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"],
  CLUSTER: ["CREATE", "ALTER", "DESCRIBE", "CLUSTER_ACTION", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "IDEMPOTENT_WRITE"],
  TRANSACTIONAL_ID: ["WRITE", "DESCRIBE", "TWO_PHASE_COMMIT"],
  DELEGATION_TOKEN: ["DESCRIBE"],
  USER: ["CREATE_TOKENS", "DESCRIBE_TOKENS"],
  SUBJECT: ["READ", "WRITE", "DELETE", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"],
};
const KINDS = { TOPIC: "topic", GROUP: "group", CLUSTER: "the cluster", TRANSACTIONAL_ID: "transactional id", DELEGATION_TOKEN: "delegation token", USER: "user", SUBJECT: "subject" };

const host = (rule) => (rule.host === "*" ? "any address" : rule.host);
const isAllowed = (rule) => rule.permission === "ALLOW";

function resource(rule) {
  const kind = KINDS[rule.resource_type] ?? rule.resource_type;
  if (rule.resource_type === "CLUSTER") return kind;
  if (rule.pattern_type === "PREFIXED") return `each ${kind} whose name begins with ${rule.resource_name}`;
  return rule.resource_name === "*" ? `each ${kind}` : `${kind} ${rule.resource_name}`;
}

const sentence = (rule) => `${rule.principal} ${isAllowed(rule) ? "may" : "may not"} ${rule.operation} on ${resource(rule)}, from ${host(rule)}`;

export const entries = (answer) => answer.acls;
export const text = (rule) => `${rule.principal} ${rule.resource_name} ${rule.host} ${rule.operation}`;
export const cells = (rule) => [
  h("td", { class: "key mono", title: rule.principal }, rule.principal),
  h("td", null, h("span", { class: isAllowed(rule) ? "chip" : "chip bad" }, isAllowed(rule) ? "may" : "may not")),
  h("td", null, rule.operation),
  h("td", { class: "key", title: resource(rule) }, resource(rule)),
  h("td", { class: "mono" }, host(rule))];

export function buttons(rule, refresh) {
  return [h("button", { type: "button", class: "danger", "aria-label": `Remove the rule: ${sentence(rule)}`, onclick: () => remove(rule, refresh) }, "Remove…")];
}

async function remove(rule, refresh) {
  const done = await ask("Remove the rule", [
    h("p", null, `${sentence(rule)}.`), h("p", { class: "soft" }, "The change takes effect at once, on open connections too."),
  ], { button: "Remove", danger: true, work: () => send("DELETE", `${PATH}${query(rule)}`) });
  if (done !== undefined) { toast("Rule removed"); await refresh(); }
}

const select = (name, options) => h("select", { name }, options.map(([value, label]) => h("option", { value }, label)));

export async function add(refresh) {
  const kind = select("kind", Object.keys(KINDS).map((name) => [name, name]));
  const operation = select("operation", []);
  const name = h("input", { name: "name", maxlength: 1000, autocomplete: "off", spellcheck: "false" });
  const named = h("label", null, "Name or prefix; * stands for all", name);
  const pattern = h("label", null, "The name is", select("pattern", [["LITERAL", "the whole name"], ["PREFIXED", "a prefix"]]));
  let shaped = "";
  const shape = () => {
    const isCluster = kind.value === "CLUSTER";
    named.hidden = isCluster;
    pattern.hidden = isCluster;
    name.required = !isCluster;
    if (shaped !== kind.value) operation.replaceChildren(...[...OPERATIONS[kind.value], "ALL"].map((value) => h("option", { value }, value)));
    shaped = kind.value;
  };
  const done = await ask("New access rule", [
    h("div", { class: "form" },
      h("label", { class: "all" }, "Principal, such as User:alice; User:* is everybody", h("input", { name: "principal", required: true, value: "User:", maxlength: 1000, autocomplete: "off", spellcheck: "false" })),
      h("label", null, "Permission", select("permission", [["ALLOW", "may (ALLOW)"], ["DENY", "may not (DENY)"]])),
      h("label", null, "Resource", kind),
      h("label", null, "Operation", operation),
      named, pattern,
      h("label", null, "From address; * stands for all", h("input", { name: "host", value: "*", required: true, autocomplete: "off", spellcheck: "false" }))),
  ], {
    button: "Add",
    isReady: () => { shape(); return true; },
    work: ({ elements }) => send("POST", PATH, { acls: [{
      principal: elements.principal.value.trim(),
      permission: elements.permission.value,
      operation: operation.value,
      resource_type: kind.value,
      resource_name: kind.value === "CLUSTER" ? CLUSTER : name.value,
      pattern_type: kind.value === "CLUSTER" ? "LITERAL" : elements.pattern.value,
      host: elements.host.value.trim(),
    }] }),
  });
  if (done !== undefined) { toast("Rule added"); await refresh(); }
}
