// A field that finds items by their text and adds them to a history; by mouse, touch or keyboard.

import * as api from "./api.js";
import { fill, h } from "./dom.js";
import { present } from "./fields.js";

const LIMIT = 8;
const DELAY = 150;

export class Picker {
  // `onPick(item)` is called for a chosen item; `index()` returns the index that is searched.
  constructor(input, list, { index, onPick, onError }) {
    Object.assign(this, { input, list, index, onPick, onError, items: [], active: -1 });
    input.addEventListener("input", () => this.later());
    input.addEventListener("focus", () => this.later(0));
    input.addEventListener("blur", () => this.close());
    input.addEventListener("keydown", (event) => this.key(event));
    list.addEventListener("pointerdown", (event) => event.preventDefault()); // the field keeps its focus
    list.addEventListener("click", (event) => {
      const option = event.target.closest("[role=option]");
      if (option) this.pick(Number(option.dataset.place));
    });
  }

  later(delay = DELAY) {
    this.isStale = true; // the list is that of an earlier text
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.find(), delay);
  }

  async find() {
    this.request?.abort();
    const request = (this.request = new AbortController());
    try {
      const items = await api.findItems(this.index().name, this.input.value.trim(), LIMIT, request.signal);
      if (document.activeElement === this.input) this.show(items);
    } catch (error) {
      if (error.name !== "AbortError") this.onError(error);
    }
  }

  async findAndPick() {
    clearTimeout(this.timer);
    await this.find();
    if (!this.isStale) this.pick(0);
  }

  show(items) {
    this.items = items;
    this.isStale = false;
    this.active = -1;
    fill(this.list, items.length
      ? items.map((item, place) => {
        const { name: title, details } = present(item.id, item.fields, this.index().metadata);
        return h("li", { role: "option", id: `suggestion-${place}`, "data-place": place, "aria-selected": "false" },
          h("span", { class: "title" }, title), h("span", { class: "details" }, details.map(([, value]) => value).join(" · ")));
      })
      : h("li", { role: "option", "aria-disabled": "true", class: "none" }, "No item has this text."));
    this.list.hidden = false;
    this.input.setAttribute("aria-expanded", "true");
    this.input.removeAttribute("aria-activedescendant");
  }

  close() {
    clearTimeout(this.timer);
    this.list.hidden = true;
    this.input.setAttribute("aria-expanded", "false");
    this.input.removeAttribute("aria-activedescendant");
  }

  key(event) {
    const isOpen = !this.list.hidden;
    if (event.key === "Escape" && isOpen) this.close();
    else if (event.key === "Enter" && this.isStale && this.input.value.trim()) this.findAndPick();
    else if (event.key === "Enter" && isOpen && this.items.length && (this.active >= 0 || this.input.value.trim())) this.pick(Math.max(0, this.active));
    else if (event.key === "ArrowDown" || event.key === "ArrowUp") this.move(event.key === "ArrowDown" ? 1 : -1);
    else return;
    event.preventDefault();
  }

  move(step) {
    if (this.list.hidden) return this.find();
    if (!this.items.length) return undefined;
    this.list.querySelector('[aria-selected="true"]')?.setAttribute("aria-selected", "false");
    this.active = (this.active + step + this.items.length + (this.active < 0 && step < 0 ? 1 : 0)) % this.items.length;
    const option = this.list.children[this.active];
    option.setAttribute("aria-selected", "true");
    option.scrollIntoView({ block: "nearest" });
    this.input.setAttribute("aria-activedescendant", option.id);
    return undefined;
  }

  pick(place) {
    const item = this.items[place];
    if (!item) return;
    this.input.value = "";
    this.onPick(item);
    this.close();
  }
}
