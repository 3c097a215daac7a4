// The certificate in words: exact, how large the gap is, or what was measured; and where certification ends.

import { fixed, percent, plural } from "./format.js";

// { kind, label, text }: kind is exact, measured, gap or open.
export function badgeOf(result, expected, digits) {
  if (result.is_exact) return { kind: "exact", label: "Exact", text: "Proven: no item was missed." };
  const gap = result.gap === null ? "open" : fixed(result.gap, digits);
  if (expected) {
    const label = `Recall ≥ ${percent(expected.recall)} measured`;
    const proven = result.gap === null ? "Nothing is proven." : `Proven: the gap is at most ${gap}.`;
    return { kind: "measured", label, text: `With a confidence of ${percent(expected.confidence, 0)}, for queries like the sample. ${proven}` };
  }
  if (result.gap === null) return { kind: "open", label: "No bound", text: "Nothing bounds the items that were not scored." };
  return { kind: "gap", label: `Gap ≤ ${gap}`, text: `The true last score is at most ${gap} above the one shown.` };
}

// The sentence on the line between certified results and the others, and its place: after how many results.
export function lineOf(result, digits) {
  const found = result.hits.length;
  if (result.is_exact) return { after: found, kind: "exact", text: "Exact: no other item belongs above this line." };
  const certified = Math.min(result.num_certified, found);
  const ceiling = result.ceiling === null ? "any score" : `up to ${fixed(result.ceiling, digits)}`;
  const rest = `an item that was not scored could have ${ceiling}.`;
  if (certified === 0) return { after: 0, kind: result.ceiling === null ? "open" : "gap", text: `Nothing is certified: ${rest}` };
  if (certified === found) return { after: found, kind: "exact", text: `All ${found} are certified to be in the true top; ${rest}` };
  return { after: certified, kind: "gap", text: `Certified: the ${plural(certified, "item")} above. Below, ${rest}` };
}
