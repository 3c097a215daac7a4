// The query of a state as the server takes it, and as people read it. Throws an Error that says what is missing.

import { parseVector, shaped } from "./state.js";

export const ACCEPTED = { text: "texts", history: "histories", user: "users", vector: "embeddings" };
export const NAMES = { text: "Text", history: "History", user: "User", vector: "Vector" };

export const kindsOf = (index) => Object.keys(ACCEPTED).filter((kind) => index.accepts.includes(ACCEPTED[kind]));

export function isEmpty(state) {
  const values = { text: state.text.trim(), history: state.items.length, user: state.user.trim(), vector: state.vector.trim() };
  return !values[state.by];
}

// `known` maps item ids to items: a history is written in the values of the column that the model was trained with.
export function queryOf(state, index, known) {
  if (state.by === "text") {
    if (!state.text.trim()) throw new Error("The question is empty; write one.");
    return { texts: [state.text.trim()] };
  }
  if (state.by === "user") {
    if (!state.user.trim()) throw new Error("The user id is empty; enter one.");
    return { users: [asId(state.user.trim())] };
  }
  if (state.by === "history") {
    if (!state.items.length) throw new Error("The history is empty; find an item to add.");
    return { histories: [state.items.map((id) => historyValue(id, index, known))] };
  }
  return { embeddings: [shaped(parseVector(state.vector), index.query_shape)] };
}

function historyValue(id, index, known) {
  const column = index.history_column;
  const value = known.get(id)?.fields?.[column];
  return value === undefined || value === null ? (index.ids === "integers" ? asId(id) : id) : value;
}

// Integers beyond 2^53 stay texts: JavaScript would change their last digits.
export function asId(text) {
  return /^-?\d+$/.test(text) && Number.isSafeInteger(Number(text)) ? Number(text) : text;
}

export function searchBody(state, index, known, strategy) {
  return {
    ...queryOf(state, index, known),
    k: state.k,
    ...(strategy ? { strategy } : {}),
    ...(state.allow.trim() ? { allow: state.allow.trim(), pad: true } : {}),
    fields: "all",
    ids: "string",
  };
}

export function randomVector(shape) {
  const size = shape.reduce((product, length) => product * length, 1);
  const normal = () => Math.sqrt(-2 * Math.log(1 - Math.random())) * Math.cos(2 * Math.PI * Math.random());
  return Array.from({ length: size }, () => normal().toFixed(3)).join(", ");
}
