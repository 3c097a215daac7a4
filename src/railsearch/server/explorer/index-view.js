// The index: what it holds, how it was tuned, what it accepts, and the jobs of the server.

import { h } from "./dom.js";
import { bytes, count, percent } from "./format.js";

const facts = (rows) => h("dl", { class: "sheet" }, rows.filter(Boolean).map(([name, value]) =>
  h("div", {}, h("dt", {}, name), h("dd", {}, value))));

function table(caption, heads, rows) {
  return h("div", { class: "table-scroll" }, h("table", { class: "grid" },
    h("caption", { class: "unseen" }, caption),
    h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col" }, head)))),
    h("tbody", {}, rows.map((row) => h("tr", {}, row.map((cell, place) => h(place === 0 ? "th" : "td", place === 0 ? { scope: "row" } : {}, cell)))))));
}

const short = (fingerprint) => (fingerprint ? h("span", { class: "code", title: fingerprint }, `${fingerprint.slice(0, 12)}…`) : "–");

function section(title, ...children) {
  return h("section", {}, h("h2", {}, title), children);
}

export function indexView(index, jobs, live) {
  const { similarity } = index;
  const shape = `${similarity.num_query_components} × ${similarity.num_item_components} components of ${similarity.component_dim}`;
  const tuned = index.tuned.map((each) => [
    String(each.k), h("span", { class: "code" }, each.strategy), each.engine,
    each.expected_recall ? `≥ ${percent(each.expected_recall.recall, 2)}` : "exact",
    each.expected_recall ? percent(each.expected_recall.confidence, 0) : "–",
    each.expected_recall ? `version ${each.expected_recall.version}` : "–",
  ]);
  return [
    h("div", { class: "columns" },
      section("Contents", facts([
        ["Version", String(index.version)],
        ["Items", count(index.items)],
        ["Removed, not compacted", count(index.removed)],
        ["Segments", count(index.segments)],
        ["Memory", `${bytes(index.bytes)} (${bytes(index.items ? index.bytes / index.items : 0)} per item)`],
        ["Precision", index.precision],
        ["Ids", index.ids],
        ["Writable", index.is_writable ? "yes" : "no"],
      ])),
      section("Similarity", facts([
        ["Kind", similarity.kind],
        ["Shape", shape],
        ["Kernel", index.kernel],
        ["Engine", index.engine],
        ["Fingerprint", short(index.fingerprint)],
        ["Model", index.model ? index.model.kind : "none: queries are embeddings"],
        index.model && ["Its fingerprint", short(index.model.fingerprint)],
        ["Queries", index.accepts.join(", ")],
      ]))),
    section("Live", live),
    section("Tuned strategies", tuned.length
      ? table("Tuned strategies", ["k", "Strategy", "Engine", "Measured recall", "Confidence", "Measured at"], tuned)
      : h("p", { class: "hint" }, "None. Searches use brute force unless they name a strategy; railsearch index tune measures cheaper ones.")),
    index.tables.length > 0 && section("Engine tables", h("ul", { class: "plain-list" }, index.tables.map((each) => h("li", {}, typeof each === "string" ? each : JSON.stringify(each))))),
    section("Metadata", index.metadata.length
      ? table("Columns", ["Column", "Type"], index.metadata.map((each) => [h("span", { class: "code" }, each.name), each.type]))
      : h("p", { class: "hint" }, "This index has no metadata; results show ids.")),
    jobs.length > 0 && section("Jobs", table("Jobs", ["Job", "Kind", "Index", "State", "Started"], jobs.slice(0, 10).map((job) =>
      [h("span", { class: "code" }, job.id), job.kind, job.index, job.state, job.created_at.replace("T", " ").slice(0, 19)]))),
    h("details", {}, h("summary", {}, "Limits"), table("Limits", ["Limit", "Value"], Object.entries(index.limits).map(([name, value]) =>
      [h("span", { class: "code" }, name), count(value)]))),
  ];
}
