"""The clusters that the pipelines ask for."""

from __future__ import annotations

from pathlib import Path

import yaml

from cli.publish.workspace import Cluster


def clusters_of(pipelines: Path, *, vm_size: str, max_nodes: int) -> list[Cluster]:
    """Return each cluster that a pipeline file names, once."""
    names = set()
    for path in sorted(pipelines.glob("*.yaml")):
        document = yaml.safe_load(path.read_text())
        names.add(document["train"]["compute"])
    return [Cluster(name=name, vm_size=vm_size, max_nodes=max_nodes) for name in sorted(names)]
