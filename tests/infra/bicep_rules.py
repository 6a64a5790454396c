"""What is wrong with a folder of Bicep: names, types, schemas, modules. `problems` returns one line each."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, cast

from pycep import BicepParser

from tests.architecture.trees import ROOT
from tools.bicep_files import BicepFile, Declaration, Expression, descendants, read_files

SCHEMAS = ROOT / "tests" / "fixtures" / "arm" / "schemas.json"
FUNCTIONS = {
    *("concat", "empty", "environment", "guid", "items", "loadJsonContent", "loadTextContent"),
    *("loadYamlContent", "replace", "string"),
    *("resourceGroup", "split", "subscription", "subscriptionResourceId", "tenant", "union", "uniqueString"),
}
"""What the files call; another function is added here once its arguments have been looked at."""
DECORATORS = {"description", "allowed", "minLength", "maxLength", "minValue", "maxValue"}
NOT_SENT = {"parent", "scope", "dependsOn"}
MODULE_MEMBERS = {"scope", "params", "dependsOn"}
SUFFIX = "abcdefghijklm"
"""Stands for the 13 characters of uniqueString()."""
RUNTIME = re.compile(r"\.(properties|identity|outputs|sku)\b")
"""What is known only once a resource is deployed."""
JSON_TYPES = {str: "string", bool: "boolean", int: "integer", dict: "object", list: "array"}


def problems(folder: Path) -> list[str]:
    """Return what is wrong, one line each."""
    files = read_files(folder)
    broken = [line for file in files.values() for line in syntax(file)]
    if broken:
        return broken
    return sorted({line for file in files.values() for line in _of(file, files)} | set(one_version(files)))


def _of(file: BicepFile, files: Mapping[str, BicepFile]) -> Iterator[str]:
    yield from names(file)
    yield from outputs(file, files)
    yield from parameters(file)
    for resource in file.resources():
        yield from resource_problems(resource)
    for module in file.of("module").values():
        yield from module_problems(module, files)


@cache
def syntax(file: BicepFile) -> tuple[str, ...]:
    """Two independent parsers read the file, and see the same."""
    return tuple(_syntax(file))


def _syntax(file: BicepFile) -> Iterator[str]:
    for node in descendants(file.tree.root_node):
        if node.is_error or node.is_missing:
            yield f"{file.name}:{node.start_point.row + 1}: syntax: {file.text(node)[:60]!r}"
            return
    try:
        parsed = BicepParser(add_line_numbers=False).parse(text=file.source.decode())
    except Exception as error:  # noqa: BLE001 (pycep raises what its parser library raises)
        yield f"{file.name}: syntax: {str(error).splitlines()[0]}"
        return
    resources, modules = cast("Any", parsed["resources"]), cast("Any", parsed.get("modules", {}))
    other = {
        *((name, one["type"], one["api_version"]) for name, one in resources.items() if "__" not in name),
        *((name, one["detail"]["path"], "") for name, one in modules.items()),
        *((name, "param", "") for name in parsed.get("parameters", {})),
        *((name, "output", "") for name in parsed.get("outputs", {})),
    }
    here = {
        (one.name, one.type if one.kind in ("resource", "module") else one.kind, one.version)
        for one in file.declarations
        if one.kind != "var" and one.owner is None  # pycep leaves out some of the resources within resources
    }
    yield from (f"{file.name}: the parsers disagree: {one}" for one in sorted(here ^ other))


def names(file: BicepFile) -> Iterator[str]:
    """Every name is declared once and used, and every function is known."""
    declared = [one for one in file.declarations if one.kind != "output" and one.owner is None]
    bound = {file.text(kid) for node in _nodes(file, "for_statement") for kid in descendants(node.named_children[0])}
    known = {one.name for one in declared} | bound | {"any"}
    for one in declared:
        if len([other for other in declared if other.name == one.name]) > 1:
            yield f"{one.place}: {one.name} is declared twice"
    used: set[str] = set()
    for node in _expressions(file):
        name = file.text(node)
        parent = node.parent
        assert parent is not None
        if parent.type == "call_expression" and node == parent.named_children[0]:
            if name not in FUNCTIONS | DECORATORS:
                yield f"{_at(file, node)}: the function {name} is unknown"
        else:
            used.add(name)
            if name not in known:
                yield f"{_at(file, node)}: {name} is not declared"
    for one in declared:
        if one.kind in ("param", "var") and one.name not in used:
            yield f"{one.place}: {one.kind} {one.name} is not used"


def outputs(file: BicepFile, files: Mapping[str, BicepFile]) -> Iterator[str]:
    """Every output that is read exists in its module."""
    for symbol, output in re.findall(r"\b(\w+)!?\.outputs\.(\w+)", file.source.decode()):
        module = file.of("module").get(symbol)
        target = files.get(_target(module)) if module else None
        if target is None or output not in target.of("output"):
            yield f"{file.name}: {symbol} has no output {output}"


def parameters(file: BicepFile) -> Iterator[str]:
    """Each parameter says what it is; a default is one of the allowed values."""
    for one in file.of("param").values():
        if not one.decorators.get("description"):
            yield f"{one.place}: param {one.name} has no description"
        if unknown := one.decorators.keys() - DECORATORS:
            yield f"{one.place}: param {one.name} has an unknown decorator: {', '.join(sorted(unknown))}"
        allowed = one.decorators.get("allowed")
        if allowed and one.body is not None and one.body not in allowed:
            yield f"{one.place}: the default of param {one.name} is not allowed"
        if one.body is not None and JSON_TYPES.get(type(one.body)) not in (_json_type(one.type), None):
            yield f"{one.place}: the default of param {one.name} is no {one.type}"


def resource_problems(one: Declaration) -> Iterator[str]:
    """Compare a resource with the schema of its type and version, and check its place."""
    schema = schemas().get(f"{one.type}@{one.version}")
    if schema is None:
        known = sorted(name for name in schemas() if name.partition("@")[0] == one.type)
        yield f"{one.place}: no schema for {one.type}@{one.version}; known: {', '.join(known)}"
        return
    body = {
        name: value for name, value in one.body.items() if name not in NOT_SENT and not _is_declaration(one, name)
    }
    sent = body | {"type": one.type, "apiVersion": one.version}
    yield from (f"{one.place}: {one.name}{problem}" for problem in judge(sent, schema))
    yield from _place_problems(one)
    for name in ("name", "scope"):
        value = one.body.get(name)
        if isinstance(value, Expression) and RUNTIME.search(value.text):
            yield f"{one.place}: {one.name}.{name} is known only after the deployment of another resource"
    if RUNTIME.search(one.condition):
        yield f"{one.place}: the condition of {one.name} is known only after the deployment of another resource"
    declared = {each.name for each in one.file.declarations if each.kind in ("resource", "module")}
    if strange := one.depends_on - declared:
        yield f"{one.place}: {one.name} depends on {', '.join(sorted(strange))}, which is no resource"
    wanted = ("location", "tags") if one.type.count("/") == 1 and not one.type.endswith("/roleAssignments") else ()
    for name in wanted:
        if name in schema["properties"] and name not in one.body:
            yield f"{one.place}: {one.name} has no {name}"


def _is_declaration(one: Declaration, name: str) -> bool:
    return any(other.owner is one and other.name == name for other in one.file.declarations)


def _place_problems(one: Declaration) -> Iterator[str]:
    """A child names a parent of its own type's parent, and an extension a scope."""
    depth = one.type.count("/") - 1
    parent = one.body.get("parent")
    if depth and one.owner is None:
        symbol = re.sub(r"\[\w+\]$", "", parent.text) if isinstance(parent, Expression) else ""
        owner = one.file.of("resource").get(symbol)
        if owner is None or owner.type != one.type.rpartition("/")[0]:
            yield f"{one.place}: {one.name} needs a parent of type {one.type.rpartition('/')[0]}"
    elif parent is not None:
        yield f"{one.place}: {one.name} can have no parent"
    if one.type.endswith("/roleAssignments") != ("scope" in one.body):
        yield f"{one.place}: {one.name}: role assignments have a scope, and nothing else has"
    if one.file.name != "main.bicep" and one.type == "Microsoft.Resources/resourceGroups":
        yield f"{one.place}: {one.name} is deployed to a subscription"


