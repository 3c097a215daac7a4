// Two answers to one query: which ranks moved.

// Each item of `own`, in its order, with its rank in `other`; move > 0: it stands higher in `own`. Null: not there.
export function moves(own, other) {
  const places = new Map(other.map((id, place) => [String(id), place + 1]));
  return own.map((id, place) => {
    const there = places.get(String(id)) ?? null;
    return { id, rank: place + 1, otherRank: there, move: there === null ? null : there - (place + 1) };
  });
}

export function summarise(first, second) {
  const found = moves(first, second);
  const shared = found.filter((each) => each.otherRank !== null);
  return {
    shared: shared.length,
    moved: shared.filter((each) => each.move !== 0).length,
    onlyFirst: first.length - shared.length,
    onlySecond: second.length - shared.length,
  };
}

export function describeMove(move) {
  if (move === null) return { sign: "new", text: "only here" };
  if (move === 0) return { sign: "=", text: "same rank" };
  return move > 0 ? { sign: `▲ ${move}`, text: `${move} higher` } : { sign: `▼ ${-move}`, text: `${-move} lower` };
}
