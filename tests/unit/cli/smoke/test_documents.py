"""The page that lists what only a subscription shows names every assertion of the smoke test."""

from __future__ import annotations

import re

from cli.smoke.checks import CHECKS
from tests.support.processes import REPOSITORY


def test_the_page_has_a_row_for_each_assertion() -> None:
    """In their order."""
    page = (REPOSITORY / "docs" / "azure.md").read_text(encoding="utf-8")
    section = page.partition("## What the smoke test shows")[2].partition("\n## ")[0]
    assert [check.name for check in CHECKS] == re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)
