"""`clusters.yaml`: its schema, its error messages, and which machines a pipeline gets from it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from function_app.config.clusters import Clusters
from function_app.config.pipeline_files import load_pipelines, parse_clusters, read_pipelines
from function_app.domain.errors import PipelineError
from tests.support.world import CLUSTERS, PIPELINE, read_pipeline


def folder(path: Path, clusters: str = CLUSTERS, pipeline: str = PIPELINE) -> Path:
    """A folder with the pipeline of the tests and these clusters."""
    (path / "digits.yaml").write_text(pipeline)
    (path / "clusters.yaml").write_text(clusters)
    return path


def clusters_of(text: str, sizes: Mapping[str, str] | None = None) -> Clusters:
    """The clusters of a text."""
    return Clusters(clusters=parse_clusters(text.encode(), "clusters.yaml"), sizes=sizes)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{}", "the file: Dictionary should have at least 1 item"),
        (
            "gpu-1: {sizes: [{vm_size: Standard_D4s_v5, processes_per_node: 1}]}",
            "gpu-1: must be the name of an Azure",
        ),
        ("gpu: {sizes: []}", "gpu.sizes: Tuple should have at least 1 item"),
        ("gpu: {size: x}", "gpu.size: is unknown, got 'x'; did you mean sizes?"),
        (
            "gpu: {sizes: [{vm_size: Standard_NC6s_v4}]}",
            "gpu.sizes.0.vm_size: must be an Azure VM size; did you mean",
        ),
        ("gpu: {sizes: [{vm_size: two GPUs}]}", "gpu.sizes.0.vm_size: must be an Azure VM size; known are"),
        ("gpu: {sizes: [{vmsize: x}]}", "gpu.sizes.0.vmsize: is unknown, got 'x'; did you mean vm_size?"),
        (
            "gpu: {sizes: [{vm_size: Standard_ND96asr_v4, processes_per_node: 9}]}",
            "gpu.sizes.0: processes_per_node must be at most 8, the number of GPUs of Standard_ND96asr_v4",
        ),
        (
            "gpu: {sizes: [{vm_size: Standard_D4s_v5}]}",
            "gpu.sizes.0: processes_per_node is required, because the GPUs of Standard_D4s_v5 are not known",
        ),
        (
            "gpu: {sizes: [{vm_size: Standard_ND96asr_v4}, {vm_size: standard_nd96asr_v4}]}",
            "gpu: sizes must not repeat a VM size",
        ),
        (
            "gpu: {sizes: [{vm_size: Standard_NC6s_v3}, {vm_size: Standard_NC24s_v3}]}",
            "gpu: all sizes are retired: Standard_NC6s_v3 is retired 2025-09-30 in public regions; its successor is",
        ),
        (
            "gpu: {sizes: [{vm_size: Standard_ND96asr_v4, price_per_node_hour: 3}, {vm_size: Standard_ND40rs_v2}]}",
            "gpu: price_per_node_hour must be stated for all sizes or for none",
        ),
        (
            "gpu: {sizes: [{vm_size: Standard_ND96asr_v4, price_per_node_hour: 0}]}",
            "gpu.sizes.0.price_per_node_hour: must be greater than 0, got 0",
        ),
        ("gpu: {sizes: [{vm_size: Standard_ND96asr_v4}], min_nodes: 5}", "gpu: min_nodes 5 is above max_nodes 4"),
        ("gpu: {sizes: [{vm_size: Standard_ND96asr_v4}], priority: spot}", "gpu.priority: must be 'dedicated' or"),
        ("gpu: [", "not valid YAML: "),
        ("gpu: {}\ngpu: {}", "not valid YAML: key 'gpu' is repeated, line 2, column 1"),
        (
            "".join(f"gpu{n}: {{sizes: [{{vm_size: Standard_ND96asr_v4}}]}}\n" for n in range(21)),
            "the file: Dictionary should have at most 20 items",
        ),
    ],
)
def test_an_error_names_field_problem_and_fix(text: str, problem: str) -> None:
    """The check is as strict as that of pipeline files."""
    with pytest.raises(PipelineError) as caught:
        parse_clusters(text.encode(), "clusters.yaml")
    assert any(found.startswith(f"clusters.yaml: {problem}") for found in caught.value.problems)


@pytest.mark.parametrize(
    "size", ["Standard_D4s_v3", "Standard_E64-16s_v4", "standard_nd96asr_v4", "Standard_ND128isr_X_v9"]
)
def test_sizes_without_gpus_and_sizes_newer_than_the_table_are_accepted(size: str) -> None:
    """Azure ML knows which of them exist; nothing tells how many processes they can have."""
    found = clusters_of(f"gpu: {{sizes: [{{vm_size: {size}, processes_per_node: 2}}]}}")
    assert (size, 2) == (found.machines("gpu").vm_size, found.machines("gpu").processes_per_node)


def test_a_size_that_some_regions_still_have_may_stand_alone() -> None:
    """The files cannot tell in which region they are used; publishing can."""
    assert 4 == clusters_of("gpu: {sizes: [{vm_size: Standard_NC24rs_v3}]}").machines("gpu").processes_per_node


def test_a_wrong_or_missing_file_of_clusters_stops_every_pipeline_and_says_so_once(tmp_path: Path) -> None:
    """No pipeline knows what it would run on."""
    other = PIPELINE.replace("digits", "other")
    (folder(tmp_path, "gpu: {}") / "other.yaml").write_text(other)
    assert {"digits", "other"} == set(read_pipelines(tmp_path).out_of_service)
    with pytest.raises(PipelineError) as caught:
        load_pipelines(tmp_path)
    assert ("clusters.yaml: gpu.sizes: is required (line 1)",) == caught.value.problems
    (tmp_path / "clusters.yaml").unlink()
    with pytest.raises(PipelineError, match=r"^clusters\.yaml: does not exist beside the pipeline files"):
        load_pipelines(tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (
            "landfall-gpu",
            "landfall-gpuu",
            "train.cluster: landfall-gpuu is not in clusters.yaml; did you mean landfall-",
        ),
        (
            "landfall-gpu",
            "xyz",
            "train.cluster: xyz is not in clusters.yaml; known are landfall-gpu, landfall-a100, ",
        ),
        (
            "num_nodes: 2",
            "num_nodes: 5",
            "train.cluster: train.num_nodes is 5, cluster landfall-gpu has at most 4 nodes",
        ),
        (
            "register:",
            "attempts: {other_clusters: [nowhere]}\nregister:",
            "attempts.other_clusters.0: nowhere is not in clusters.yaml; known are",
        ),
        (
            "register:",
            "attempts: {max_cost: 10}\nregister:",
            "train.cluster: attempts.max_cost needs price_per_node_hour for the sizes of landfall-gpu",
        ),
    ],
)
def test_what_a_pipeline_asks_of_a_cluster_is_checked(tmp_path: Path, old: str, new: str, problem: str) -> None:
    """When the files are read, with the name of the pipeline's file."""
    with pytest.raises(PipelineError) as caught:
        load_pipelines(folder(tmp_path, pipeline=PIPELINE.replace(old, new)))
    assert caught.value.problems[0].startswith(f"digits.yaml: {problem}")


