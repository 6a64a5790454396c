"""The report of a smoke test as a page: one HTML file that loads nothing, in which every text is escaped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from html import escape
from typing import Any

WORDS = {"passed": "passed", "failed": "failed", "not_reached": "not reached"}
STYLE = """
:root { color-scheme: light dark; --line: #8884; --good: #1a7f37; --bad: #cf222e; --none: #6e7781; }
@media (prefers-color-scheme: dark) { :root { --good: #3fb950; --bad: #ff7b72; --none: #8b949e; } }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: 0; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .5rem .75rem .5rem 0; border-top: 1px solid var(--line); }
td, li { overflow-wrap: anywhere; } th { white-space: nowrap; font-weight: 600; }
.passed { color: var(--good); } .failed { color: var(--bad); } .not_reached { color: var(--none); }
.outcome { white-space: nowrap; font-weight: 600; } .seen { white-space: pre-wrap; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; margin: .5rem 0 0; }
dt { color: var(--none); } dd { margin: 0; overflow-wrap: anywhere; }
@media (max-width: 40rem) { tr, td, th { display: block; border: 0; padding: 0; } tr { padding: .75rem 0; } }
"""


def page(report: Mapping[str, Any]) -> str:
    """Return the page of a report."""
    assertions, title = report["assertions"], f"Smoke test: {report['outcome']}"
    counts = {outcome: sum(assertion["outcome"] == outcome for assertion in assertions) for outcome in WORDS}
    counted = ", ".join(f"{number} {WORDS[outcome]}" for outcome, number in counts.items() if number)
    facts = {
        "function app": report["function_app"],
        "dataset version": report["dataset_version"],
        "began": f"{_time(report['began_at'])}, ended {_time(report['ended_at'])[11:]}",
        "assertions": counted,
        **({"ended early": report["error"]} if report["error"] else {}),
        **{f"{which} run": run_id for which, run_id in report["runs"].items()},
    }
    body = [
        f'<h1 class="{escape(report["outcome"])}">{escape(title)}</h1>',
        "<dl>",
        *(f"<dt>{escape(name)}</dt><dd>{escape(str(value))}</dd>" for name, value in facts.items()),
        "</dl>",
        "<h2>Assertions</h2>",
        "<table>",
        *_rows(assertions),
        "</table>",
        *_list("Removed", report["removed"]),
        *_list("What stays", report["stays"]),
    ]
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    head = f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{policy}">'
    head += '<meta name="viewport" content="width=device-width, initial-scale=1">'
    head += f"<title>{escape(title)}</title><style>{STYLE}</style>"
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>\n' + "\n".join(body) + "\n</body></html>\n"


def _rows(assertions: list[Mapping[str, Any]]) -> Iterator[str]:
    for assertion in assertions:
        outcome = assertion["outcome"]
        details = [f'<div class="seen">{escape(assertion["seen"])}</div>'] if assertion["seen"] else []
        if outcome != "passed":
            details.append(f"<div><b>expected:</b> {escape(assertion['expected'])}</div>")
        if outcome == "failed":
            details.append(f"<div><b>do:</b> {escape(assertion['fix'])}</div>")
        yield (
            f'<tr><td class="outcome {escape(outcome)}">{escape(WORDS[outcome])}</td>'
            f'<th scope="row">{escape(assertion["name"])}</th><td>{"".join(details)}</td></tr>'
        )


def _list(title: str, texts: list[str]) -> Iterator[str]:
    if texts:
        yield f"<h2>{escape(title)}</h2>"
        yield "<ul>" + "".join(f"<li>{escape(text)}</li>" for text in texts) + "</ul>"


def _time(text: str) -> str:
    return f"{datetime.fromisoformat(text):%Y-%m-%d %H:%M:%S} UTC"
