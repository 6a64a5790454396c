"""docs/validation.md says what the code says."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from shard_validation import MEANINGS, Limits, ReasonCode

TEXT = (Path(__file__).parents[3] / "docs" / "validation.md").read_text(encoding="utf-8")


def rows(heading: str) -> dict[str, str]:
    """Return the rows of the table below a heading."""
    section = TEXT.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", section, re.MULTILINE))


def test_reason_codes() -> None:
    """The table holds every code with its meaning, and no other."""
    assert {str(code): meaning for code, meaning in MEANINGS.items()} == rows("Reason codes")


def test_every_code_has_a_meaning() -> None:
    """No code is without its sentence."""
    assert set(ReasonCode) == set(MEANINGS)


def test_limits() -> None:
    """The table holds every limit with its default."""
    assert {f.name: f"{f.default:,}" for f in fields(Limits)} == rows("Limits")
