// What lists have in common: a search by name, and pages. Both are in the address.
import { byId, count, h, show } from "./dom.js";
import * as url from "./url.js";

// Lists anew, from the first page.
export function relist(state, list) {
  delete state.page;
  url.write(state);
  list();
}

// Lists what the reader searches for, soon after the last letter.
export function searchBox(state, list) {
  const search = byId("search");
  search.value = state.search ?? "";
  let typing = 0;
  search.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(() => { state.search = search.value.trim(); relist(state, list); }, 150);
  });
}

export const pagesOf = (total, limit) => Math.max(1, Math.ceil(total / limit));

export function showPager(state, pages, list) {
  const page = Math.min(Number(state.page ?? 1), pages);
  const turnTo = (to) => () => { state.page = to; url.write(state, { push: true }); list(); };
  show(byId("pager"), pages > 1 && [
    h("button", { type: "button", disabled: page <= 1, onclick: turnTo(page - 1) }, "Previous"),
    h("span", null, `Page ${page} of ${count(pages)}`),
    h("button", { type: "button", disabled: page >= pages, onclick: turnTo(page + 1) }, "Next")]);
}
