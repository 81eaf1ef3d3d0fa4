// What values of a schema look like, as far as a form can ask for them. A shape is one of:
//   record {fields: [{name, doc, shape}]}   array {items}   enum {texts: JSON of each}   boolean
//   number {hint}   text {hint, example}
//   optional {word, json, shape}: instead of a value it can be `json`, or left out if that is undefined; `word` says so
//   json {hint, example}: everything else, which is typed as JSON

// Schemas may be recursive.
const DEPTH_MAX = 12;
const any = (hint, example = null) => ({ kind: "json", hint, example });
const text = (hint, example = "") => ({ kind: "text", hint, example });
export const orNull = (shape, word = "null") => ({ kind: "optional", word, json: "null", shape });
const orNothing = (shape, word) => ({ kind: "optional", word, json: undefined, shape });
const enumOf = (values) => ({ kind: "enum", texts: values.map((value) => JSON.stringify(value)) });
const briefly = (value) => { const shown = JSON.stringify(value); return shown.length > 30 ? "" : ` ${shown}`; };

// ── Avro ──

const NUMBERS = ["int", "long", "float", "double"];
const MOMENTS = /^(local-)?timestamp-(millis|micros|nanos)$/;

// Returns the shape of a logical type whose values have a text of their own, otherwise null.
function avroLogical({ type: base, logicalType: logical = "", scale = 0 }) {
  if (logical === "decimal" && (base === "bytes" || base === "fixed")) return text(`decimal, ${scale} digits after the point`, (0).toFixed(Math.min(scale, 100)));
  if (logical === "uuid" && (base === "string" || base === "fixed")) return text("uuid", "00000000-0000-0000-0000-000000000000");
  if (logical === "date" && base === "int") return text("date", "2026-11-30");
  if ((logical === "time-millis" && base === "int") || (logical === "time-micros" && base === "long")) return text("time", "10:00:00");
  if (MOMENTS.test(logical) && base === "long") return text(logical, `2026-11-30T10:00:00${logical.startsWith("local") ? "" : "Z"}`);
  if (logical === "duration" && base === "fixed") return text("duration", "P0M1DT0S");
  return null;
}

// `names` has the definitions that came before, by their full names.
function avroShape(type, names, space, depth) {
  if (depth > DEPTH_MAX) return any("nested too deep for a form");
  if (Array.isArray(type)) {
    const others = type.filter((branch) => branch !== "null");
    if (others.length === 1 && type.length === 2) return orNull(avroShape(others[0], names, space, depth + 1));
    return any("a union: a value, or an object with the name of its branch", JSON.parse(exampleOf(avroShape(type[0], names, space, depth + 1)) ?? "null"));
  }
  if (typeof type === "string") {
    if (NUMBERS.includes(type)) return { kind: "number", hint: type };
    if (type === "string") return text("string");
    if (type === "bytes") return text("bytes in base64");
    if (type === "boolean") return { kind: "boolean" };
    if (type === "null") return any("null");
    const known = names.get(type.includes(".") || !space ? type : `${space}.${type}`) ?? names.get(type);
    return known ? avroShape(known.type, names, known.space, depth + 1) : any(`${type}, of another schema`);
  }
  if (type === null || typeof type !== "object") return any("JSON");
  const dot = type.name?.lastIndexOf(".") ?? -1;
  const own = dot > 0 ? type.name.slice(0, dot) : type.namespace ?? space;
  if (type.name) names.set(dot > 0 || !own ? type.name : `${own}.${type.name}`, { type, space: own });
  const logical = avroLogical(type);
  if (logical) return logical;
  switch (type.type) {
    case "record":
    case "error":
      return { kind: "record", fields: type.fields.map((field) => ({ name: field.name, doc: field.doc, shape: avroField(field, names, own, depth + 1) })) };
    case "enum": return enumOf(type.symbols);
    case "array": return { kind: "array", items: avroShape(type.items, names, space, depth + 1) };
    case "map": return any("a map: an object", {});
    case "fixed": return text(`${type.size} bytes in base64`, btoa("\0".repeat(Math.min(type.size, 1000))));
    default: return avroShape(type.type, names, own, depth + 1);
  }
}

