// The page: one state, which the URL mirrors, and three views of it.

import * as api from "./api.js";
import { comparison, sentence } from "./compare.js";
import { copyMenu } from "./copy.js";
import { byId, fill, h } from "./dom.js";
import { Form } from "./form.js";
import { count } from "./format.js";
import { indexView } from "./index-view.js";
import { Live } from "./live.js";
import { isEmpty, kindsOf, queryOf, searchBody } from "./query.js";
import { announcement, badge, facts, noResults, resultTable } from "./results.js";
import { format, parse } from "./state.js";
import { startTheme } from "./theme.js";
import { showWhy } from "./why.js";

const known = new Map(); // items by id, with their metadata
const TITLES = { search: "Search", compare: "Compare strategies", index: "Index" };
let state = parse(location.search);
let indexes = [];
let index = null;
let running = null; // aborts the searches of the previous state
let live = null;
let answer = null;
let explanations = [];
let shown = null; // the query string of what is shown

const form = new Form(known, { submit: () => submit(), error: (error) => report(error) });

function change(changes, { replace = false } = {}) {
  state = { ...state, ...changes };
  const url = format(state) || location.pathname;
  if (format(state) !== location.search) history[replace ? "replaceState" : "pushState"](null, "", url);
  shown = location.search;
}

function submit() {
  change({ ...form.read(), why: [] });
  return show();
}

function setBusy(isBusy) {
  byId("main").setAttribute("aria-busy", String(isBusy));
  document.body.classList.toggle("busy", isBusy);
}

const isAbort = (error) => error.name === "AbortError";

function report(error) {
  if (isAbort(error)) return;
  if (error.status === 401) {
    askForKey();
    return;
  }
  console.info(`${error.name}: ${error.message}`);
  const [first, ...rest] = error.message.split("\n"); // an error about a filter shows the place, in lines of its own
  fill(byId("content"), h("div", { class: "failure", role: "alert" },
    h("h2", {}, error.title ?? "This query does not work"), h("p", {}, first), rest.length > 0 && h("pre", { tabindex: "0" }, rest.join("\n"))));
  closeWhy({ keepState: true });
}

// ---- the three views

async function showSearch(signal) {
  if (isEmpty(state)) return welcome();
  const body = searchBody(state, index, known, state.strategy.trim());
  answer = await api.search(index.name, body, signal);
  const [result] = answer.results;
  byId("status").textContent = announcement(answer);
  drawResults(body, result);
  return state.why.length ? explain(signal) : closeWhy({ keepState: true });
}

function drawResults(body, result) {
  const takesHistories = index.accepts.includes("histories");
  const actions = (hit) => {
    const id = String(hit.id);
    const isExplained = state.why.includes(id);
    return [
      h("button", { type: "button", class: "plain small why-button", "aria-pressed": String(isExplained), onclick: () => toggleWhy(id) }, "Why"),
      takesHistories && h("button", { type: "button", class: "plain small more", title: "Search for the audience of this item", onclick: () => moreLike(hit) }, "More like this"),
    ];
  };
  fill(byId("content"),
    h("div", { class: "summary" }, badge(result, answer.expected_recall), facts(answer, index), copyMenu(index.name, body)),
    result.hits.length
      ? resultTable(answer, index, { caption: "Results, best first", actions, explained: state.why })
      : noResults("No item passes the filter."));
}

async function showCompare(signal) {
  closeWhy({ keepState: true });
  if (isEmpty(state)) return welcome();
  const ask = (strategy) => api.search(index.name, searchBody(state, index, known, strategy.trim()), signal);
  const answers = [];
  for (const strategy of [state.strategy, state.other, state.strategy, state.other]) answers.push(await ask(strategy));
  const [first, second] = [faster(answers[0], answers[2]), faster(answers[1], answers[3])];
  byId("status").textContent = sentence(first, second);
  return fill(byId("content"), comparison(first, second, index));
}

// Of two equal searches, the one that was not disturbed.
const faster = (one, other) => (one.milliseconds.search <= other.milliseconds.search ? one : other);

