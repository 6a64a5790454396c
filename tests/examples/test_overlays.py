"""The tests run the pipelines that ship: their overlays change what they name, and nothing else."""

from __future__ import annotations

import re
from dataclasses import asdict

import pytest

from function_app.config.clusters import Cluster, Clusters
from function_app.config.pipeline_files import load_clusters, load_pipelines, parse_pipeline
from function_app.config.pipelines import Pipeline
from shared.vm_sizes import vm_size
from tests.examples.overlays import OVERLAYS, PIPELINES, leaves, overlaid
from tests.support.processes import REPOSITORY

SHIPPED = {pipeline.pipeline: pipeline for pipeline in load_pipelines(PIPELINES).values()}


CLUSTERS = load_clusters(PIPELINES)


def one_size(cluster: Cluster, number: int) -> Cluster:
    """The cluster with one of its sizes."""
    return cluster.model_copy(update={"sizes": cluster.sizes[number : number + 1]})


def fields_of(pipeline: Pipeline) -> dict[str, object]:
    """Return every field of a pipeline, defaults included, by its path."""
    members = pipeline.model_dump(mode="json", by_alias=True)
    members["train"]["options"] = asdict(pipeline.train.options)
    return dict(leaves(members))


@pytest.mark.parametrize("name", OVERLAYS)
def test_an_overlay_changes_what_it_names_and_nothing_else(name: str) -> None:
    """Compared as both files are read, defaults included."""
    real, ours = (fields_of(p) for p in (SHIPPED[name], parse_pipeline(overlaid(name).encode(), name)))
    assert dict(OVERLAYS[name]) == {path: value for path, value in ours.items() if real[path] != value}
    assert real.keys() == ours.keys()


@pytest.mark.parametrize("name", OVERLAYS)
def test_an_overlay_says_only_how_large_and_on_what(name: str) -> None:
    """Data, recipe, gate and recipients stay those that ship."""
    size = r"train\.(num_nodes|cluster|options_by_gpu\.A100\.mixed_precision|options\.(epochs|warm_up_epochs"
    size += r"|per_process_batch_size|image_height|image_width|model_name|mixed_precision))"
    assert [] == [path for path in OVERLAYS[name] if not re.fullmatch(size, path)]


def test_every_shipped_pipeline_is_tested_end_to_end() -> None:
    """The digits by the demo, the smoke test's by itself, the others here."""
    assert set(SHIPPED) == {*OVERLAYS, "digits", "smoke"}


@pytest.mark.parametrize("name", SHIPPED)
def test_a_process_has_a_gpu_of_its_own(name: str) -> None:
    """There are as many processes as GPUs for every size of the cluster, and one for a size without GPUs."""
    cluster = CLUSTERS.clusters[SHIPPED[name].train.cluster]
    gpus = [size.num_gpus if size else 1 for size in (vm_size(each.vm_size) for each in cluster.sizes)]
    one = [Clusters(clusters={SHIPPED[name].train.cluster: one_size(cluster, number)}) for number in range(len(gpus))]
    assert gpus == [SHIPPED[name].on(each).machines.processes_per_node for each in one]


@pytest.mark.parametrize("name", SHIPPED)
def test_the_page_of_examples_tells_of_it(name: str) -> None:
    """The page says where its data come from and how it is started."""
    page = (REPOSITORY / "docs" / "examples.md").read_text(encoding="utf-8")
    assert f"pipelines/{name}.yaml" in page
