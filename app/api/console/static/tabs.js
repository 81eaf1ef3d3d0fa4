// A row of tabs, of which one is chosen; the arrow keys move between them.
import { h } from "./dom.js";

// Calls `onChoose` with the name of each chosen tab. Nothing is chosen before the first call of `choose`.
export function tabList(label, names, onChoose) {
  const buttons = names.map((name) => h("button", { type: "button", role: "tab", onclick: () => choose(name) }, name));
  const element = h("div", { class: "tabs", role: "tablist", "aria-label": label }, buttons);
  element.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    const at = (buttons.indexOf(document.activeElement) + step + buttons.length) % buttons.length;
    choose(names[at]);
    buttons[at].focus();
  });
  function choose(name) {
    buttons.forEach((button, index) => {
      const isChosen = names[index] === name;
      button.setAttribute("aria-selected", String(isChosen));
      button.tabIndex = isChosen ? 0 : -1;
    });
    onChoose(name);
  }
  return { element, choose };
}
