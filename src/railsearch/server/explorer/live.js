// The live plots: readings of /metrics every two seconds, as long as the view is open and visible.

import * as api from "./api.js";
import { fill, h } from "./dom.js";
import { bytes, count, fixed, milliseconds } from "./format.js";
import { bars, growth, histogram, parse, quantile, total } from "./metrics.js";
import { barPlot, linePlot } from "./plot.js";

const EVERY = 2000;
const SECONDS = 120;
const isSearch = { route: (route) => route.endsWith("/search") };

export class Live {
  constructor(element, index) {
    this.element = element;
    this.index = index.name;
    this.largestBatch = index.limits.batch_queries;
    this.before = null;
    this.points = [];
    this.isOpen = true;
    this.run();
  }

  close() {
    this.isOpen = false;
    clearTimeout(this.timer);
  }

  async run() {
    try {
      if (document.visibilityState === "visible") this.take(parse(await api.metrics()), Date.now() / 1000);
    } catch (error) {
      if (this.isOpen) fill(this.element, h("p", { class: "hint" }, `No live figures: ${error.message}`));
    }
    if (this.isOpen) this.timer = setTimeout(() => this.run(), EVERY);
  }

  take(samples, now) {
    const requests = histogram(samples, "railsearch_request_seconds", isSearch);
    if (this.before) {
      const added = growth(this.before.requests, requests);
      const elapsed = now - this.before.now;
      this.points.push({ time: now, p50: quantile(added, 0.5), p95: quantile(added, 0.95), rate: (added?.count ?? 0) / elapsed });
      this.points = this.points.filter((point) => point.time > now - SECONDS - 5);
    }
    this.before = { requests, now };
    if (this.isOpen) this.draw(samples, now, requests);
  }

  draw(samples, now, requests) {
    const series = (name, scale) => this.points.map((point) => ({ time: point.time, value: point[name] === null ? null : point[name] * scale }));
    const last = this.points.at(-1) ?? { p50: null, p95: null, rate: 0 };
    const batches = histogram(samples, "railsearch_batch_queries", { index: this.index });
    const shown = batchBars(batches, this.largestBatch);
    const mean = batches?.count ? batches.sum / batches.count : null;
    const facts = [
      ["searches", count(requests?.count ?? 0)],
      ["refused", count(total(samples, "railsearch_rejected_total") ?? 0)],
      ["in the queue", count(total(samples, "railsearch_queue_depth") ?? 0)],
      ["median, all time", milliseconds(scaled(quantile(requests, 0.5)))],
      ["95 %, all time", milliseconds(scaled(quantile(requests, 0.95)))],
      ["memory of the process", bytes(total(samples, "process_resident_memory_bytes"))],
    ];
    fill(this.element,
      h("dl", { class: "facts" }, facts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value)))),
      h("div", { class: "plots" },
        linePlot("Latency of searches, ms", [{ name: "median", points: series("p50", 1000) }, { name: "95 %", points: series("p95", 1000) }],
          { now, seconds: SECONDS, label: axis, summary: `Now: median ${milliseconds(scaled(last.p50))}, 95 % ${milliseconds(scaled(last.p95))}.` }),
        linePlot("Searches per second", [{ name: "searches", points: series("rate", 1) }],
          { now, seconds: SECONDS, label: axis, summary: `Now: ${fixed(last.rate, 1)} per second.` }),
        barPlot("Queries per batch", shown, { label: axis, summary: mean === null ? "No batches yet." : `Mean ${fixed(mean, 1)}.` })));
  }
}

const scaled = (seconds) => (seconds === null ? null : seconds * 1000);

export const axis = (value) => (value === 0 ? "0" : value >= 1e6 ? `${value / 1e6}M` : value >= 1000 ? `${value / 1000}k` : String(Number(value.toPrecision(3))));

// Bars of batch sizes, up to the largest batch that the server forms.
export function batchBars(batches, largest) {
  return bars(batches).filter((bar) => bar.to <= largest || bar.count > 0).map((bar) => {
    const from = bar.from + 1;
    const name = bar.to === Infinity ? `> ${bar.from}` : from >= bar.to ? String(bar.to) : `${from}–${bar.to}`;
    return { name, count: bar.count };
  });
}
