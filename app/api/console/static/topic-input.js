// An input for a topic's name that asks the broker for names as one types; five thousand of them stay there.
import { h, show } from "./dom.js";
import { get, query } from "./api.js";

export function suggestTopics(input, list) {
  let typing = 0;
  const suggest = async () => {
    try {
      const found = await get(`/v1/topics${query({ search: input.value.trim(), limit: 20 })}`);
      show(list, found.topics.map((topic) => h("option", { value: topic.name })));
    } catch {
      // Names can be typed without suggestions; what is wrong with the broker is said elsewhere.
      show(list);
    }
  };
  input.addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(suggest, 150); });
  input.addEventListener("focus", suggest, { once: true });
}