function avroField(field, names, space, depth) {
  const shape = avroShape(field.type, names, space, depth);
  if (!("default" in field) || (shape.kind === "optional" && field.default === null)) return shape;
  return orNothing(shape, `default${briefly(field.default)}`);
}

// ── JSON Schema ──

function resolved(schema, root, left = DEPTH_MAX) {
  if (typeof schema !== "object" || schema === null || left < 0) return null;
  if (typeof schema.$ref !== "string") return schema;
  if (!schema.$ref.startsWith("#/")) return null;
  const tokens = schema.$ref.slice(2).split("/").map((token) => token.replaceAll("~1", "/").replaceAll("~0", "~"));
  return resolved(tokens.reduce((found, token) => (found !== null && typeof found === "object" && Object.hasOwn(found, token) ? found[token] : null), root), root, left - 1);
}

const FORMATS = { date: "2026-11-30", "date-time": "2026-11-30T10:00:00Z", email: "ada@example.com", time: "10:00:00Z", uri: "https://example.com/", uuid: "00000000-0000-0000-0000-000000000000" };

function jsonShape(given, root, depth) {
  const schema = resolved(given, root);
  if (!schema || depth > DEPTH_MAX) return any("JSON");
  if (Array.isArray(schema.enum)) return enumOf(schema.enum);
  if ("const" in schema) return enumOf([schema.const]);
  const choices = schema.anyOf ?? schema.oneOf;
  if (Array.isArray(choices)) {
    const others = choices.filter((choice) => choice?.type !== "null");
    return others.length === 1 && choices.length === 2 ? orNull(jsonShape(others[0], root, depth + 1)) : any("one of several kinds of values");
  }
  if (Array.isArray(schema.type)) {
    const others = schema.type.filter((type) => type !== "null");
    if (others.length !== 1) return any(schema.type.join(" or "));
    const shape = jsonShape({ ...schema, type: others[0] }, root, depth + 1);
    return schema.type.length > 1 ? orNull(shape) : shape;
  }
  switch (schema.type ?? (schema.properties && "object")) {
    case "string": return text(schema.format ?? "string", typeof schema.default === "string" ? schema.default : FORMATS[schema.format] ?? "");
    case "integer":
    case "number": return { kind: "number", hint: schema.type };
    case "boolean": return { kind: "boolean" };
    case "array": return Array.isArray(schema.items) ? any("an array", []) : { kind: "array", items: jsonShape(schema.items ?? {}, root, depth + 1) };
    case "object": {
      if (!schema.properties) return any("an object", {});
      const required = new Set(Array.isArray(schema.required) ? schema.required : []);
      return { kind: "record", fields: Object.entries(schema.properties).map(([name, property]) => {
        const shape = jsonShape(property, root, depth + 1);
        return { name, doc: property?.description ?? property?.title, shape: required.has(name) ? shape : orNothing(shape, "left out") };
      }) };
    }
    default: return any("JSON");
  }
}

// Returns the shape of the values of a schema of the registry.
export function shapeOf({ schema, schemaType = "AVRO" }) {
  try {
    if (schemaType === "AVRO") return avroShape(JSON.parse(schema), new Map(), "", 0);
    if (schemaType === "JSON") {
      const root = JSON.parse(schema);
      return jsonShape(root, root, 0);
    }
  } catch {
    // A schema that this form cannot read is no reason not to offer JSON.
  }
  return any("JSON", {});
}

// Returns a value of a shape as JSON; undefined if it is to be left out.
export function exampleOf(shape) {
  switch (shape.kind) {
    case "record": return `{${shape.fields.map(({ name, shape: of }) => [name, exampleOf(of)]).filter(([, json]) => json !== undefined).map(([name, json]) => `${JSON.stringify(name)}:${json}`).join(",")}}`;
    case "array": return `[${exampleOf(shape.items) ?? ""}]`;
    case "enum": return shape.texts[0] ?? "null";
    case "boolean": return "false";
    case "number": return "0";
    case "optional": return shape.json;
    default: return JSON.stringify(shape.example);
  }
}
