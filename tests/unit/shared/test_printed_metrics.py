"""Metrics that a script prints, whatever else it prints."""

from __future__ import annotations

import pytest

from shared.training_report import MAX_PRINTED_CHARS, MAX_PRINTED_METRICS, printed_metrics


@pytest.mark.parametrize(
    ("log", "metrics"),
    [
        ("", {}),
        ("val_accuracy=0.93", {"val_accuracy": 0.93}),
        ("  a=1 b=-2.5e-3, c=.5,d=+4.\r\n", {"a": 1, "b": -0.0025, "c": 0.5, "d": 4}),
        ("a=1\na=2\nb=3\n", {"a": 2, "b": 3}),
        ("epoch 1: a=1\na=1;\na = 1\na=x\na=\n=1\n1a=1\na=1 b\na=nan\na=inf\n", {}),
        ("a=1\na=1e999\n", {"a": 1}),
        (f"{'x' * 65}=1\n{'a=1 ' * MAX_PRINTED_CHARS}\n", {}),
        ("LANDFALL_PROGRESS {}\nhttps://h/?a=1\n", {}),
        ("a=1.\n", {"a": 1}),
        (f"{'a=123456 ' * 100}ms\n", {}),  # takes for ever if a pattern can split each number in several ways
    ],
)
def test_only_lines_of_metrics_count(log: str, metrics: dict[str, float]) -> None:
    """The last value of each, if it is a finite number."""
    assert metrics == printed_metrics(log)


def test_the_number_of_metrics_is_bounded() -> None:
    """The first ones are kept, with their last values."""
    log = "".join(f"m{number}=0\n" for number in range(10 * MAX_PRINTED_METRICS)) + "m3=5\n"
    found = printed_metrics(log)
    assert (MAX_PRINTED_METRICS, 5) == (len(found), found["m3"])
