// Numbers as people read them: aligned, with units, and with a true minus sign.

const counts = new Intl.NumberFormat("en-US");
const MINUS = "\u2212";

const signed = (text) => text.replace("-", MINUS);

export const count = (value) => (value === null || value === undefined ? "–" : counts.format(value));

export function fixed(value, digits) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : `${MINUS}∞`;
  const text = value.toFixed(digits);
  return signed(Number(text) === 0 ? text.replace("-", "") : text);
}

// Digits after the point that tell values of this size apart: scores of 20 need fewer than scores of 0.02.
export function digitsFor(values) {
  const largest = Math.max(0, ...values.filter(Number.isFinite).map(Math.abs));
  if (largest === 0) return 3;
  return Math.min(6, Math.max(1, 3 - Math.floor(Math.log10(largest))));
}

export function column(values) {
  const digits = digitsFor(values);
  return values.map((value) => fixed(value, digits));
}

export function milliseconds(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (value >= 10_000) return `${(value / 1000).toFixed(1)} s`;
  return `${value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2)} ms`;
}

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let power = 0;
  while (power < units.length - 1 && value >= 1024 ** (power + 1)) power += 1;
  const scaled = value / 1024 ** power;
  return `${power === 0 || scaled >= 100 ? Math.round(scaled) : scaled.toFixed(1)} ${units[power]}`;
}

export function percent(share, digits = 1) {
  return share === null || share === undefined || !Number.isFinite(share) ? "–" : `${fixed(100 * share, digits)} %`;
}

export const plural = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
