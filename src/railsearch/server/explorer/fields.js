// Metadata for people: which column is the title, what is said below it, and which texts are long.

const TITLES = ["title", "name", "label", "headline", "question"];
const LONG = 90;
const PLACES = new Set(["passage_starts", "passage_ends"]); // where the windows of a long text are: not for people
const LIST = /^[^|\s][^|]*(\|[^|]+)+$/; // Drama|Comedy, a list within a text

const isText = (column) => /^(String|Utf8|Categorical|Enum)/.test(column.type);

export function titleColumn(columns) {
  const texts = columns.filter(isText).map((column) => column.name);
  return TITLES.map((wanted) => texts.find((name) => name.toLowerCase() === wanted)).find(Boolean) ?? null;
}

export function shown(value) {
  if (value === null || value === undefined) return "";
  if (Array.isArray(value)) return value.map(shown).join(", ");
  if (typeof value === "object") return JSON.stringify(value);
  return LIST.test(value) ? value.split("|").join(", ") : String(value);
}

// { title, details, body, name }: details are short values with their names, body is one long text, and name is what
// the item is called in a sentence. An item without a title column is its text, or its id.
export function present(id, fields, columns) {
  const own = fields ?? {};
  const hasSnippet = typeof own.snippet === "string" && Number.isInteger(own.passage_start);
  const isShort = (column) => isText(column) && !(hasSnippet && column.name === "passage") && own[column.name] && String(own[column.name]).length <= LONG;
  const titled = titleColumn(columns) ?? columns.find(isShort)?.name;
  const details = [];
  let body = hasSnippet ? own.snippet : "";
  if (hasSnippet) details.push(["the part that matched", `characters ${own.passage_start} to ${own.passage_end}`]);
  for (const { name } of columns) {
    if (PLACES.has(name) || (hasSnippet && name === "passage")) continue; // the snippet is the part that matched
    const text = shown(own[name]);
    if (name === titled || text === "" || text === String(id)) continue; // an id is said once
    if (text.length > LONG && !body) body = text;
    else details.push([name, text]);
  }
  const title = (titled && shown(own[titled])) || (body ? "" : String(id));
  if (title !== String(id)) details.unshift(["id", String(id)]);
  return { title, details, body, name: title || `${body.slice(0, LONG).trimEnd()}…` };
}
