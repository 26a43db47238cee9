"""API reference: one plain page generated from the OpenAPI document, without scripts."""

from collections.abc import Iterable
from html import escape
from typing import Any

_ENDLESS = 2**53  # larger maxima are those of a type, not of the server
_MOST = {"maximum": "(at most {:,.10g})", "maxLength": "(at most {:,} characters)", "maxItems": "(at most {:,})"}


def reference(document: dict[str, Any]) -> str:
    """Render the page."""
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(document['info']['title'])}</title></head><body>",
        f"<h1>{escape(document['info']['title'])} {escape(document['info']['version'])}</h1>",
        f"<p>{escape(document['info'].get('description', ''))}</p>",
        '<p>The same for programs: <a href="openapi.json">openapi.json</a></p>',
    ]
    for path, methods in document["paths"].items():
        for method, described in methods.items():
            parts += _operation(path, method, described, document)
    return "\n".join([*parts, "</body></html>"])


def _operation(path: str, method: str, described: dict[str, Any], document: dict[str, Any]) -> Iterable[str]:
    yield f"<h2><code>{method.upper()} {escape(path)}</code></h2>"
    yield f"<p>{escape(described.get('description', ''))}</p>"
    parameters = [(one["name"], one["schema"], one.get("required", False)) for one in described.get("parameters", [])]
    yield from _table("Parameters", parameters)
    for content_type, content in described.get("requestBody", {}).get("content", {}).items():
        yield from _table(f"Body, {content_type}", _fields(content["schema"], document))
    for content_type, content in described["responses"].get("200", {}).get("content", {}).items():
        yield from _table(f"Answer, {content_type}", _fields(content.get("schema", {}), document))


def _fields(schema: dict[str, Any], document: dict[str, Any]) -> list[tuple[str, dict[str, Any], bool]]:
    found = _resolved(schema, document)
    required = found.get("required", [])
    return [(name, field, name in required) for name, field in found.get("properties", {}).items()]


def _resolved(schema: dict[str, Any], document: dict[str, Any]) -> dict[str, Any]:
    if "$ref" not in schema:
        return schema
    found: dict[str, Any] = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return found


def _table(title: str, fields: list[tuple[str, dict[str, Any], bool]]) -> Iterable[str]:
    if not fields:
        return
    yield f"<h3>{escape(title)}</h3><table>"
    for name, schema, required in fields:
        need = "required" if required else ""
        says = escape(schema.get("description", ""))
        cells = (f"<code>{escape(name)}</code>", escape(_kind(schema)), need, says)
        yield f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"
    yield "</table>"


def _kind(schema: dict[str, Any]) -> str:
    """Return the type of a field and its maximum, in a few words."""
    most = [words.format(schema[name]) for name, words in _MOST.items() if schema.get(name, _ENDLESS) < _ENDLESS]
    return " ".join([_type(schema), *most])


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"].rpartition("/")[2])
    if "anyOf" in schema:
        return " or ".join(_kind(one) for one in schema["anyOf"] if one.get("type") != "null")
    if schema.get("type") == "array":
        return f"list of {_kind(schema['items'])}"
    if "const" in schema:
        return str(schema["const"])
    if "enum" in schema:
        return " or ".join(map(str, schema["enum"]))
    return str(schema.get("type", "anything"))
