// Suggests topic names while the user types. The broker does the search, because there may be thousands of topics.
import { h, show } from "./dom.js";
import { get, query } from "./api.js";

export function suggestTopics(input, list) {
  let typing = 0;
  const suggest = async () => {
    try {
      const answer = await get(`/v1/topics${query({ search: input.value.trim(), limit: 20 })}`);
      show(list, answer.topics.map((topic) => h("option", { value: topic.name })));
    } catch {
      // Names can be typed without suggestions, and the page reports problems of the broker elsewhere.
      show(list);
    }
  };
  input.addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(suggest, 150); });
  input.addEventListener("focus", suggest, { once: true });
}