async function showIndex() {
  closeWhy({ keepState: true });
  const [fresh, jobs] = await Promise.all([api.describe(index.name), api.jobs().catch(() => [])]);
  index = fresh;
  showAbout();
  const place = h("div", { class: "live" }, h("p", { class: "hint" }, "Reading /metrics…"));
  fill(byId("content"), h("div", { class: "index-view" }, indexView(index, jobs, place)));
  live = new Live(place, index);
}

function welcome() {
  const kinds = kindsOf(index);
  const texts = {
    text: "Ask a question. The best passages appear here, each with the proof of how good the answer is.",
    history: "Add items that someone liked. The items that fit next appear here.",
    user: "Enter the id of a user. The items that fit next appear here.",
    vector: "Paste a query vector, or try a random one.",
  };
  byId("status").textContent = "";
  closeWhy({ keepState: true });
  fill(byId("content"), h("div", { class: "empty" },
    h("p", { class: "lead" }, `${count(index.items)} items are ready.`),
    h("p", {}, texts[state.by] ?? texts.vector),
    kinds.length > 1 && h("p", { class: "hint" }, `This index also takes ${kinds.filter((kind) => kind !== state.by).map((kind) => ({ text: "texts", history: "histories", user: "users", vector: "vectors" }[kind])).join(", ")}.`)));
}

// ---- why

async function explain(signal) {
  const { why } = state;
  const query = queryOf(state, index, known);
  const found = await api.explain(index.name, { ...query, item_ids: why.map(itemId), fields: "all", ids: "string" }, signal);
  if (why !== state.why) return; // meanwhile the reader chose other results, closed the panel, or searched again
  const place = (each) => answer.results[0].hits.findIndex((hit) => String(hit.id) === String(each.id));
  explanations = found.explanations.sort((a, b) => place(a) - place(b));
  drawWhy();
}

const itemId = (id) => (index.ids === "integers" && Number.isSafeInteger(Number(id)) ? Number(id) : id);

function drawWhy() {
  const ranks = new Map((answer?.results[0].hits ?? []).map((hit, place) => [String(hit.id), place + 1]));
  showWhy(byId("why"), explanations, index, {
    measure: state.measure, ranks,
    on: {
      measure: (measure) => { change({ measure }, { replace: true }); drawWhy(); byId("why").querySelector(":checked").focus(); },
      close: () => { const [id] = state.why; closeWhy(); focusWhyButton(id); },
      remove: (id) => toggleWhy(id),
    },
  });
  byId("desk").classList.toggle("two-explained", explanations.length > 1);
  byId("desk").classList.add("explaining");
}

async function toggleWhy(id) {
  const isNew = !state.why.includes(id);
  const why = isNew ? [...state.why, id].slice(-2) : state.why.filter((each) => each !== id);
  change({ why }, { replace: true });
  markExplained();
  if (!why.length) return closeWhy();
  try {
    await explain();
    if (isNew && why.length === 1 && why === state.why) byId("why-title").focus();
  } catch (error) {
    if (why === state.why) report(error);
  }
  return undefined;
}

function markExplained() {
  for (const row of byId("content").querySelectorAll("tr[data-id]")) {
    const isExplained = state.why.includes(row.dataset.id);
    row.classList.toggle("explained", isExplained);
    row.querySelector(".why-button")?.setAttribute("aria-pressed", String(isExplained));
  }
}

const focusWhyButton = (id) => byId("content").querySelector(`tr[data-id="${CSS.escape(id)}"] .why-button`)?.focus();

function closeWhy({ keepState = false } = {}) {
  byId("why").hidden = true;
  byId("desk").classList.remove("explaining", "two-explained");
  if (keepState) return;
  change({ why: [] }, { replace: true });
  markExplained();
}

function moreLike(hit) {
  known.set(String(hit.id), hit);
  change({ by: "history", items: [String(hit.id)], why: [] });
  form.show(state, index);
  show();
  byId("main").focus();
}

// ---- the frame of the page