def module_problems(module: Declaration, files: Mapping[str, BicepFile]) -> Iterator[str]:
    """Each parameter is passed, known and of its type; the module is deployed into the resource group."""
    target = files.get(_target(module))
    if target is None:
        yield f"{module.place}: {module.type} does not exist"
        return
    wanted, passed = target.of("param"), module.body.get("params", {})
    for name in sorted(passed.keys() - wanted.keys()):
        yield f"{module.place}: {module.name} has no parameter {name}"
    for name in sorted({name for name, one in wanted.items() if one.body is None} - passed.keys()):
        yield f"{module.place}: {module.name} needs the parameter {name}"
    for name in sorted(passed.keys() & wanted.keys()):
        yield from _passed_problems(module, name, passed[name], wanted[name], files)
    if strange := module.body.keys() - MODULE_MEMBERS:
        yield f"{module.place}: {module.name}: unknown member {', '.join(sorted(strange))}"
    if module.body.get("scope") != Expression("group"):
        yield f"{module.place}: {module.name} is not deployed into the resource group"
    if strange := module.depends_on - module.file.of("module").keys():
        yield f"{module.place}: {module.name} depends on {', '.join(sorted(strange))}, which is no module"
    if RUNTIME.search(module.condition):
        yield f"{module.place}: the condition of {module.name} is known only after another deployment"


