"""Reasons: through JSON, and fit for a terminal whatever a file says."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from shard_validation import Reason, ReasonCode
from shard_validation.reasons import MAX_TEXT_CHARS, Fault, shown


def test_through_json() -> None:
    """A reason comes back from JSON as it was."""
    reason = Fault(code=ReasonCode.PAYLOAD_CRC, expected="a", seen="b").at("shard", record_index=3, byte_offset=99)
    assert reason == Reason.from_json(json.loads(json.dumps(reason.to_json())))


@given(text=st.text())
def test_what_a_file_says_is_shown_safely(text: str) -> None:
    """Text out of a file becomes one bounded line without control characters."""
    line = shown(text)
    assert line.isprintable()
    assert len(line) <= 10 * MAX_TEXT_CHARS
