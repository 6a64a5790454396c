"""The HTML description of the HTTP API, rendered from its OpenAPI document."""

from __future__ import annotations

from collections.abc import Iterator
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
                "paragraphs": operation["description"].replace("`", "").split("\n\n"),
                "parameters": [
                    {**one, "type": _type(one["schema"]), "required": one.get("required", False)}
                    for one in operation.get("parameters", ())
                ],
                "body": _type(body) if body else None,
                "responses": [
                    (status, one["description"].replace("Successful Response", "Success."), _answered(one))
                    for status, one in sorted(operation["responses"].items())
                ],
            }


def _answered(response: dict[str, Any]) -> str:
    return next((_type(content["schema"]) for content in response.get("content", {}).values()), "no body")


def _schemas(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for name, schema in sorted(document["components"]["schemas"].items()):
        required = schema.get("required", ())
        yield {
            "name": name,
            "description": schema.get("description", ""),
            "values": schema.get("enum", ()),
            "members": [
                (member, _type(each), member in required, each.get("description", ""))
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
