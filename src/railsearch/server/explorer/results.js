// One answer: its badge and cost, the table of results, and the line where certification ends.

import { badgeOf, lineOf } from "./certificate.js";
import { h } from "./dom.js";
import { present } from "./fields.js";
import { column, count, digitsFor, milliseconds, plural } from "./format.js";

const digitsOf = (result) => digitsFor(result.hits.map((hit) => hit.score));

export function badge(result, expected) {
  const { kind, label, text } = badgeOf(result, expected, digitsOf(result));
  return h("span", { class: `badge ${kind}`, title: text }, label, h("span", { class: "unseen" }, `. ${text}`));
}

export function announcement(answer) {
  const [result] = answer.results;
  const { label } = badgeOf(result, answer.expected_recall, digitsOf(result));
  return `${plural(result.hits.length, "result")}. ${label}. ${milliseconds(answer.milliseconds.search)}.`;
}

export function facts(answer, index) {
  const [result] = answer.results;
  const rows = [
    ["search", milliseconds(answer.milliseconds.search)],
    ["queue", milliseconds(answer.milliseconds.queue)],
    ["scored", `${count(result.num_scored)} of ${count(index.items)}`],
    ["strategy", answer.strategy],
    ["version", String(answer.index.version)],
  ];
  return h("dl", { class: "facts" }, rows.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

function itemCell(hit, columns, buttons) {
  const { title, details, body } = present(hit.id, hit.fields, columns);
  return h("td", { class: "item" }, h("div", { class: "item-row" },
    h("div", { class: "about" },
      title && h("div", { class: "title" }, title),
      body && h("div", { class: "text" }, body),
      details.length > 0 && h("div", { class: "details" }, details.map(([name, value]) =>
        h("span", { title: name }, name === "id" ? `id ${value}` : value)))),
    buttons && h("div", { class: "actions" }, buttons)));
}

function certificateRow(line, width) {
  return h("tr", { class: `line ${line.kind}` }, h("td", { colspan: width }, h("span", {}, line.text)));
}

// `actions(hit)` returns the buttons of a result; `mark(hit, place)` a cell such as its move between two lists.
export function resultTable(answer, index, { caption, actions, mark, explained = [] }) {
  const [result] = answer.results;
  const line = lineOf(result, digitsOf(result));
  const scores = column(result.hits.map((hit) => hit.score));
  const width = mark ? 4 : 3;
  const rows = result.hits.map((hit, place) =>
    h("tr", { "data-id": hit.id, class: explained.includes(String(hit.id)) ? "explained" : null },
      h("th", { scope: "row", class: "rank" }, String(place + 1)),
      mark && mark(hit, place),
      itemCell(hit, index.metadata, actions?.(hit)),
      h("td", { class: "number" }, scores[place])));
  rows.splice(line.after, 0, certificateRow(line, width));
  return h("table", { class: "results" },
    h("caption", { class: "unseen" }, caption),
    h("thead", {}, h("tr", {},
      h("th", { scope: "col", class: "rank" }, "#"),
      mark && h("th", { scope: "col", class: "move" }, "Move"),
      h("th", { scope: "col" }, "Item"),
      h("th", { scope: "col", class: "number" }, "Score"))),
    h("tbody", {}, rows));
}

export function noResults(text) {
  return h("div", { class: "empty" }, h("p", {}, text));
}
