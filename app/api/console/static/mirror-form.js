// The form of a mirror: what is copied, from where, and with which properties of the connection.
import { h } from "./dom.js";

const PLACEHOLDER = "security.protocol=SASL_SSL\nsasl.password=${env:STELE_MIRROR_SECRET_PROD}";

// Parses one NAME=VALUE per line; lines that begin with # are comments.
function properties(text) {
  const named = text.split("\n").map((line) => line.trim()).filter((line) => line && !line.startsWith("#"));
  return Object.fromEntries(named.map((line) => {
    const [, name, value] = line.match(/^([^=]+)=(.*)$/) ?? [];
    if (name === undefined) throw new Error(`“${line}” is not NAME=VALUE`);
    return [name.trim(), value.trim()];
  }));
}

// Returns the fields of a new mirror, or of one that is changed, and the options of `ask`; `save` gets name and definition.
export function shape(mirror, save) {
  const known = mirror?.definition ?? { source: {} };
  const input = (name, attributes) => h("input", { name, autocomplete: "off", spellcheck: "false", value: known[name] ?? "", ...attributes });
  const acls = h("input", { name: "acls", type: "checkbox", checked: known.acls });
  const source = Object.entries(known.source).map(([name, value]) => `${name}=${value}`).join("\n");
  const fields = h("div", { class: "form" },
    !mirror && h("label", { class: "all" }, "Name", input("name", { required: true, maxlength: 100 })),
    h("label", { class: "all" }, "From: brokers of the source, HOST:PORT, separated by commas", input("from", { required: true, placeholder: "kafka:9092" })),
    h("label", { class: "all" }, "Topics: a regular expression of whole names", input("topics", { required: true, placeholder: "orders\\..*" })),
    h("label", { class: "all" }, "Groups whose committed offsets are copied: a regular expression; empty stands for none", input("groups")),
    h("label", { class: "all" }, "Limit in bytes per second; empty stands for none", input("rate", { type: "number", min: 1024, step: 1 })),
    h("label", { class: "check all" }, acls, "Copy access rules and quotas"),
    h("label", { class: "all" }, "Connection to the source, one NAME=VALUE per line", h("textarea", { name: "source", rows: 4, spellcheck: "false", placeholder: PLACEHOLDER, value: source })));
  const work = ({ elements }) => save(mirror?.name ?? elements.name.value.trim(), {
    from: elements.from.value.trim(),
    topics: elements.topics.value,
    groups: elements.groups.value || null,
    rate: elements.rate.value ? Number(elements.rate.value) : null,
    acls: acls.checked,
    source: properties(elements.source.value),
    paused: mirror?.state === "paused",
  });
  return [[h("p", { class: "soft" }, "The copies are read-only until they are promoted. Secrets are not stored: name a variable of the broker, or a file."), fields], { button: mirror ? "Change" : "Create", work }];
}
