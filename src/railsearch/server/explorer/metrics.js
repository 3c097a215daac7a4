// The text of /metrics, read: samples by name, histograms, their growth between two readings, and quantiles.

const SAMPLE = /^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})?\s+(\S+)/;
const LABEL = /([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"/g;
const ESCAPES = { n: "\n", "\\": "\\", '"': '"' };

const number = (text) => (text === "+Inf" ? Infinity : text === "-Inf" ? -Infinity : Number(text));

export function parse(text) {
  const samples = new Map();
  for (const line of text.split("\n")) {
    if (!line || line.startsWith("#")) continue;
    const match = SAMPLE.exec(line);
    if (!match) continue;
    const labels = {};
    for (const [, name, value] of (match[2] ?? "").matchAll(LABEL)) {
      labels[name] = value.replace(/\\(.)/g, (_, letter) => ESCAPES[letter] ?? letter);
    }
    if (!samples.has(match[1])) samples.set(match[1], []);
    samples.get(match[1]).push({ labels, value: number(match[3]) });
  }
  return samples;
}

// Wanted labels by name: a value, or a function that accepts values.
const fits = (labels, wanted) => Object.entries(wanted).every(([name, value]) =>
  typeof value === "function" ? value(labels[name] ?? "") : labels[name] === value);

export function total(samples, name, wanted = {}) {
  const found = (samples.get(name) ?? []).filter((each) => fits(each.labels, wanted));
  return found.length ? found.reduce((sum, each) => sum + each.value, 0) : null;
}

// A histogram over all series that fit the labels: counts below each upper edge (cumulative), their sum and number.
export function histogram(samples, name, wanted = {}) {
  const edges = new Map();
  for (const { labels, value } of samples.get(`${name}_bucket`) ?? []) {
    if (fits(labels, wanted)) edges.set(number(labels.le), (edges.get(number(labels.le)) ?? 0) + value);
  }
  if (!edges.size) return null;
  const buckets = [...edges].sort(([a], [b]) => a - b).map(([edge, below]) => ({ edge, below }));
  return { buckets, sum: total(samples, `${name}_sum`, wanted) ?? 0, count: buckets.at(-1).below };
}

// What was added between two readings; the later reading alone if the server has restarted in between.
export function growth(before, after) {
  if (!before || !after || after.count < before.count) return after;
  const known = new Map(before.buckets.map(({ edge, below }) => [edge, below]));
  return {
    buckets: after.buckets.map(({ edge, below }) => ({ edge, below: below - (known.get(edge) ?? 0) })),
    sum: after.sum - before.sum,
    count: after.count - before.count,
  };
}

// A quantile by linear interpolation inside its bucket, as Prometheus computes it; null without observations.
export function quantile(histogram, share) {
  if (!histogram || histogram.count === 0) return null;
  const wanted = share * histogram.count;
  let lower = 0;
  let belowLower = 0;
  for (const { edge, below } of histogram.buckets) {
    if (below >= wanted) {
      if (edge === Infinity) return lower;
      const inside = below - belowLower;
      return inside === 0 ? edge : lower + ((edge - lower) * (wanted - belowLower)) / inside;
    }
    lower = edge;
    belowLower = below;
  }
  return lower;
}

// Counts of each bucket instead of cumulative ones, for bars: [{ from, to, count }].
export function bars(histogram) {
  let from = 0;
  let seen = 0;
  return (histogram?.buckets ?? []).map(({ edge, below }) => {
    const bar = { from, to: edge, count: Math.max(0, below - seen) };
    from = edge;
    seen = below;
    return bar;
  });
}
