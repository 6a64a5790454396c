"""docs/lint.md matches the rules and limits in the code."""

from __future__ import annotations

import re
from pathlib import Path

from horovod_lint import MAX_DEPTH, MAX_SCRIPT_BYTES, RULES, RuleCode

TEXT = (Path(__file__).parents[3] / "docs" / "lint.md").read_text(encoding="utf-8")


def test_every_code_is_in_the_table_with_severity_and_meaning() -> None:
    """The table has no other rows."""
    section = TEXT.partition("\n## Rules\n")[2].partition("\n## ")[0]
    rows = [tuple(row) for row in re.findall(r"^\| `(\w+)` \| (\w+) \| (.*) \|$", section, re.MULTILINE)]
    assert [(str(code), str(rule.severity), rule.what) for code, rule in RULES.items()] == rows


def test_every_code_has_a_rule() -> None:
    """Each rule has its texts."""
    assert set(RuleCode) == set(RULES)


def test_the_limits_are_stated() -> None:
    """The limits of a script's size and nesting are documented."""
    assert f"{MAX_SCRIPT_BYTES >> 10} KiB" in TEXT
    assert f"{MAX_DEPTH} levels" in TEXT
