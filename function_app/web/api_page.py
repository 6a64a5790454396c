"""The page that describes the HTTP API to people, from the same document that programs read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from starlette.responses import Response

from function_app.web.rendering import page

_PREFIX = "#/components/schemas/"


def api_page(document: dict[str, Any], problems: dict[str, int]) -> Response:
    """Return the page of an OpenAPI document; ``problems`` is code → status."""
    return page(
        "api.html",
        person=None,
        now=None,
        refresh_s=None,
        operations=list(_operations(document)),
        schemas=list(_schemas(document)),
        problems=sorted(problems.items(), key=lambda item: (item[1], item[0])),
    )


def _operations(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
            yield {
                "method": method.upper(),
                "path": path,
                "anchor": f"{method}-{re.sub('[^a-z]+', '-', path.lower()).strip('-')}",
                "paragraphs": [_text(one) for one in operation["description"].split("\n\n")],
                "parameters": list(_parameters(operation.get("parameters", ()))),
                "body": _type(body) if body else None,
                "responses": [
                    (status, _text(one["description"]).replace("Successful Response", "Success."), _answered(one))
                    for status, one in sorted(operation["responses"].items())
                ],
            }


def _parameters(parameters: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield each parameter once: a route and what it depends on may both name a header."""
    for one in {each["name"].lower(): each for each in parameters}.values():
        default = one["schema"].get("default")
        yield {
            "name": one["name"],
            "place": one["in"],
            "type": _type(one["schema"]).removesuffix(" or null"),
            "note": "required" if one.get("required") else "" if default is None else f"default {default}",
            "meaning": _text(one.get("description", "")),
        }


def _text(markdown: str) -> str:
    """Return a paragraph of the document on one line and without its marks."""
    return " ".join(markdown.replace("`", "").split())


def _answered(response: dict[str, Any]) -> str:
    return next((_type(content["schema"]) for content in response.get("content", {}).values()), "no body")


def _schemas(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for name, schema in sorted(document["components"]["schemas"].items()):
        required = schema.get("required", ())
        yield {
            "name": name,
            "description": _text(schema.get("description", "")),
            "values": schema.get("enum", ()),
            "members": [
                (member, _type(each), member in required, _text(each.get("description", "")))
                for member, each in schema.get("properties", {}).items()
            ],
        }


def _type(schema: dict[str, Any]) -> str:
    """Return a schema in a few words: ``list of RunBody``, ``integer, 1 to 1000``."""
    if "$ref" in schema:
        return str(schema["$ref"]).removeprefix(_PREFIX)
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(map(_type, schema["anyOf"])))
    if "const" in schema or "enum" in schema:
        return " or ".join(f'"{value}"' for value in schema.get("enum", [schema.get("const")]))
    kind = str(schema.get("type", "anything"))
    if kind == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if kind == "object":
        values = schema.get("additionalProperties")
        return f"object of {_type(values)}" if isinstance(values, dict) else "object"
    bounds = [f"at least {schema['minimum']}"] if "minimum" in schema else []
    bounds += [f"at most {schema['maximum']}"] if "maximum" in schema else []
    bounds += [f"at most {schema['maxLength']} characters"] if "maxLength" in schema else []
    return ", ".join([{"date-time": "time"}.get(schema.get("format", ""), kind), *bounds])
