// Calls of the server: JSON in and out, problems as errors, and the API key, which only this tab knows.

const KEY = "railsearch-key";

export class Problem extends Error {
  constructor(status, title, detail) {
    super(detail || title);
    this.status = status;
    this.title = title;
  }
}

export const storedKey = () => sessionStorage.getItem(KEY) ?? "";

export function storeKey(key) {
  if (key) sessionStorage.setItem(KEY, key);
  else sessionStorage.removeItem(KEY);
}

async function request(path, { method = "GET", body, signal, accept = "application/json" } = {}) {
  const headers = { Accept: accept };
  if (storedKey()) headers.Authorization = `Bearer ${storedKey()}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(new URL(path, document.baseURI), {
      method, headers, signal, body: body === undefined ? undefined : JSON.stringify(body), redirect: "error",
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, "No connection", "The server cannot be reached. Check that it runs, then search again.");
  }
  if (response.ok) return response;
  const problem = await response.json().catch(() => ({}));
  throw new Problem(response.status, problem.title ?? `Status ${response.status}`, problem.detail ?? "");
}

const json = async (path, options) => (await request(path, options)).json();
const below = (index, ...parts) => ["v1", "indexes", index, ...parts].map(encodeURIComponent).join("/");

export const indexes = async () => (await json("v1/indexes")).indexes;
export const describe = (index) => json(below(index));
export const jobs = async () => (await json("v1/jobs")).jobs;
export const metrics = async () => (await request("metrics", { accept: "text/plain" })).text();
export const search = (index, body, signal) => json(below(index, "search"), { method: "POST", body, signal });
export const explain = (index, body, signal) => json(below(index, "explain"), { method: "POST", body, signal });
export const item = (index, id) => json(`${below(index, "items", id)}?ids=string`);

export async function findItems(index, text, limit, signal) {
  const query = new URLSearchParams({ text, limit: String(limit), ids: "string" });
  return (await json(`${below(index, "items")}?${query}`, { signal })).items;
}
