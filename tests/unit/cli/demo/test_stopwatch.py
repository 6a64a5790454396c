"""The durations of a demo's phases."""

from __future__ import annotations

from cli.demo.stopwatch import Stopwatch


def test_each_phase_has_the_time_until_the_next_one() -> None:
    """Entering the same phase again does not end it; the total covers all."""
    moments = iter([100.0, 101.0, 103.5, 110.0, 110.0])
    watch = Stopwatch(lambda: next(moments))
    watch.begin("upload")
    watch.begin("upload")
    watch.begin("training")
    assert {"upload": 2.5, "training": 6.5, "total": 10.0} == watch.finish()
