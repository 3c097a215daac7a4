// The same search for a shell and for Python.

const quoted = (text) => `'${text.replaceAll("'", `'\\''`)}'`;

export function asCurl(origin, index, body, hasKey) {
  const url = new URL(`v1/indexes/${encodeURIComponent(index)}/search`, origin);
  const lines = [`curl ${quoted(String(url))}`, `  -H 'Content-Type: application/json'`];
  if (hasKey) lines.push('  -H "Authorization: Bearer $RAILSEARCH_API_KEY"');
  lines.push(`  -d ${quoted(JSON.stringify(body))}`);
  return lines.join(" \\\n");
}

export function asPython(origin, index, body) {
  const { ids, ...rest } = body; // Python needs no strings for large integers
  const call = Object.entries(rest).map(([name, value]) => `        ${name}=${literal(value)},`);
  return [
    "from railsearch.client import Client",
    "",
    `with Client(${literal(String(new URL(".", origin)).replace(/\/$/, ""))}) as client:`,
    "    result = client.search(",
    `        ${literal(index)},`,
    ...call,
    "    )",
    "print(result.to_frame(), result.is_exact, result.gap)",
  ].join("\n");
}

function literal(value) {
  if (value === true) return "True";
  if (value === false) return "False";
  if (value === null) return "None";
  if (Array.isArray(value)) return `[${value.map(literal).join(", ")}]`;
  return JSON.stringify(value);
}
