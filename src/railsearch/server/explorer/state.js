// The state of the page, and its form in the URL: whoever opens the link sees the same.

export const VIEWS = ["search", "compare", "index"];
export const KINDS = ["text", "history", "user", "vector"];
export const MEASURES = ["contribution", "dot", "gate"];

export const DEFAULTS = Object.freeze({
  index: "",
  view: "search",
  by: "",
  text: "",
  items: Object.freeze([]), // the history, oldest first
  user: "",
  vector: "",
  allow: "",
  k: 10,
  strategy: "", // the server's choice
  other: "BruteForce", // the second strategy of the view compare
  why: Object.freeze([]), // ids of at most two results that are explained
  measure: "contribution",
});

const LISTS = { items: "item", why: "why" }; // lists repeat their parameter: an id may hold any character
const LARGEST_K = 100_000;

export function parse(query) {
  const parameters = new URLSearchParams(query);
  const state = { ...DEFAULTS };
  for (const [name, fallback] of Object.entries(DEFAULTS)) {
    if (name in LISTS) state[name] = parameters.getAll(LISTS[name]).filter((value) => value !== "");
    else if (parameters.has(name)) state[name] = typeof fallback === "number" ? Number(parameters.get(name)) : parameters.get(name);
  }
  if (!VIEWS.includes(state.view)) state.view = DEFAULTS.view;
  if (!KINDS.includes(state.by)) state.by = DEFAULTS.by;
  if (!MEASURES.includes(state.measure)) state.measure = DEFAULTS.measure;
  if (!Number.isInteger(state.k) || state.k < 1 || state.k > LARGEST_K) state.k = DEFAULTS.k;
  state.why = state.why.slice(0, 2);
  return state;
}

export function format(state) {
  const parameters = new URLSearchParams();
  for (const [name, fallback] of Object.entries(DEFAULTS)) {
    if (name in LISTS) state[name].forEach((value) => parameters.append(LISTS[name], value));
    else if (state[name] !== fallback) parameters.set(name, String(state[name]));
  }
  const text = parameters.toString();
  return text ? `?${text}` : "";
}

// Numbers of a pasted vector: JSON, numpy's print, or a column of a table. Throws an Error that says what to change.
export function parseVector(text) {
  const parts = text.replace(/[[\](){}]|array|tensor/g, " ").split(/[\s,;]+/).filter(Boolean);
  const numbers = parts.map(Number);
  const wrong = numbers.findIndex((value) => !Number.isFinite(value));
  if (wrong >= 0) throw new Error(`Value ${wrong + 1} of the vector is “${parts[wrong]}”; paste numbers only.`);
  if (!numbers.length) throw new Error("The vector is empty; paste its numbers, with commas or spaces between them.");
  return numbers;
}

// A vector of any shape from its numbers: (D,) or (Pq, d).
export function shaped(numbers, shape) {
  const size = shape.reduce((product, length) => product * length, 1);
  if (numbers.length !== size) {
    throw new Error(`The vector has ${numbers.length} numbers but this index takes ${shape.join(" x ")}; paste ${size} numbers.`);
  }
  if (shape.length === 1) return numbers;
  const step = size / shape[0];
  return Array.from({ length: shape[0] }, (_, row) => shaped(numbers.slice(row * step, (row + 1) * step), shape.slice(1)));
}
