// Creates elements and formats numbers and times. Data from records is set as text, never as markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value" && "value" in element) element.value = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(3).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export const h = (name, attributes, ...children) => fill(document.createElement(name), attributes, children);
export const svg = (name, attributes, ...children) => fill(document.createElementNS(SVG, name), attributes, children);
export const byId = (id) => document.getElementById(id);

export function show(parent, ...children) {
  parent.replaceChildren(...children.flat(3).filter((child) => child !== null && child !== undefined && child !== false));
}

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });

export const count = (number) => (number === null || number === undefined ? "–" : whole.format(number));

function scaled(number, step, units) {
  let index = 0;
  let left = Math.abs(number);
  while (left >= step && index < units.length - 1) {
    left /= step;
    index += 1;
  }
  return `${short.format(Math.sign(number) * left)}${units[index]}`;
}

export const brief = (number) => (number === null || number === undefined ? "–" : scaled(number, 1000, ["", "k", "M", "G", "T"]));
export const bytes = (number) =>
  number === null || number === undefined ? "–" : scaled(number, 1024, [" B", " KiB", " MiB", " GiB", " TiB", " PiB"]);
export const milliseconds = (number) =>
  number === null || number === undefined ? "–" : number >= 1000 ? duration(number) : `${short.format(number)} ms`;

export function duration(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms < 0) return "no limit";
  const units = [["d", 86400000], ["h", 3600000], ["min", 60000], ["s", 1000]];
  for (const [name, size] of units) {
    if (ms >= size) {
      const number = ms / size;
      return `${number < 10 ? short.format(number) : whole.format(Math.round(number))} ${name}`;
    }
  }
  return `${whole.format(ms)} ms`;
}

const pad = (number, digits = 2) => String(number).padStart(digits, "0");

// Local time in a sortable form; pages show UTC in the title of the element.
export function time(ms) {
  if (ms === null || ms === undefined || ms < 0) return "–";
  const at = new Date(ms);
  if (Number.isNaN(at.getTime())) return String(ms);
  return (
    `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())} ` +
    `${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}.${pad(at.getMilliseconds(), 3)}`
  );
}

export function utc(ms) {
  const at = new Date(ms);
  return Number.isNaN(at.getTime()) ? String(ms) : at.toISOString();
}

export function toast(text) {
  const shown = h("div", { class: "toast" }, text);
  byId("toasts").append(shown);
  setTimeout(() => shown.remove(), 5000);
}

export function notice(text, { warn = false } = {}) {
  const box = byId("notice");
  box.textContent = text ?? "";
  box.hidden = !text;
  box.className = warn ? "notice warn" : "notice";
}

export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    toast("Copied");
  } catch {
    const dialog = h("dialog", { "aria-label": "Copy" }, h("h2", null, "Copy this"), h("pre", { tabindex: "0" }, text),
      h("form", { method: "dialog", class: "row end" }, h("button", null, "Close")));
    document.body.append(dialog);
    dialog.addEventListener("close", () => dialog.remove());
    dialog.showModal();
  }
}

// Narrow screens show a row as a list of its cells, each with the name of its column.
export function labelled(heads, row) {
  [...row.cells].forEach((cell, index) => {
    const label = heads[index]?.replace("#", "");
    if (label) cell.dataset.label = label;
  });
  return row;
}

export function table(caption, heads, rows, empty = "No data.") {
  if (!rows.length) return h("p", { class: "empty" }, empty);
  const head = heads.map((title) => {
    const isNumber = title.startsWith("#");
    return h("th", { scope: "col", class: isNumber ? "num" : null }, isNumber ? title.slice(1) : title);
  });
  return h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": caption },
    h("table", null, h("caption", null, caption), h("thead", null, h("tr", null, head)), h("tbody", null, rows.flat(3).filter(Boolean).map((row) => labelled(heads, row)))));
}

// Enables buttons that the page disables until their script listens, because an earlier click would be lost.
export function enable(...ids) {
  for (const id of ids) byId(id).disabled = false;
}

// Runs `work` now and every `ms` while the page is visible; returns a function that stops it.
export function every(ms, work) {
  let timer = 0;
  let isEnded = false;
  const turn = async () => {
    clearTimeout(timer);
    if (isEnded) return;
    if (!document.hidden) await work();
    if (!isEnded) timer = setTimeout(turn, ms);
  };
  const wake = () => { if (!document.hidden) turn(); };
  document.addEventListener("visibilitychange", wake);
  turn();
  return () => { isEnded = true; clearTimeout(timer); document.removeEventListener("visibilitychange", wake); };
}
