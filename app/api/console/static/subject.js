// One subject: its versions, what differs between two of them, where it is used, and a form for the next version.
import { count, h, notice, show, time, toast } from "./dom.js";
import { get, query, send } from "./api.js";
import { askWithName } from "./dialog.js";
import { shownDifference } from "./diff.js";
import { indented } from "./json-text.js";
import { WHOLE, inEffect, link, path, subjectPath, typeOf } from "./registry.js";
import { newSchema } from "./schema-form.js";
import * as url from "./url.js";

// Of a version that many others refer to.
const REFERRING_MAX = 50;
const DELETED = query({ deleted: true });

// The text of a schema as it is shown: one of JSON on several lines.
export function pretty(schema) {
  try {
    return typeOf(schema) === "PROTOBUF" ? schema.schema : indented(schema.schema);
  } catch {
    // A name alone, as Avro allows for a reference.
    return schema.schema;
  }
}

const versionLink = ({ subject, version }) => h("li", null, h("a", { href: link(subject, version) }, `${subject} version ${version}`));

// Returns the versions of subjects that have a schema, other than `own`.
async function versionsOf(id, own) {
  const found = await get(path("schemas", "ids", id, "versions") + query({ deleted: true, subject: own.subject }));
  return found.filter(({ subject, version }) => subject !== own.subject || version !== own.version);
}

async function uses(schema) {
  const ids = await get(subjectPath(schema.subject, "versions", schema.version, "referencedby"));
  const [same, topics, ...referring] = await Promise.all([
    versionsOf(schema.id, schema),
    get(`/v1/topics${query({ subject: schema.subject, limit: REFERRING_MAX })}`),
    ...ids.slice(0, REFERRING_MAX).map((id) => versionsOf(id, schema)),
  ]);
  const listed = (title, items, empty) => [h("dt", null, title), h("dd", null, items.length ? h("ul", { class: "plain" }, items) : h("span", { class: "soft" }, empty))];
  const more = (left) => left > 0 && h("li", { class: "soft" }, `and ${count(left)} more`);
  return h("dl", { class: "pairs" },
    listed("Topics", topics.topics.length ? [topics.topics.map((topic) => h("li", null, h("a", { href: `/console/topics${query({ topic: topic.name })}` }, topic.name))), more(topics.total - topics.topics.length)] : [],
      "none: no topic has this subject by its name or its contract"),
    listed("Referenced by", referring.flat().map(versionLink).concat(more(ids.length - REFERRING_MAX) || []), "no other schema"),
    listed("The same schema", same.map(versionLink), "no other version"));
}

