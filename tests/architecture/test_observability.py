"""docs/observability.md lists what the source sends, and queries, workbook, alerts and runbook name only that."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from itertools import chain

import pytest

from function_app.adapters.log_lines import FIELDS
from function_app.domain.run_states import RunState
from tests.architecture.trees import ROOT

PAGE = (ROOT / "docs" / "observability.md").read_text(encoding="utf-8")
RUNBOOK = (
    (ROOT / "docs" / "operations.md").read_text(encoding="utf-8").partition("## Alerts\n")[2].partition("\n## ")[0]
)
QUERIES = {path.stem: path.read_text(encoding="utf-8") for path in (ROOT / "infra" / "queries").glob("*.kql")}
BICEP = {name: (ROOT / "infra" / "modules" / f"{name}.bicep").read_text() for name in ("alerts", "monitoring")}
ACTIONS = set(json.loads((ROOT / "tests" / "golden" / "history.json").read_text(encoding="utf-8"))["history"])
COLUMNS = {
    *("TimeGenerated", "Name", "Sum", "ItemCount", "Min", "Max", "Properties", "OperationId", "Id", "ParentId"),
    *("Message", "Success", "DurationMs", "Category", "Detail", "SeverityLevel"),
}
"""Columns of Azure Monitor's tables that the queries use."""
TABLES = {"AppMetrics", "AppDependencies", "AppTraces", "AppRequests", "_LogOperation"}


def rows(header: str, page: str = PAGE) -> dict[str, list[str]]:
    """Return the rows of the table whose header begins so, by the name in their first cell."""
    lines = page.partition(f"\n| {header} |")[2].splitlines()[2:]
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    return {row[0].strip("`"): row[1:] for row in cells[: next((i for i, c in enumerate(cells) if not c), None)]}


def calls() -> Iterator[tuple[str, ast.Call]]:
    """Yield each call in the function app, with the name of what is called."""
    for path in sorted((ROOT / "function_app").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name):
                yield node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id, node


def is_for_telemetry(call: ast.Call) -> bool:
    """Whether a call is one of the telemetry, or of a span."""
    return isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value).endswith(
        ("telemetry", "span", "self")
    )


def text(node: ast.expr) -> str:
    """Return the constant that a node is, otherwise nothing."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


@pytest.fixture(name="sent", scope="module")
def sent_names() -> dict[str, set[str]]:
    """What the source sends: spans, attributes, metrics with their dimensions, fields of log lines."""
    spans, attributes, metrics, fields = set[str](), set[str](), set[str](), set[str]()
    for name, call in calls():
        named = {each.arg: each.value for each in call.keywords if each.arg}
        if name == "span" and is_for_telemetry(call):
            spans.add(text(call.args[0]))
            attributes |= {f"landfall.{arg}" for arg in named.keys() - {"is_kept", "link"}}
        elif name == "Span" and "name" in named:
            spans.add(text(named["name"]))
        elif name == "set" and is_for_telemetry(call):
            attributes |= {f"landfall.{arg}" for arg in named}
        elif name in {"add", "measure"} and is_for_telemetry(call) and text(call.args[0]).startswith("landfall."):
            metrics.add(f"{text(call.args[0])}({', '.join(sorted(named))})")
        if isinstance(extra := named.get("extra"), ast.Dict):
            fields |= {text(key) for key in extra.keys if key}
    return {"spans": spans - {""}, "attributes": attributes, "metrics": metrics, "fields": fields}


def test_the_page_lists_what_the_source_sends(sent: dict[str, set[str]]) -> None:
    """The log schema: every span, attribute, metric, dimension and field, and no other."""
    of_events = {"landfall.subject", "landfall.reason"}
    dimensions = {name: sorted(re.findall(r"`(\w+)`", row[2])) for name, row in rows("metric").items()}
    assert sent == {
        "spans": rows("span").keys(),
        "attributes": rows("attribute").keys() - of_events,
        "metrics": {f"{name}({', '.join(each)})" for name, each in dimensions.items()},
        "fields": rows("field").keys(),
    }
    assert set(FIELDS) == rows("field").keys(), "what is sent with a line"


@pytest.mark.parametrize("name", sorted(QUERIES))
def test_a_query_names_only_what_is_sent(name: str) -> None:
    """Metrics, their own dimensions, attributes, actions and states, and columns of the tables that it reads."""
    query = "\n".join(line for line in QUERIES[name].splitlines() if not line.startswith("//"))
    metrics = set(re.findall(r'"(landfall\.[\w.]+)"', re.sub(r'Properties\["[^"]+"\]', "", query)))
    own = set(chain.from_iterable(re.findall(r"`(\w+)`", rows("metric")[one][2]) for one in metrics))
    assert metrics <= rows("metric").keys()
    assert set(re.findall(r"Properties\.(\w+)", query)) <= own
    fields = {f"landfall.{name}" for name in rows("field")}
    assert set(re.findall(r'Properties\["([^"]+)"\]', query)) <= rows("attribute").keys() | fields
    assert set(re.findall(r'Properties\.action\) == "(\w+)"', query)) <= ACTIONS
    states = re.findall(r'"(\w+)"', "".join(re.findall(r"Properties\.state\) in \(([^)]+)\)", query)))
    assert set(states) <= {str(state) for state in RunState}
    steps = [re.sub(r'"[^"]*"', "", line) for line in query.splitlines()]
    assert set(re.findall(r"\b(?:_?[A-Z][a-z]+){2,}\b|\b[A-Z][a-z]+\b", " ".join(steps))) <= COLUMNS | TABLES


def test_each_alert_has_a_line_in_the_runbook() -> None:
    """Each line has a cause, a check and a fix, and belongs to an alert that exists."""
    alerts = {*re.findall(r"name: '([a-z-]+)'", BICEP["alerts"]), "idle-nodes", "queues", "budget"}
    alerts -= {"lost", "idle", "waiting"}  # names of criteria
    book = rows("alert", f"\n{RUNBOOK}")
    assert alerts == book.keys()
    assert [] == [name for name, cells in book.items() if len(cells) != 3 or min(map(len, cells)) < 20]


def test_each_query_is_named_in_the_runbook_and_each_named_one_exists() -> None:
    """Alerts and workbook load files that exist, and all but the query of a trace are loaded."""
    named = set(re.findall(r"quer(?:y|ies) `([a-z-]+)`", RUNBOOK))
    named |= set(re.findall(r"`([a-z-]+)`", RUNBOOK.partition("The other queries")[2]))
    loaded = {
        name: set(re.findall(r"loadTextContent\('\.\./queries/([a-z-]+)\.kql'\)", BICEP[name])) for name in BICEP
    }
    assert QUERIES.keys() == named
    assert loaded["alerts"] | loaded["monitoring"] | {"trace"} == QUERIES.keys()


def test_an_alert_fires_on_a_row_of_its_query() -> None:
    """A query of an alert filters, rather than lists what is always there; it names its own file."""
    for name in re.findall(r"name: '([a-z-]+)'\n    text", BICEP["alerts"]):
        block = BICEP["alerts"].partition(f"name: '{name}'\n")[2].partition("}")[0]
        assert f"queries/{name}.kql" in block
        assert "| where " in QUERIES[name]
