// The schema registry, as the HTTP listener serves it.
import { get, part, query } from "./api.js";
import { h } from "./dom.js";

const ROOT = "/v1/registry";
// Has the registry send all that it knows of a version.
export const WHOLE = { headers: { "Confluent-Accept-Unknown-Properties": "true" } };

export const TYPES = ["AVRO", "JSON", "PROTOBUF"];
export const LEVELS = ["NONE", "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE"];
// The others are for registries that replicate each other.
export const MODES = ["READWRITE", "READONLY", "IMPORT"];

// Browsers resolve these names as path segments, even if they are encoded; with its context, a name is another text.
const named = (subject) => part(subject === "." || subject === ".." ? `:.:${subject}` : subject);

export const path = (...parts) => [ROOT, ...parts].join("/");
export const subjectPath = (subject, ...parts) => path("subjects", named(subject), ...parts);
export const checkPath = (subject) => path("compatibility", "subjects", named(subject), "versions");
// `kind` is config or mode; without a subject, that of all subjects.
export const rulePath = (kind, subject) => (subject === undefined ? path(kind) : path(kind, named(subject)));

export const typeOf = (schema) => schema.schemaType ?? "AVRO";
export const link = (subject, version) => `/console/schemas${query({ subject, version })}`;
// Names the schema of a key or value, and leads to it.
export const badge = ({ id, subject, version, type }) =>
  h("a", { class: "chip", href: subject ? link(subject, version) : `/console/schemas${query({ id })}` }, subject ? `${subject} version ${version}` : `schema ${id}`, ` · ${type}`);

const FIXED_SUBJECT = "subject:";

// Returns the latest schema of the keys or values of a topic; null if it has none, or a subject per kind of record.
export async function schemaOf(topic, what) {
  const { topics: [found] } = await get(`/v1/topics${query({ prefix: topic, limit: 1 })}`);
  const configs = found?.name === topic ? (await get(`/v1/topics/${part(topic)}`)).effective_configs : {};
  const strategy = configs[`stele.${what}.subject.name.strategy`] ?? "topic";
  if (strategy !== "topic" && !strategy.startsWith(FIXED_SUBJECT)) return null;
  const subject = strategy === "topic" ? `${topic}-${what}` : strategy.slice(FIXED_SUBJECT.length);
  const [first] = await get(path("subjects") + query({ subjectPrefix: subject, limit: 1 }));
  return first === subject ? get(subjectPath(subject, "versions", "latest")) : null;
}

// Returns the compatibility level ("config") or the mode that is in effect; a dash if the client may not see it.
export async function inEffect(kind, subject) {
  try {
    const rule = await get(rulePath(kind, subject) + query({ defaultToGlobal: true }));
    return kind === "config" ? rule.compatibilityLevel : rule.mode;
  } catch {
    return "–";
  }
}
