// Metadata for people: which column is the title, what is said below it, and which texts are long.

const TITLES = ["title", "name", "label", "headline", "question"];
const LONG = 90;

const isText = (column) => /^(String|Utf8|Categorical|Enum)/.test(column.type);

export function titleColumn(columns) {
  const texts = columns.filter(isText).map((column) => column.name);
  return TITLES.map((wanted) => texts.find((name) => name.toLowerCase() === wanted)).find(Boolean) ?? null;
}

export function shown(value) {
  if (value === null || value === undefined) return "";
  if (Array.isArray(value)) return value.map(shown).join(", ");
  if (typeof value === "object") return JSON.stringify(value);
  return String(value);
}

// { title, details, body }: details are short values with their names, body is one long text.
export function present(id, fields, columns) {
  const titled = titleColumn(columns);
  const own = fields ?? {};
  const title = (titled && shown(own[titled])) || String(id);
  const details = title === String(id) ? [] : [["id", String(id)]];
  let body = "";
  for (const { name } of columns) {
    const text = shown(own[name]);
    if (name === titled || name === "id" || text === "" ) continue;
    if (text.length > LONG && !body) body = text;
    else details.push([name, text]);
  }
  return { title, details, body };
}