def test_a_limit_on_cost_allows_one_attempt_on_the_size_that_the_cluster_has() -> None:
    """Each size has its price."""
    priced = (
        "landfall-gpu:\n  sizes:\n    - {vm_size: Standard_NC24ads_A100_v4, price_per_node_hour: 4}\n"
        "    - {vm_size: Standard_NC40ads_H100_v5, price_per_node_hour: 8}\n"
    )
    text = PIPELINE.replace("register:", "attempts: {max_cost: 10}\nregister:")
    cheap, dear = (
        clusters_of(priced, {"landfall-gpu": size})
        for size in ("Standard_NC24ads_A100_v4", "Standard_NC40ads_H100_v5")
    )
    assert 4 == read_pipeline(text, on=cheap).machines.price_per_node_hour
    with pytest.raises(
        PipelineError, match="max_cost must be at least 16, which one attempt may cost on Standard_NC40"
    ):
        read_pipeline(text, on=dear)


def test_options_follow_the_gpu_that_the_cluster_has() -> None:
    """What the file says for another GPU, and for none in particular, stays as it is."""
    text = PIPELINE.replace(
        "timeout_s: 3600",
        "timeout_s: 3600\n  options_by_gpu: {A100: {mixed_precision: bfloat16, per_process_batch_size: 8}}",
    )
    volta, ampere = (
        read_pipeline(text, on=clusters_of(CLUSTERS, {"landfall-gpu": size})).options
        if size.endswith("A100_v4")
        else read_pipeline(text).options
        for size in ("Standard_NC6s_v3", "Standard_NC24ads_A100_v4")
    )
    assert [("none", 1, 3), ("bfloat16", 8, 3)] == [
        (options.mixed_precision, options.per_process_batch_size, options.epochs) for options in (volta, ampere)
    ]


@pytest.mark.parametrize(
    ("sizes", "problem"),
    [
        (
            {},
            "the app setting LANDFALL_CLUSTER_SIZES does not say which size landfall-gpu has; run `landfall publish`",
        ),
        (
            {"landfall-gpu": "Standard_ND96asr_v4"},
            "the app setting LANDFALL_CLUSTER_SIZES says that landfall-gpu has 'Standard_ND96asr_v4', which is not",
        ),
        (
            {"landfall-gpu": "Standard_NC6s_v3"},
            "the app setting LANDFALL_CLUSTER_SIZES says that landfall-gpu has a retired size: Standard_NC6s_v3 is",
        ),
    ],
)
def test_a_deployment_submits_nothing_to_a_size_that_it_does_not_know(
    tmp_path: Path, sizes: dict[str, str], problem: str
) -> None:
    """Its pipelines are out of service, and the reason says what to do."""
    found = read_pipelines(folder(tmp_path), sizes)
    assert {} == found.pipelines
    assert found.out_of_service["digits"][0].startswith(f"digits.yaml: train.cluster: {problem}")


@pytest.mark.parametrize("text", ["{key}: x", "{key}: {{sizes: 1}}", "gpu: {{{key}: 1}}", "gpu: {{sizes: {key}}}"])
def test_a_bare_key_in_the_file_is_not_repeated(text: str) -> None:
    """Wherever it stands."""
    with pytest.raises(PipelineError) as caught:
        parse_clusters(text.format(key="SECRET" * 14 + "==").encode(), "clusters.yaml")
    assert "SECRET" not in str(caught.value)


def test_a_deployment_has_the_size_that_was_published(tmp_path: Path) -> None:
    """It need not be the one that the file prefers."""
    found = read_pipelines(folder(tmp_path), {"landfall-gpu": "standard_nc24ads_a100_v4"})
    assert "Standard_NC24ads_A100_v4" == found.pipelines["digits"].machines.vm_size
