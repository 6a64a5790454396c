"""The worked example of costs in docs/deploy.md follows from the prices that it states and from clusters.yaml."""

from __future__ import annotations

import re

import yaml

from shared.vm_sizes import vm_size
from tests.support.processes import REPOSITORY

PAGE = (REPOSITORY / "docs" / "deploy.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| `(Standard_\w+)` \| (\d) (\w+) \| ([\d.]+) \| (\d+) \|$", re.MULTILINE)
NODES, HOURS = 4, 1 + (5 + 2) / 60
"""Four nodes for an hour, five minutes to start, and LANDFALL_IDLE_TIME."""


def test_the_example_is_computed_from_the_price_of_a_node() -> None:
    """Price times nodes times hours, to the dollar; and GPUs as they are."""
    rows = ROW.findall(PAGE)
    wrong = [row for row in rows if abs(float(row[3]) * NODES * HOURS - int(row[4])) > 0.03 * int(row[4])]
    sizes = {name: vm_size(name) for name, *_ in rows}
    gpus = [(row[0], size.num_gpus, size.gpu) for row in rows if (size := sizes[row[0]])]
    assert (5, [], [(name, int(number), gpu) for name, number, gpu, *_ in rows]) == (len(rows), wrong, gpus)


def test_every_kind_of_gpu_of_the_clusters_has_a_price() -> None:
    """A size that a deployment may choose has a row, or another of the same GPU and number has."""
    clusters = yaml.safe_load((REPOSITORY / "pipelines" / "clusters.yaml").read_text(encoding="utf-8"))
    chosen = [size["vm_size"] for cluster in clusters.values() for size in cluster["sizes"]]
    priced = {(size.num_gpus, size.gpu) for name, *_ in ROW.findall(PAGE) if (size := vm_size(name))}
    current = [size for name in chosen if (size := vm_size(name)) and not size.retired]
    assert [] == [size.name for size in current if (size.num_gpus, size.gpu) not in priced]
    assert "| `LANDFALL_IDLE_TIME` | `PT2M` |" in PAGE
