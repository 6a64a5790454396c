"""The page of a report: complete, escaped, and without anything from outside."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import pytest

from cli.smoke.assertions import ASSERTIONS, Results
from cli.smoke.page import page

HOSTILE = "<script>alert(1)</script><img src=http://x.example/ onerror=y> \"'&"


def report(**changed: Any) -> dict[str, Any]:
    """A report of a test that ended early: one assertion holds, one does not, the others were not reached."""
    results = Results(lambda _line: None)
    results.record("app_healthy", "status ok", holds=True)
    results.record("pipeline_in_service", "no size", holds=False)
    return {
        "format_version": 1,
        "outcome": "failed",
        "error": None,
        "function_app": "https://app.example",
        "dataset_version": "landfall-smoke/v1",
        "began_at": "2026-11-23T10:00:00+00:00",
        "ended_at": "2026-11-23T10:20:00+00:00",
        "runs": {"training": "run-1"},
        "assertions": results.to_json(),
        "removed": ["2 uploads"],
        "stays": ["az storage blob delete-batch"],
    } | changed


class Seen(HTMLParser):
    """The elements and the text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[str] = []
        self.addresses: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href", "action")]

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_has_every_assertion_and_what_to_do() -> None:
    """What was seen, expected and is to be done; what was removed, and what stays."""
    seen = Seen(page(report()))
    assert [] == [assertion.name for assertion in ASSERTIONS if assertion.name not in seen.text]
    for text in ("1 passed, 1 failed, 16 not reached", "no size", ASSERTIONS[1].expected, ASSERTIONS[1].fix, "run-1"):
        assert text in seen.text
    for text in ("2 uploads", "az storage blob delete-batch", "2026-11-23 10:00:00 UTC", "10:20:00 UTC"):
        assert text in seen.text
    assert ASSERTIONS[0].fix not in seen.text


@pytest.mark.parametrize("member", ["error", "function_app", "dataset_version"])
def test_text_from_outside_is_escaped(member: str) -> None:
    """It is shown as it is, and makes no element."""
    plain, hostile = Seen(page(report(error="x"))), Seen(page(report(**({"error": "x"} | {member: HOSTILE}))))
    assert (plain.elements, []) == (hostile.elements, hostile.addresses)
    assert HOSTILE in hostile.text


def test_lists_and_what_was_seen_are_escaped() -> None:
    """Names of runs, reasons of the app, commands."""
    assertions = [dict(assertion) | {"seen": HOSTILE} for assertion in report()["assertions"]]
    changed = report(assertions=assertions, runs={HOSTILE: HOSTILE}, removed=[HOSTILE], stays=[HOSTILE])
    seen = Seen(page(changed))
    assert (0, []) == (seen.elements.count("script") + seen.elements.count("img"), seen.addresses)


def test_nothing_is_loaded() -> None:
    """No address, no script; and the browser would refuse them."""
    text = page(report())
    assert not re.search(r"https?://(?!app\.example)|url\(|@import|<script|<link|<iframe", text)
    assert "content=\"default-src 'none'; style-src 'unsafe-inline'\"" in text
