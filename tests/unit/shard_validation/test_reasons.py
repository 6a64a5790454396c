"""Reasons: through JSON, safe on a terminal whatever a file contains, and documented."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from shard_validation import MEANINGS, Limits, Reason, ReasonCode
from shard_validation.reasons import Fault
from shared.safe_text import MAX_TEXT_CHARS, shown

PAGE = (Path(__file__).parents[3] / "docs" / "validation.md").read_text(encoding="utf-8")


def rows(heading: str) -> dict[str, str]:
    """Return the rows of the table below a heading of docs/validation.md."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", section, re.MULTILINE))


def test_through_json() -> None:
    """A reason comes back from JSON as it was."""
    reason = Fault(code=ReasonCode.PAYLOAD_CRC, expected="a", seen="b").at("shard", record_index=3, byte_offset=99)
    assert reason == Reason.from_json(json.loads(json.dumps(reason.to_json())))


def test_message_states_place_and_both_values() -> None:
    """The message is complete without the other fields."""
    fault = Fault(code=ReasonCode.VALUE_OUT_OF_RANGE, feature="label", expected="0 to 9", seen="12")
    message = fault.at("train-00000-of-00001", record_index=3, byte_offset=99).message
    assert "train-00000-of-00001, record 3 at byte 99, feature label: expected 0 to 9, got 12" == message


@given(text=st.text())
def test_text_from_a_file_is_shown_safely(text: str) -> None:
    """Text from a file becomes one bounded line without control characters."""
    line = shown(text)
    assert line.isprintable()
    assert len(line) <= 10 * MAX_TEXT_CHARS


def test_every_code_has_a_meaning() -> None:
    """No code lacks its sentence."""
    assert set(ReasonCode) == set(MEANINGS)


def test_documented_codes() -> None:
    """The table in docs/validation.md has every code with its meaning, and no other."""
    assert {str(code): meaning for code, meaning in MEANINGS.items()} == rows("Reason codes")


def test_documented_limits() -> None:
    """The table in docs/validation.md has every limit with its default."""
    assert {f.name: f"{f.default:,}" for f in fields(Limits)} == rows("Limits")
