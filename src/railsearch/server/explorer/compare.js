// One query, two strategies: cost and certificate in a table, and the two lists with the ranks that moved.

import { h } from "./dom.js";
import { count, digitsFor, fixed, milliseconds, percent } from "./format.js";
import { describeMove, moves, summarise } from "./ranks.js";
import { badge, resultTable } from "./results.js";

const ids = (answer) => answer.results[0].hits.map((hit) => String(hit.id));

function ratio(first, second, text) {
  if (!(first > 0) || !(second > 0)) return "";
  const factor = second / first;
  return Math.abs(factor - 1) < 0.005 ? "same" : `${factor >= 10 ? factor.toFixed(0) : factor.toFixed(2)} × ${text}`;
}

function summaryTable(first, second, index) {
  const [a, b] = [first.results[0], second.results[0]];
  const digits = digitsFor([...a.hits, ...b.hits].map((hit) => hit.score));
  const gap = (result) => (result.gap === null ? "no bound" : fixed(result.gap, digits));
  const recall = (answer) => (answer.expected_recall ? `≥ ${percent(answer.expected_recall.recall)}` : "–");
  const scored = (result) => `${count(result.num_scored)} (${percent(result.num_scored / index.items, result.num_scored === index.items ? 0 : 1)})`;
  const rows = [
    ["Certificate", badge(a, first.expected_recall), badge(b, second.expected_recall), ""],
    ["Search", milliseconds(first.milliseconds.search), milliseconds(second.milliseconds.search),
      ratio(first.milliseconds.search, second.milliseconds.search, "the time")],
    ["Items scored", scored(a), scored(b), ratio(a.num_scored, b.num_scored, "the items")],
    ["Gap", gap(a), gap(b), ""],
    ["Certified", `${a.num_certified} of ${a.hits.length}`, `${b.num_certified} of ${b.hits.length}`, ""],
    ["Measured recall", recall(first), recall(second), ""],
  ];
  return h("div", { class: "table-scroll" }, h("table", { class: "grid" },
    h("caption", { class: "unseen" }, "Cost and certificate of both strategies"),
    h("thead", {}, h("tr", {}, h("td", {}), h("th", { scope: "col" }, first.strategy), h("th", { scope: "col" }, second.strategy),
      h("th", { scope: "col", class: "ratio" }, h("span", { class: "unseen" }, "Second to first")))),
    h("tbody", {}, rows.map(([name, ...cells]) => h("tr", {}, h("th", { scope: "row" }, name), cells.map((cell, place) => h("td", { class: place === 2 ? "ratio" : null }, cell)))))));
}

function list(answer, other, index) {
  const moved = moves(ids(answer), ids(other));
  const mark = (_, place) => {
    const { move } = moved[place];
    const { sign, text } = describeMove(move);
    const kind = move === null ? "only" : move > 0 ? "up" : move < 0 ? "down" : "same";
    return h("td", { class: `move ${kind}` }, h("span", { "aria-hidden": "true" }, sign), h("span", { class: "unseen" }, text));
  };
  return h("section", {},
    h("h2", { class: "code" }, answer.strategy),
    resultTable(answer, index, { caption: `Results of ${answer.strategy}`, mark }));
}

export function sentence(first, second) {
  const { shared, moved } = summarise(ids(first), ids(second));
  const total = Math.max(ids(first).length, ids(second).length);
  if (shared === total && moved === 0) return `Both found the same ${total} items in the same order.`;
  const order = moved === 0 ? "none of them moved" : `${moved} of them moved`;
  return shared === total ? `Both found the same ${total} items; ${order}.` : `${shared} of ${total} items are in both lists; ${order}.`;
}

export function comparison(first, second, index) {
  return [
    h("p", { class: "lead" }, sentence(first, second)),
    summaryTable(first, second, index),
    h("div", { class: "two-lists" }, list(first, second, index), list(second, first, index)),
    h("p", { class: "hint" }, "Moves are relative to the other list. Times are the better of two searches each."),
  ];
}