def _passed_problems(
    module: Declaration, name: str, value: Any, wanted: Declaration, files: Mapping[str, BicepFile]
) -> Iterator[str]:
    """A value's type is the parameter's, and what is passed through under its own name is what the name says."""
    text = value.text if isinstance(value, Expression) else ""
    passed_type = JSON_TYPES.get(type(value), "")
    if source := module.file.of("param").get(text):
        passed_type = _json_type(source.type)
        if source.decorators.get("allowed") != wanted.decorators.get("allowed"):
            yield f"{module.place}: {module.name}.{name}: the allowed values differ from those of {text}"
    elif match := re.fullmatch(r"(\w+)!?\.outputs\.(\w+)", text):
        owner = module.file.of("module").get(match[1])
        source_file = files.get(_target(owner)) if owner else None
        output = source_file.of("output").get(match[2]) if source_file else None
        passed_type = _json_type(output.type) if output else ""
        if match[2] != name and match[2].endswith("PrincipalId"):
            yield f"{module.place}: {module.name}.{name} gets {match[2]}"
    if passed_type and passed_type != _json_type(wanted.type):
        yield f"{module.place}: {module.name}.{name} is {wanted.type}, and gets {passed_type}"


def one_version(files: Mapping[str, BicepFile]) -> Iterator[str]:
    """A type is used in one API version."""
    versions: dict[str, set[str]] = {}
    for file in files.values():
        for one in file.declarations:
            if one.kind == "resource":
                versions.setdefault(one.type, set()).add(one.version)
    for name, found in versions.items():
        if len(found) > 1:
            yield f"{name} is used in several API versions: {', '.join(sorted(found))}"


def judge(value: Any, schema: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Compare a value with a trimmed schema: closed objects, enumerations, patterns, types."""
    if isinstance(value, Expression):
        for option in value.options:
            yield from judge(option, schema, path)
        text = re.sub(r"\$\{suffix\}", SUFFIX, value.text).strip("'")
        if re.fullmatch(r"[\w-]+", text) and SUFFIX in text:
            yield from _literal(text, schema, path)
    elif isinstance(value, dict) and ("properties" in schema or "others" in schema):
        yield from _object(value, schema, path)
    elif isinstance(value, list) and "items" in schema:
        for item in value:
            yield from judge(item, schema["items"], f"{path}[]")
    elif value is not None and schema:
        yield from _literal(value, schema, path)


def _object(value: Mapping[str, Any], schema: Mapping[str, Any], path: str) -> Iterator[str]:
    known, required = dict(schema.get("properties", {})), set(schema.get("required", ()))
    if tag := schema.get("tag"):
        case = schema["cases"].get(value.get(tag))
        if case is None:
            yield f"{path}.{tag}: {value.get(tag)!r} is not one of {', '.join(schema['cases'])}"
            return
        known |= case.get("properties", {})
        required |= set(case.get("required", ()))
    for name, member in value.items():
        if name in known:
            yield from judge(member, known[name], f"{path}.{name}")
        elif "others" in schema:
            yield from judge(member, schema["others"], f"{path}.{name}")
        else:
            yield f"{path}.{name} is unknown"
    if not path and not known.get("properties", {}).get("required"):
        required.discard("properties")  # the schemas require it of resources that have nothing in it
    yield from (f"{path}.{name} is missing" for name in sorted(required - value.keys()))


def _literal(value: Any, schema: Mapping[str, Any], path: str) -> Iterator[str]:
    wanted, actual = schema.get("type"), JSON_TYPES.get(type(value))
    if "properties" in schema or "others" in schema:
        wanted = "object"
    elif "items" in schema:
        wanted = "array"
    if wanted and wanted != actual and (wanted, actual) != ("number", "integer"):
        yield f"{path}: expected {wanted}, got {value!r}"
    elif "enum" in schema and value not in schema["enum"]:
        yield f"{path}: {value!r} is not one of {', '.join(map(str, schema['enum']))}"
    elif isinstance(value, str):
        pattern = schema.get("pattern", "").replace("^.*/", "^")  # a name of a child is published with its parent's
        if not re.search(pattern, value):
            yield f"{path}: {value!r} does not match {pattern}"
        if not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)):
            yield f"{path}: {value!r} has {len(value)} characters"
    elif isinstance(value, int) and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        yield f"{path}: {value} is out of range"


@cache
def schemas() -> dict[str, Any]:
    """The trimmed schemas."""
    return dict(json.loads(SCHEMAS.read_text(encoding="utf-8")))


def _json_type(bicep: str) -> str:
    return {"int": "integer", "bool": "boolean"}.get(bicep, bicep)


def _target(module: Declaration) -> str:
    return (Path(module.file.name).parent / module.type).as_posix()


def _nodes(file: BicepFile, kind: str) -> Iterator[Any]:
    return (node for node in descendants(file.tree.root_node) if node.type == kind)


def _at(file: BicepFile, node: Any) -> str:
    return f"{file.name}:{node.start_point.row + 1}"


def _expressions(file: BicepFile) -> Iterator[Any]:
    """Yield identifiers that are looked up: not declarations, members or keys of objects."""
    for node in _nodes(file, "identifier"):
        parent = node.parent
        first = parent.named_children[0] == node
        if parent.type.endswith("_declaration") and first:
            continue
        if parent.type == "object_property" and first:
            continue
        if parent.type == "resource_expression" and not first:
            continue
        if parent.type in ("for_loop_parameters", "for_statement") and first:
            continue
        yield node
