// Why an item has its score: the Pq x Px component pairs as a table, for one result or two side by side.

import { h, fill } from "./dom.js";
import { present } from "./fields.js";
import { digitsFor, fixed, percent } from "./format.js";

export const LABELS = { contribution: "Contribution", dot: "Dot product", gate: "Gate weight" };
const MEMBERS = { contribution: "contributions", dot: "component_scores", gate: "gate_weights" };
const TEXTS = {
  contribution: "Gate weight times dot product. The cells sum to the score.",
  dot: "Dot product of a query component and an item component, divided by the temperature.",
  gate: "Share of a component pair in the score. The cells sum to 1.",
};

export const matrixOf = (explanation, measure) => explanation[MEMBERS[measure]];

// [row, column] of the largest value; of equal values the first.
export function bestPair(matrix) {
  let best = [0, 0];
  matrix.forEach((row, i) => row.forEach((value, j) => {
    if (value > matrix[best[0]][best[1]]) best = [i, j];
  }));
  return best;
}

// Colours of two tables can be compared: both take the largest value of either.
export const scaleOf = (explanations, measure) =>
  Math.max(...explanations.flatMap((each) => matrixOf(each, measure).flat().map(Math.abs)), 1e-12);

function heatTable(explanation, measure, scale, name) {
  const matrix = matrixOf(explanation, measure);
  const [bestRow, bestColumn] = bestPair(explanation.contributions);
  const digits = measure === "gate" ? 3 : digitsFor(matrix.flat());
  const columns = matrix[0].map((_, j) => h("th", { scope: "col" }, `x${j + 1}`));
  const rows = matrix.map((row, i) => h("tr", {},
    h("th", { scope: "row" }, `q${i + 1}`),
    row.map((value, j) => {
      const isBest = i === bestRow && j === bestColumn;
      return h("td", { class: `${value < 0 ? "below" : "above"}${isBest ? " best" : ""}`, "--level": String(Math.min(1, Math.abs(value) / scale)) },
        fixed(value, digits), isBest && h("span", { class: "unseen" }, " (best component pair)"));
    })));
  return h("div", { class: "heat-scroll", tabindex: "0", role: "region", "aria-label": `Component pairs of ${name}` },
    h("table", { class: "heat" },
      h("caption", { class: "unseen" }, `${LABELS[measure]} of each query component (rows) and item component (columns) for ${name}`),
      h("thead", {}, h("tr", {}, h("td", {}), columns)), h("tbody", {}, rows)));
}

function explained(explanation, rank, index, { measure, scale, digits, onRemove }) {
  const { name: title } = present(explanation.id, explanation.fields, index.metadata);
  const [i, j] = bestPair(explanation.contributions);
  const share = explanation.contributions[i][j] / explanation.score;
  const best = `q${i + 1} · x${j + 1}`;
  return h("section", { class: "explained-item" },
    h("header", {},
      h("h3", {}, rank ? h("span", { class: "rank" }, `${rank} `) : null, title),
      onRemove && h("button", { type: "button", class: "plain small", "aria-label": `Stop explaining ${title}`, onclick: onRemove }, "✕")),
    heatTable(explanation, measure, scale, title),
    h("dl", { class: "facts" },
      h("div", {}, h("dt", {}, "score"), h("dd", {}, fixed(explanation.score, digits))),
      h("div", {}, h("dt", {}, "best pair"), h("dd", {}, explanation.score > 0 ? `${best}, ${percent(share, 0)} of the score` : best)),
      h("div", {}, h("dt", {}, "its weight"), h("dd", {}, percent(explanation.gate_weights[i][j], 0)))));
}

// Fills the panel. `ranks` maps ids to ranks; `on.measure`, `on.close` and `on.remove` are called by its controls.
export function showWhy(panel, explanations, index, { measure, ranks, on }) {
  const scale = scaleOf(explanations, measure);
  const digits = digitsFor(explanations.map((each) => each.score));
  const choices = Object.entries(LABELS).map(([value, label]) => h("label", {},
    h("input", { type: "radio", name: "measure", value, checked: value === measure, onchange: () => on.measure(value) }), h("span", {}, label)));
  fill(panel,
    h("header", { class: "panel-head" },
      h("h2", { id: "why-title", tabindex: "-1" }, "Why"),
      h("button", { type: "button", class: "plain small", onclick: on.close }, "Close")),
    h("fieldset", { class: "segments" }, h("legend", { class: "unseen" }, "Number in the cells"), choices),
    h("p", { class: "hint" }, TEXTS[measure]),
    h("div", { class: explanations.length > 1 ? "side-by-side" : "" }, explanations.map((each) =>
      explained(each, ranks.get(String(each.id)), index, { measure, scale, digits, onRemove: explanations.length > 1 ? () => on.remove(String(each.id)) : null }))),
    explanations.length === 1 && h("p", { class: "hint" }, "Choose Why on a second result to see both side by side."));
  panel.hidden = false;
  panel.classList.toggle("wide", explanations.length > 1);
}
