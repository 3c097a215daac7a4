// The query form: fields from the state and back, the inputs that an index accepts, and the history.

import { byId, fill, h } from "./dom.js";
import { present } from "./fields.js";
import { Picker } from "./picker.js";
import { kindsOf, NAMES, randomVector } from "./query.js";

const COMMON = ["BruteForce", "TwoPass", "Adaptive", "Average(500)", "PerComponent(20)", "Combined(5, 200)"];
const TEXTS = ["text", "user", "vector", "allow", "strategy", "other"];

export class Form {
  // `on.submit()` searches; `on.error(error)` reports. `known` maps ids of items to items.
  constructor(known, on) {
    Object.assign(this, { known, on, items: [], index: null });
    this.element = byId("query");
    this.element.addEventListener("submit", (event) => {
      event.preventDefault();
      on.submit();
    });
    byId("text").addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      on.submit();
    });
    byId("random").addEventListener("click", () => {
      byId("vector").value = randomVector(this.index.query_shape);
      on.submit();
    });
    this.picker = new Picker(byId("picker"), byId("suggestions"), {
      index: () => this.index, onError: on.error, onPick: (item) => this.addItem(item),
    });
  }

  show(state, index) {
    this.index = index;
    this.items = [...state.items];
    const kinds = kindsOf(index);
    fill(byId("kinds"), h("legend", { class: "unseen" }, "Query by"), kinds.map((kind) => h("label", {},
      h("input", { type: "radio", name: "by", value: kind, checked: kind === state.by, onchange: () => this.showKind(kind, state.view) }), h("span", {}, NAMES[kind]))));
    byId("kinds").hidden = kinds.length < 2;
    for (const name of TEXTS) byId(name).value = state[name];
    byId("k").value = String(state.k);
    byId("k").max = String(index.limits.max_k);
    byId("vector-shape").textContent = `${index.query_shape.join(" × ")} numbers, with commas or spaces between them`;
    fill(byId("columns"), index.metadata.length ? ["Columns: ", index.metadata.map(({ name }) =>
      h("button", { type: "button", class: "chip", onclick: () => this.insertColumn(name) }, name))] : "This index has no metadata to filter by.");
    byId("allow").placeholder = example(index.metadata);
    const tuned = index.tuned.map((each) => each.strategy);
    fill(byId("strategies"), [...new Set([...tuned, ...COMMON])].map((value) => h("option", { value })));
    this.showKind(state.by, state.view);
    this.showHistory();
  }

  showKind(kind, view) {
    this.by = kind;
    this.view = view;
    for (const pane of this.element.querySelectorAll(".pane[data-kind]")) pane.hidden = pane.dataset.kind !== kind;
    for (const pane of this.element.querySelectorAll(".pane[data-view]")) pane.hidden = pane.dataset.view !== view;
    byId("go").textContent = view === "compare" ? "Compare" : "Search";
  }

  read() {
    const values = Object.fromEntries(TEXTS.map((name) => [name, byId(name).value]));
    return { ...values, by: this.by, items: [...this.items], k: Math.max(1, Math.round(Number(byId("k").value)) || 10) };
  }

  addItem(item) {
    this.known.set(String(item.id), item);
    this.items.push(String(item.id));
    this.showHistory();
    this.on.submit();
  }

  showHistory() {
    fill(byId("history"), this.items.map((id, place) => {
      const item = this.known.get(id);
      const { name: title } = present(id, item?.fields, item ? this.index.metadata : []);
      const remove = () => {
        this.items.splice(place, 1);
        this.showHistory();
        byId("picker").focus();
      };
      return h("li", {}, h("span", {}, title), h("button", { type: "button", class: "plain small", "aria-label": `Remove ${title}`, onclick: remove }, "✕"));
    }));
    byId("history").hidden = !this.items.length;
  }

  insertColumn(name) {
    const field = byId("allow");
    const plain = /^[A-Za-z_][A-Za-z0-9_]*$/.test(name) ? name : `"${name}"`;
    field.value = field.value.trim() ? `${field.value.trim()} AND ${plain} ` : `${plain} `;
    field.focus();
  }

  showError(text) {
    byId("form-error").textContent = text;
    byId("form-error").hidden = !text;
  }
}

// A filter that fits the columns of an index.
export function example(columns) {
  const number = columns.find((column) => /^(U?Int|Float)/.test(column.type));
  const text = columns.find((column) => column.type === "String");
  if (text) return `${text.name} LIKE '%…%'`;
  return number ? `${number.name} >= 100` : "";
}
