// Keeps the state of a page in its URL, so that a link opens the same view.

export function read() {
  const values = {};
  for (const [name, value] of new URLSearchParams(location.search)) values[name] = value;
  return values;
}

export function write(values, { push = false } = {}) {
  const parts = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) {
    if (value !== "" && value !== null && value !== undefined && value !== false) parts.set(name, value);
  }
  const text = parts.toString();
  const address = location.pathname + (text && `?${text}`);
  if (address === location.pathname + location.search) return;
  history[push ? "pushState" : "replaceState"](null, "", address);
}