function showAbout() {
  const { similarity } = index;
  byId("about").textContent = `${count(index.items)} items · version ${index.version} · ${similarity.num_query_components} × ${similarity.num_item_components} components`;
}

function showFrame() {
  document.title = `${index.name} · railsearch`;
  byId("view-title").textContent = TITLES[state.view];
  byId("desk").className = `desk view-${state.view}`;
  byId("query").hidden = state.view === "index";
  for (const link of document.querySelectorAll("nav a")) {
    link.href = format({ ...state, view: link.dataset.view }) || location.pathname;
    if (link.dataset.view === state.view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  showAbout();
}

// Items of a history that came with the URL are looked up, for their titles and for the values that the model knows.
async function lookUpHistory() {
  const missing = [...new Set(state.items)].filter((id) => !known.has(id));
  const found = await Promise.all(missing.map((id) => api.item(index.name, id)));
  found.forEach((item) => known.set(String(item.id), item));
  if (missing.length) form.showHistory();
}

async function show() {
  running?.abort();
  const { signal } = (running = new AbortController());
  live?.close();
  live = null;
  shown = location.search;
  form.showError("");
  showFrame();
  setBusy(true);
  try {
    if (state.by === "history") await lookUpHistory();
    await { search: showSearch, compare: showCompare, index: showIndex }[state.view](signal);
  } catch (error) {
    if (isAbort(error)) return;
    if (error.status === undefined) {
      welcome();
      form.showError(error.message);
    } else report(error);
  } finally {
    if (!signal.aborted) setBusy(false);
  }
}

function chooseIndex(name) {
  index = indexes.find((each) => each.name === name) ?? indexes[0];
  const kinds = kindsOf(index);
  if (state.index !== index.name && indexes.length > 1) state.index = index.name;
  if (!kinds.includes(state.by)) state.by = kinds[0] ?? "vector";
  byId("index").value = index.name;
  form.show(state, index);
}

function askForKey() {
  byId("key-button").hidden = false;
  byId("key").value = "";
  if (!byId("key-dialog").open) byId("key-dialog").showModal();
}

async function start() {
  byId("key-button").hidden = !api.storedKey();
  try {
    indexes = await api.indexes();
  } catch (error) {
    report(error);
    return;
  }
  if (!indexes.length) {
    fill(byId("content"), noResults("This server has no index."));
    return;
  }
  fill(byId("index"), indexes.map(({ name }) => h("option", { value: name }, name)));
  byId("index").disabled = indexes.length < 2;
  chooseIndex(state.index);
  await show();
}

byId("index").addEventListener("change", () => {
  known.clear();
  change({ index: byId("index").value, by: "", text: "", items: [], user: "", vector: "", allow: "", why: [], strategy: "" });
  chooseIndex(state.index);
  show();
});
document.querySelector("nav").addEventListener("click", (event) => {
  const link = event.target.closest("a[data-view]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey || !index) return;
  event.preventDefault();
  change({ ...form.read(), view: link.dataset.view });
  form.show(state, index);
  show();
});
window.addEventListener("popstate", () => {
  if (!index || location.search === shown) return; // a link within the page, such as the one to the results
  state = parse(location.search);
  chooseIndex(state.index);
  show();
});
document.addEventListener("keydown", (event) => {
  const isTyping = event.target.closest?.("input, textarea, select, dialog");
  if (event.key === "/" && !isTyping && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    document.querySelector(".pane:not([hidden]) :is(textarea, input)")?.focus();
  } else if (event.key === "Escape" && !isTyping && state.why.length) {
    const [id] = state.why;
    closeWhy();
    focusWhyButton(id);
  }
});
byId("key-button").addEventListener("click", askForKey);
byId("key-dialog").addEventListener("close", () => {
  const choice = byId("key-dialog").returnValue;
  if (choice === "use") api.storeKey(byId("key").value.trim());
  if (choice === "forget") api.storeKey("");
  byId("key").value = "";
  if (choice === "use" || choice === "forget") start();
});
startTheme(byId("theme"));
start();
