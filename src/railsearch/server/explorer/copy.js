// The menu that shows a search for a shell and for Python, and copies it.

import { storedKey } from "./api.js";
import { h } from "./dom.js";
import { asCurl, asPython } from "./snippets.js";

export function copyMenu(index, body) {
  const texts = { curl: asCurl(document.baseURI, index, body, Boolean(storedKey())), Python: asPython(document.baseURI, index, body) };
  const rows = Object.entries(texts).map(([name, text]) => {
    const button = h("button", { type: "button", class: "plain small", "aria-label": `Copy as ${name}` }, "Copy");
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(text);
        button.textContent = "Copied";
      } catch {
        getSelection().selectAllChildren(button.closest("div").nextElementSibling); // no permission: the reader copies
        button.textContent = "Selected";
      }
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
    return [h("div", { class: "snippet-head" }, h("span", {}, name), button), h("pre", { tabindex: "0", role: "group", "aria-label": `${name} code` }, text)];
  });
  return h("details", { class: "copy" }, h("summary", {}, "Copy as"), h("div", { class: "snippets" }, rows));
}
