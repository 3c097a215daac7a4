// Small plots as SVG: lines over time and bars of a histogram. Colours come from the style sheet.

import { h, svg } from "./dom.js";

const WIDTH = 340;
const HEIGHT = 140;
const LEFT = 40;
const BOTTOM = 22;
const TOP = 10;

// A round number of at least the value: 1, 2, 2.5 or 5 times a power of ten.
export function roundUp(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 2.5, 5, 10].map((step) => step * power).find((step) => step >= value * 0.999999);
}

const vertical = (value, top) => HEIGHT - BOTTOM - (value / top) * (HEIGHT - BOTTOM - TOP);

function frame(top, label) {
  return [0, 0.5, 1].map((share) => {
    const y = vertical(share * top, top);
    return [
      svg("line", { class: share === 0 ? "axis" : "gridline", x1: LEFT, x2: WIDTH, y1: y, y2: y }),
      svg("text", { class: "tick", x: LEFT - 8, y: y + 4, "text-anchor": "end" }, label(share * top)),
    ];
  });
}

function figure(title, summary, drawing, legend) {
  return h("figure", { class: "plot" },
    h("figcaption", {}, h("span", { class: "plot-title" }, title), legend),
    svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${title}. ${summary}` }, drawing));
}

// Splits a series into runs without gaps: [[{ x, y }, ...], ...].
export function runs(points, first, last, top) {
  const found = [[]];
  for (const { time, value } of points) {
    if (value === null) found.push([]);
    else found.at(-1).push({ x: LEFT + ((time - first) / (last - first)) * (WIDTH - LEFT), y: vertical(Math.min(value, top), top) });
  }
  return found.filter((run) => run.length);
}

// series: [{ name, points: [{ time (s), value or null }] }]
export function linePlot(title, series, { now, seconds, label, summary }) {
  const top = roundUp(Math.max(0, ...series.flatMap((each) => each.points.map((point) => point.value ?? 0))));
  const first = now - seconds;
  const drawn = series.flatMap((each, place) => runs(each.points.filter((point) => point.time >= first), first, now, top).map((run) =>
    run.length === 1
      ? svg("circle", { class: `series-${place + 1} dot`, cx: run[0].x, cy: run[0].y, r: 2.5 })
      : svg("polyline", { class: `series-${place + 1}`, points: run.map(({ x, y }) => `${x.toFixed(1)},${y.toFixed(1)}`).join(" ") })));
  const times = [
    svg("text", { class: "tick", x: LEFT, y: HEIGHT - 4 }, `${seconds} s ago`),
    svg("text", { class: "tick", x: WIDTH, y: HEIGHT - 4, "text-anchor": "end" }, "now"),
  ];
  const legend = series.length > 1 && h("span", { class: "legend" }, series.map((each, place) =>
    h("span", { class: `key-${place + 1}` }, each.name)));
  return figure(title, summary, [frame(top, label), times, drawn], legend);
}

// bars: [{ name, count }]
export function barPlot(title, bars, { label, summary }) {
  const top = roundUp(Math.max(0, ...bars.map((bar) => bar.count)));
  const step = (WIDTH - LEFT) / Math.max(1, bars.length);
  const drawn = bars.map((bar, place) => {
    const y = vertical(bar.count, top);
    const x = LEFT + place * step;
    return [
      svg("rect", { class: "bar-mark", x: x + step * 0.14, y, width: step * 0.72, height: HEIGHT - BOTTOM - y, rx: 1.5 },
        svg("title", {}, `${bar.name}: ${bar.count}`)),
      svg("text", { class: "tick", x: x + step / 2, y: HEIGHT - 6, "text-anchor": "middle" }, bar.name),
    ];
  });
  return figure(title, summary, [frame(top, label), drawn]);
}
