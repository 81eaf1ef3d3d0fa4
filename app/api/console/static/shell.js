// Parts of every screen: the health of the broker, and the choice between light and dark.
import { byId, enable, every } from "./dom.js";
import { get } from "./api.js";

const health = byId("health");
const word = health.querySelector(".word");

function say(state, text) {
  if (word.textContent === text) return;
  health.dataset.state = state;
  word.textContent = text;
}

every(5000, async () => {
  try {
    await get("/readyz");
    say("good", "ready");
  } catch (problem) {
    say("bad", problem.status ? "not ready" : "unreachable");
    health.title = problem.message;
  }
});

const root = document.documentElement;
const button = byId("theme");
const preference = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : preference.matches);
const label = () => { button.textContent = isDark() ? "Light" : "Dark"; };

function stored(theme) {
  try {
    if (theme === undefined) return localStorage.getItem("stele-theme");
    localStorage.setItem("stele-theme", theme);
  } catch {
    // Without storage, the preference of the browser applies.
  }
  return null;
}

const kept = stored();
if (kept === "dark" || kept === "light") root.dataset.theme = kept;
label();
preference.addEventListener("change", label);
button.addEventListener("click", () => {
  root.dataset.theme = isDark() ? "light" : "dark";
  stored(root.dataset.theme);
  label();
});
enable("theme");
