"""The share of the cores that others used is read from the kernel's counters."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.workers.timed import busy_s, others_share

STAT = """\
cpu  300 30 60 9000 900 6 3 12 0 0
cpu0 100 10 20 3000 300 2 1 4 0 0
cpu1 200 20 40 6000 600 4 2 8 0 0
intr 1 2 3
"""


def test_busy_time_counts_what_is_neither_idle_nor_waiting(tmp_path: Path) -> None:
    """Steal time counts: the hypervisor's other guests are others too."""
    stat = tmp_path / "stat"
    stat.write_text(STAT)
    assert (1.37, 4.11) == (busy_s({0}, stat), busy_s({0, 1}, stat))


def test_the_share_of_others_is_what_we_did_not_use() -> None:
    """Two cores, one second: 1.9 s busy, 1.5 s of them ours."""
    assert 0.2 == pytest.approx(others_share(wall_s=1.0, busy_s=1.9, own_cpu_s=1.5, num_cores=2))


def test_clocks_that_disagree_a_little_give_a_share_of_zero() -> None:
    """The kernel counts cores in hundredths of a second, processes in nanoseconds."""
    assert 0.0 == others_share(wall_s=1.0, busy_s=1.99, own_cpu_s=2.0, num_cores=2)
