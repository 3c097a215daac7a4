"""The page /docs: the OpenAPI description as plain HTML, without scripts and without files from elsewhere."""

from collections.abc import Mapping
from html import escape
from typing import Any

HEAD = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>railsearch API</title>
<link rel="stylesheet" href="/explorer/docs.css">
</head>
<body>
<main>
"""


def render_docs(description: Mapping[str, Any]) -> bytes:
    """Return the page for an OpenAPI description."""
    parts = [HEAD, f"<h1>{_text(description['info']['title'])} {_text(description['info']['version'])}</h1>"]
    parts.append(f"<p>{_text(description['info'].get('description', ''))}</p>")
    parts.append('<p>For programs: <a href="/openapi.json">openapi.json</a>.</p>')
    for path, methods in description["paths"].items():
        parts += [_operation(path, method, operation) for method, operation in methods.items()]
    return "".join([*parts, "</main>\n</body>\n</html>\n"]).encode()


def _operation(path: str, method: str, operation: Mapping[str, Any]) -> str:
    rows = [
        _row(each["name"], each.get("schema", {}), each.get("description", ""), is_required=each.get("required", False))
        for each in operation.get("parameters", [])
    ]
    content = operation.get("requestBody", {}).get("content", {})
    schema = content.get("application/json", {}).get("schema", {})
    required = schema.get("required", [])
    rows += [
        _row(name, own, own.get("description", ""), is_required=name in required)
        for name, own in schema.get("properties", {}).items()
    ]
    table = ""
    if rows:
        head = "<tr><th>name</th><th>type</th><th>default</th><th>meaning</th></tr>"
        table = f"<table><thead>{head}</thead><tbody>{''.join(rows)}</tbody></table>"
    types = f"<p>Body: {', '.join(f'<code>{_text(name)}</code>' for name in content)}</p>" if content else ""
    return (
        f"<section><h2><code>{_text(method.upper())} {_text(path)}</code></h2>"
        f"<p>{_text(operation.get('description') or operation.get('summary', ''))}</p>{types}{table}</section>\n"
    )


def _row(name: str, schema: Mapping[str, Any], description: str, *, is_required: bool) -> str:
    default = "required" if is_required else repr(schema["default"]) if schema.get("default") is not None else ""
    cells = (f"<code>{_text(name)}</code>", _text(_type(schema)), _text(default), _text(description))
    return f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def _type(schema: Mapping[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_type(own) for own in schema["anyOf"]))
    if "const" in schema or "enum" in schema:
        return " or ".join(map(repr, schema.get("enum", [schema.get("const")])))
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    return str(schema.get("type", "any"))


def _text(value: object) -> str:
    return escape(str(value))
