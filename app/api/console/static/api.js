// Calls the public HTTP API and turns problem documents into errors. The console uses no other interface.
import { parsedRecord } from "./json-text.js";

export class Problem extends Error {
  constructor(status, document) {
    super(document.detail ?? document.title ?? `HTTP ${status}`);
    this.status = status;
    this.document = document;
  }
}

async function answered(response) {
  if (response.ok) return response;
  let document = {};
  try {
    document = await response.json();
  } catch {
    document = { detail: `the broker answered with status ${response.status}` };
  }
  throw new Problem(response.status, document);
}

export async function request(method, path, { body, signal, headers } = {}) {
  const options = { method, signal, headers: { ...headers } };
  if (body instanceof Blob || typeof body === "string") options.body = body;
  else if (body !== undefined) {
    options.body = JSON.stringify(body);
    options.headers["Content-Type"] = "application/json";
  }
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, { detail: "the broker cannot be reached" });
  }
  return answered(response);
}

export const get = async (path, options) => (await request("GET", path, options)).json();
export const getRecord = async (path) => parsedRecord(await (await request("GET", path)).text());

export async function send(method, path, body, options) {
  const response = await request(method, path, { body, ...options });
  return response.status === 204 ? null : response.json();
}

// Fetches the problem with which an event stream was refused, because an EventSource does not have it. Returns null if
// the stream is not refused this time.
export async function refusal(path) {
  const asking = new AbortController();
  try {
    await request("GET", path, { signal: asking.signal, headers: { Accept: "text/event-stream" } });
    return null;
  } catch (problem) {
    return problem;
  } finally {
    asking.abort();
  }
}

export const part = (text) => encodeURIComponent(text);

export function query(values) {
  const parts = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) {
    for (const item of Array.isArray(value) ? value : [value]) {
      if (item !== "" && item !== null && item !== undefined) parts.append(name, item);
    }
  }
  const text = parts.toString();
  return text && `?${text}`;
}

// Yields the lines of an NDJSON answer, such as records, each parsed as it arrives.
export async function* lines(method, path, options) {
  const response = await request(method, path, options);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    const pieces = (rest + value).split("\n");
    rest = pieces.pop();
    for (const piece of pieces) if (piece) yield parsedRecord(piece);
  }
  if (rest) yield parsedRecord(rest);
}

export const quoted = (text) => `'${text.replaceAll("'", `'\\''`)}'`;
export const curl = (path) => `curl -sN ${quoted(new URL(path, location.href).href)}`;