export async function subjectView(state, { changeRule, reopen }) {
  const subject = state.subject;
  const numbers = await get(subjectPath(subject, "versions") + query({ deleted: true, deletedAsNegative: true }));
  const versions = numbers.map((number) => ({ number: Math.abs(number), isDeleted: number < 0 })).sort((a, b) => b.number - a.number);
  const living = versions.filter((version) => !version.isDeleted);
  const [latest] = living.length ? living : versions;
  const fetched = new Map();
  const load = (number) => {
    if (!fetched.has(number)) fetched.set(number, get(subjectPath(subject, "versions", number) + DELETED, WHOLE));
    return fetched.get(number);
  };
  const [newest, level, mode] = await Promise.all([load(latest.number), inEffect("config", subject), inEffect("mode", subject)]);

  const tile = (label, value) => h("div", { class: "tile" }, h("dt", null, label), h("dd", null, value));
  const rule = (kind, current) => async () => { if (await changeRule(kind, current, subject)) reopen(); };
  const options = () => versions.map(({ number, isDeleted }) => h("option", { value: number }, isDeleted ? `${number} (deleted)` : number));
  const chosen = h("select", { name: "version" }, options());
  const other = h("select", { name: "with" }, h("option", { value: "" }, "no other version"), options());
  chosen.value = versions.some(({ number }) => String(number) === state.version) ? state.version : latest.number;
  other.value = versions.some(({ number }) => String(number) === state.with) ? state.with : "";
  const text = h("pre", { tabindex: "0", "aria-label": "Schema" });
  const facts = h("div");
  const used = h("section", { class: "card", "aria-label": "Where it is used" });

  let turn = 0;
  async function choose() {
    const mine = ++turn;
    try {
      const schema = await load(Number(chosen.value));
      const before = other.value && (await load(Number(other.value)));
      if (mine !== turn) return;
      show(text, before ? shownDifference(pretty(before), pretty(schema)) : pretty(schema));
      show(facts, h("dl", { class: "pairs" },
        h("dt", null, "Id"), h("dd", { class: "mono" }, schema.id), h("dt", null, "GUID"), h("dd", { class: "mono" }, schema.guid), h("dt", null, "Registered"), h("dd", null, time(schema.ts)),
        (schema.references ?? []).map((reference) => [h("dt", null, `Refers to ${reference.name}`), h("dd", null, h("a", { href: link(reference.subject, reference.version) }, `${reference.subject} version ${reference.version}`))]),
        ["metadata", "ruleSet"].filter((name) => schema[name]).map((name) => [h("dt", null, name), h("dd", { class: "mono" }, JSON.stringify(schema[name]))])));
      show(used, h("header", null, h("h2", null, "Where it is used")), await uses(schema));
    } catch (problem) {
      if (mine === turn) notice(problem.message);
    }
  }
  for (const select of [chosen, other]) {
    select.addEventListener("change", () => {
      Object.assign(state, { version: chosen.value, with: other.value });
      url.write(state);
      choose();
    });
  }

  // A deletion is soft first; what is soft-deleted is deleted for good.
  async function remove(what, name, target, isPermanent, { gone }) {
    const consequence = isPermanent ? "It is deleted permanently: records with this schema can no longer be read." : "Records with this schema can still be read. Delete it again to delete it permanently.";
    const done = await askWithName(`Delete ${what}`, consequence, name, "Delete", async () => { await send("DELETE", target + query({ permanent: isPermanent || "" })); return true; });
    if (!done) return;
    toast("Deleted");
    gone();
  }
  const toList = () => { location.href = "/console/schemas"; };
  const removeVersion = () => {
    const version = versions.find(({ number }) => number === Number(chosen.value));
    const isLast = versions.length === 1;
    remove(`version ${version.number}`, `${subject} ${version.number}`, subjectPath(subject, "versions", version.number), version.isDeleted,
      { gone: () => { if (isLast && version.isDeleted) toList(); else reopen(); } });
  };
  const removeSubject = () => remove("the subject", subject, subjectPath(subject), !living.length, { gone: toList });

  choose();
  return [
    h("dl", { class: "tiles" }, tile("Type", typeOf(newest)), tile("Versions", count(living.length)), tile("Compatibility", level), tile("Mode", mode)),
    h("div", { class: "row" },
      h("button", { type: "button", onclick: rule("config", level) }, "Set the compatibility…"),
      h("button", { type: "button", onclick: rule("mode", mode) }, "Set the mode…"),
      h("button", { type: "button", class: "danger", onclick: removeSubject }, "Delete the subject…"),
      !living.length && h("span", { class: "chip warn" }, "deleted")),
    h("section", { class: "card stack", "aria-label": "Versions" },
      h("div", { class: "form" }, h("label", null, "Version", chosen), h("label", null, "Compare with", other),
        h("div", { class: "row wide" }, h("button", { type: "button", class: "danger", onclick: removeVersion }, "Delete the version…"))),
      facts, text),
    used,
    newSchema({ subject, latest: { type: typeOf(newest), text: pretty(newest), references: newest.references },
      registered: (_, version) => {
        toast(`Registered as version ${version}`);
        Object.assign(state, { version, with: "" });
        url.write(state);
        reopen();
      } })];
}
