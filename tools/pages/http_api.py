"""The reference of the HTTP API and of the server's metrics, from the application itself."""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families
from tools.pages.markdown import NOTE, table

from railsearch.server.app import create_app
from railsearch.server.metrics import Metrics
from railsearch.server.service import ServerSettings, Service

OPENING = """# HTTP routes

Every route and every field of a request, from the OpenAPI description that a server has at `/openapi.json` (a copy:
[openapi.json](openapi.json)). [HTTP](http.md) is the contract in words, with answers, errors and the binary form.

"""
METRICS_OPENING = """# Metrics

A server has these metrics for Prometheus at `/metrics`. [Operating](../how-to/operating.md) says which to watch.

"""


def openapi() -> dict[str, Any]:
    """Return the OpenAPI description that a server answers; no index is opened."""
    application = create_app(Service([Path("movies.index")], settings=ServerSettings()))

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(application)  # type: ignore[arg-type]
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8080") as client:
            return await client.get("/openapi.json")

    answer = asyncio.run(ask())
    answer.raise_for_status()
    return dict(answer.json())


def render_http(description: dict[str, Any]) -> str:
    """Return the page of all routes."""
    text = NOTE + OPENING
    for path, methods in description["paths"].items():
        for method, route in methods.items():
            text += f"## {method.upper()} {path}\n\n{route['description']}\n\n"
            rows = [
                (f"`{each['name']}`", each["in"], each.get("description", "")) for each in route.get("parameters", [])
            ]
            text += table(["parameter", "in", "meaning"], rows) + "\n" if rows else ""
            for media, content in route.get("requestBody", {}).get("content", {}).items():
                text += f"Body: `{media}`\n\n" + _fields(content.get("schema", {}), description)
    return text


def _fields(schema: dict[str, Any], description: dict[str, Any]) -> str:
    """Return the fields of a JSON body as a table."""
    if "$ref" in schema:
        schema = description["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    rows = [
        (f"`{name}`", _kind(each), _default(name, each, schema), each.get("description", ""))
        for name, each in schema.get("properties", {}).items()
    ]
    return table(["field", "type", "default", "meaning"], rows) + "\n" if rows else ""


def _kind(schema: dict[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_kind(each) for each in schema["anyOf"]))
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    return str(schema.get("type", schema.get("$ref", "any").rpartition("/")[2]))


def _default(name: str, schema: dict[str, Any], parent: dict[str, Any]) -> str:
    if name in parent.get("required", []):
        return "required"
    return f"`{json.dumps(schema['default'])}`" if schema.get("default") is not None else ""


def render_metrics() -> str:
    """Return the page of all metrics of a server."""
    rows = []
    own = {
        instrument._name: instrument._labelnames
        for instrument in vars(Metrics()).values()
        if hasattr(instrument, "_labelnames")
    }
    for family in text_string_to_metric_families(Metrics().to_text().decode()):
        if family.name.startswith("railsearch_"):
            name = f"{family.name}_total" if family.type == "counter" else family.name
            labels = ", ".join(f"`{label}`" for label in own.get(family.name, ()))
            rows.append((f"`{name}`", family.type, labels, family.documentation))
    return (
        NOTE + METRICS_OPENING + table(["metric", "type", "labels", "meaning"], sorted(rows))
        + "\nA histogram has `_bucket`, `_sum` and `_count`. The usual `process_` and `python_` metrics follow.\n"
    )  # fmt: skip
