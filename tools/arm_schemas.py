"""Trim published ARM schemas to the types that a folder of Bicep uses.

Usage: `python -m tools.arm_schemas SCHEMAS > OUTPUT`.

SCHEMAS contains files of github.com/Azure/azure-resource-manager-schemas as `<API version>/<provider>.json`. Every
object keeps the names of all its members; the members that the Bicep uses keep their schemas too. Unions keep one
case for each value of their discriminator.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tools.bicep_files import Expression, read_files
from tools.environments import ROOT

Schema = dict[str, Any]
KEPT = ("enum", "pattern", "minLength", "maxLength", "minimum", "maximum")
SECTIONS = [f"{scope}resourceDefinitions" for scope in ("", "subscription_", "extension_", "unknown_")]
REQUIRED = ("Required. ", "[Required] ")
"""Phrase in the description of a member that is required although the schema's list lacks it."""


def main(arguments: Sequence[str]) -> int:
    """Print the trimmed schemas: type@version -> schema."""
    print(json.dumps(trimmed_types(Path(arguments[0]), used_types(ROOT / "infra")), indent=1, sort_keys=True))
    return 0


def used_types(folder: Path) -> dict[str, list[Any]]:
    """Return type@version -> the bodies of its resources."""
    used: dict[str, list[Any]] = {}
    for file in read_files(folder).values():
        for resource in file.resources():
            used.setdefault(f"{resource.type}@{resource.version}", []).append(resource.body)
    return used


def trimmed_types(folder: Path, used: Mapping[str, list[Any]]) -> dict[str, Schema]:
    """Return type@version -> trimmed schema."""
    wanted, found = {name.lower(): name for name in used}, dict[str, Schema]()
    for path in sorted(folder.glob("*/Microsoft.*.json")):
        document = json.loads(path.read_text(encoding="utf-8"))
        for section in SECTIONS:
            for schema in document.get(section, {}).values():
                kind, version = (schema["properties"][key]["enum"][0] for key in ("type", "apiVersion"))
                if name := wanted.get(f"{kind}@{version}".lower()):
                    found[name] = _Trimmer(document.get("definitions", {})).trim(schema, used[name])
    return found


class _Trimmer:
    """Trims the schemas of one document."""

    def __init__(self, definitions: Schema) -> None:
        self._definitions = definitions

    def trim(self, schema: Schema, used: list[Any]) -> Schema:
        """Return the part of a schema that the values used at this place need."""
        used = list(_options(used))
        schema = self._resolved(schema)
        flat, cases = self._flat(schema)
        if flat["properties"] or cases:
            return self._object(flat, cases, [one for one in used if isinstance(one, dict)])
        if isinstance(more := schema.get("additionalProperties"), dict):
            return {
                "others": self.trim(more, [value for one in used if isinstance(one, dict) for value in one.values()])
            }
        if "items" in schema:
            return {
                "items": self.trim(schema["items"], [item for one in used if isinstance(one, list) for item in one])
            }
        kept = {name: schema[name] for name in KEPT if name in schema}
        return kept | ({"type": schema["type"]} if isinstance(schema.get("type"), str) else {})

    def _object(self, flat: Schema, cases: Mapping[str, Schema], used: list[dict[str, Any]]) -> Schema:
        trimmed = self._members(flat, used)
        if cases:
            tag, chosen = flat["tag"], {one.get(flat["tag"]) for one in used if isinstance(one.get(flat["tag"]), str)}
            trimmed |= {"tag": tag, "cases": {}}
            for name, case in sorted(cases.items()):
                here = [one for one in used if one.get(tag) == name]
                trimmed["cases"][name] = self._members(self._flat(case)[0], here) if name in chosen else {}
        return trimmed

    def _members(self, flat: Schema, used: list[dict[str, Any]]) -> Schema:
        properties = {
            name: self.trim(schema, [one[name] for one in used if name in one])
            if any(name in one for one in used)
            else {}
            for name, schema in flat["properties"].items()
        }
        return {"properties": properties, "required": sorted(flat["required"])}

    def _resolved(self, schema: Schema) -> Schema:
        while True:
            real = [one for one in schema.get("oneOf", ()) if not one.get("$ref", "").endswith("/expression")]
            if "$ref" in schema:
                schema = self._definitions.get(schema["$ref"].rpartition("/")[2], {})
            elif len(real) == 1 or (real and len(real) < len(schema["oneOf"])):
                schema = real[0] if len(real) == 1 else {"oneOf": real}
            else:
                return schema

    def _flat(self, schema: Schema) -> tuple[Schema, dict[str, Schema]]:
        """Return all members and required members, including those of all parts, and the cases by the tag's value."""
        schema = self._resolved(schema)
        properties = dict(schema.get("properties", {}))
        said = {name for name, one in properties.items() if one.get("description", "").startswith(REQUIRED)}
        flat: Schema = {"properties": properties, "required": {*schema.get("required", ()), *said}}
        cases: dict[str, Schema] = {}
        for part in schema.get("allOf", ()):
            more, more_cases = self._flat(part)
            flat = {
                **flat,
                **({"tag": more["tag"]} if "tag" in more else {}),
                "properties": {**flat["properties"], **more["properties"]},
                "required": flat["required"] | more["required"],
            }
            cases |= more_cases
        for branch in schema.get("oneOf", ()):
            if tagged := self._tag(branch):
                flat["tag"], value = tagged
                cases[value] = branch
        return flat, cases

    def _tag(self, branch: Schema) -> tuple[str, str] | None:
        """Return the required member that has one value in this branch, and the value."""
        flat = self._flat(branch)[0]
        for name in sorted(flat["required"]):
            schema = self._resolved(flat["properties"].get(name, {}))
            pattern = re.fullmatch(r"\^\.\*/(\w+)\$", schema.get("pattern", ""))  # the last segment of the name
            const = [schema["const"]] if "const" in schema else [pattern[1]] if pattern else []
            values = schema.get("enum", const)
            if len(values) == 1:
                return name, str(values[0])
        return None


def _options(values: Iterable[Any]) -> Iterable[Any]:
    for value in values:
        if isinstance(value, Expression):
            yield from _options(value.options)
        else:
            yield value


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
