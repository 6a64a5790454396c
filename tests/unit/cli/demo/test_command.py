"""Every demo has a dataset version of its own."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from cli.demo.command import new_version


@pytest.mark.parametrize(
    ("taken", "expected"),
    [
        (set[str](), "20261120-123456"),
        ({"20261120-123456"}, "20261120-123456-2"),
        ({"20261120-123456", "20261120-123456-2"}, "20261120-123456-3"),
    ],
)
def test_a_taken_name_gets_a_number(taken: set[str], expected: str) -> None:
    """The second demo within one second gets another name."""
    assert expected == new_version(datetime(2026, 11, 20, 12, 34, 56, tzinfo=UTC), taken.__contains__)
