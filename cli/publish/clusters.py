"""The clusters that the pipelines ask for."""

from __future__ import annotations

from pathlib import Path

from cli.errors import CliError
from cli.publish.workspace import Cluster
from function_app.config.pipeline_files import load_pipelines


def clusters_of(pipelines: Path, *, max_nodes: int) -> list[Cluster]:
    """Return each cluster that a pipeline names, once, large enough for all of them.

    Raises PipelineError for a wrong file, CliError where two pipelines disagree about a cluster.
    """
    found: dict[str, Cluster] = {}
    for pipeline in load_pipelines(pipelines).values():
        train = pipeline.train
        known = found.get(train.compute)
        if known is not None and known.vm_size != train.vm_size:
            raise CliError(f"cluster {train.compute}: one pipeline says {known.vm_size}, another {train.vm_size}.")
        nodes = max(max_nodes, train.num_nodes, known.max_nodes if known else 0)
        found[train.compute] = Cluster(name=train.compute, vm_size=train.vm_size, max_nodes=nodes)
    return [found[name] for name in sorted(found)]
