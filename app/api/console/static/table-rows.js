// The newest record per key of a topic, as far as the page holds it: all keys up to a limit, and fewer records.

// Bytes of each part of a record in a row; opening the row fetches more.
export const PREVIEW = 1000;
// More rows than anyone reads through; drawing them all takes a few milliseconds.
export const ROWS_MAX = 500;
// Keys have up to PREVIEW bytes, so they take 20 MB at most.
export const KEYS_MAX = 20_000;

const size = (text) => new TextEncoder().encode(text).length;

// A preview with fewer bytes than a UTF-8 character below the limit may be the beginning of several keys.
function isKeyCut(record) {
  if (!record.is_cut) return false;
  const held = record.key_b64 !== undefined ? atob(record.key_b64).length : typeof record.key === "string" ? size(record.key) : 0;
  return held > PREVIEW - 4;
}

export class TableRows {
  #keys = new Set();
  // Records by key, in the order in which the keys came; a newer record keeps the place of the older one.
  shown = new Map();
  // Records with keys that are too long to tell apart.
  left = 0;
  // True once there are more keys than KEYS_MAX; the rows are incomplete from then on.
  isOver = false;

  get count() { return this.#keys.size; }

  apply(record) {
    const isKeyed = record.key_b64 !== undefined || record.keySchema !== undefined || typeof record.key === "string";
    // Records without a key are older than the compaction of the topic.
    if (!isKeyed) return;
    if (isKeyCut(record)) {
      this.left += 1;
      return;
    }
    const name = record.keySchema ? `schema ${record.keySchema.id} ${JSON.stringify(record.key)}`
      : record.key_b64 === undefined ? `text ${record.key}` : `base64 ${record.key_b64}`;
    const id = `${record.partition} ${name}`;
    if (record.value === null) {
      this.#keys.delete(id);
      this.shown.delete(id);
      return;
    }
    if (!this.#keys.has(id)) {
      if (this.#keys.size >= KEYS_MAX) {
        this.isOver = true;
        return;
      }
      this.#keys.add(id);
    }
    if (this.shown.has(id) || this.shown.size < ROWS_MAX) this.shown.set(id, record);
  }
}
