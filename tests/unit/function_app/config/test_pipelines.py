"""The schema of pipeline files, and its error messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from function_app.config.pipeline_files import parse_pipeline
from function_app.domain.errors import PipelineError
from tests.support import synthetic
from tests.support.world import PIPELINE, own_script, read_pipeline

ROOT = Path(__file__).resolve().parents[4]


def problems(old: str, new: str) -> tuple[str, ...]:
    """Return the problems of the tests' pipeline after a replacement in its text."""
    assert old in PIPELINE
    with pytest.raises(PipelineError) as caught:
        read_pipeline(PIPELINE.replace(old, new))
    return caught.value.problems


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (
            "pipeline: digits",
            "pipeline: Digits",
            "pipeline: must be 1 to 63 lower-case letters, digits, - and _, got",
        ),
        ("timeout_s:", "timeouts:", "train.timeout_s: is required"),
        ("epochs: 3,", "epoch: 3,", "train.options.epoch: is unknown, got 3; did you mean epochs?"),
        (
            "epochs: 3,",
            "pixel_mean: nan, pixel_std: '1', epochs: 3,",
            "train.options: pixel_mean must be finite numbers separated by commas",
        ),
        ("epochs: 3,", "epochs: '3',", "train.options.epochs: must be a valid integer, got '3'"),
        ("splits: [train, validation]", "splits: [train, train]", "data: splits must not repeat a name, got"),
        ("int64, minimum", "int64, encoding: png, minimum", "data.features.label: encoding belongs to kind bytes"),
        ("num_nodes: 2", "num_nodes: true", "train.num_nodes: must be a valid integer, got true"),
        (
            "cluster: landfall-gpu",
            "cluster: gpu-1",
            "train.cluster: must be the name of an Azure ML cluster: 3 to 24",
        ),
        ("epochs: {minimum: 1, maximum: 100}", "epochs: {}", "train.overrides.epochs: must have minimum, maximum"),
        (
            "epochs: {minimum: 1, maximum: 100}",
            "epochs: {minimum: 10, maximum: 5}",
            "train.overrides.epochs: minimum 10 is above maximum 5, so that no value is allowed",
        ),
        (
            "minimum: 0, maximum: 9}",
            "minimum: 9, maximum: 0}",
            "data.features.label: minimum 9 is above maximum 0, so that no value is allowed",
        ),
        (
            "at_least: 0.95",
            "at_least: 0.95, at_most: 0.5",
            "register.require.0: at_least 0.95 is above at_most 0.5, so that no value is allowed",
        ),
        *(
            (
                "timeout_s: 3600",
                f"timeout_s: 3600\n  environment_variables: {{{name}: '2'}}",
                f"train.environment_variables.{name}: must be the name of an environment variable that neither",
            )
            for name in ("LANDFALL_SIMULATED_GPUS", "OMPI_COMM_WORLD_SIZE")
        ),
        (
            "timeout_s: 3600",
            "timeout_s: 3600\n  options_by_gpu: {A101: {}}",
            "train.options_by_gpu.A101: must be a GPU of an Azure VM size: A10, A100, H100, H200, T4, V100",
        ),
        (
            "timeout_s: 3600",
            "timeout_s: 3600\n  options_by_gpu: {A100: {epochs: 3}}",
            "train.options_by_gpu.A100.epochs: is unknown, got 3; known fields: per_process_batch_size, ",
        ),
        *(
            ("cluster: landfall-gpu", f"cluster: landfall-gpu\n  {old}", f"train.{old.partition(':')[0]}: {said}")
            for old, said in (
                ("compute: my-gpu", 'is now train.cluster: write "cluster: my-gpu" instead'),
                (
                    "vm_size: Standard_NC6s_v3",
                    'belongs to the cluster: remove it, and list "- vm_size: Standard_NC6s_v3"',
                ),
                (
                    "processes_per_node: 2",
                    "belongs to the cluster: remove it. One process is started for each GPU; for",
                ),
                (
                    "price_per_node_hour: 3.5",
                    'belongs to the cluster: remove it, and write "price_per_node_hour: 3.5" b',
                ),
            )
        ),
        (
            "register:",
            "attempts: {other_sizes: [{compute: gpu, vm_size: Standard_NC24s_v3}]}\nregister:",
            "attempts.other_sizes: is now attempts.other_clusters: write the names of its computes, [NAME, ...], and",
        ),
        ("optimizer: {allowed: [adam, sgd]}", "optimizer: {minimum: 1}", "train: overrides.optimizer must list"),
        (
            "on_change: notify",
            "on_change: retrain",
            "on_change: must be 'notify', 'train' or 'cancel_and_train'",
        ),
        (
            "register:",
            "attempts: {max: 0}\nregister:",
            "attempts.max: must be greater than or equal to 1, got 0",
        ),
        (
            "register:",
            "attempts: {remedies: {oops: stop}}\nregister:",
            "attempts.remedies.oops: must be 'preempted'",
        ),
        (
            "register:",
            "attempts: {remedies: {canceled: resume}}\nregister:",
            "attempts: remedies.canceled must not start another attempt",
        ),
        (
            "register:",
            "attempts: {max_node_hours: 1.5}\nregister:",
            "the file: attempts.max_node_hours must be at least 2: num_nodes times timeout_s",
        ),
        (
            "at_least: 0.95",
            "atleast: 0.95",
            "register.require.0.atleast: is unknown, got 0.95; did you mean at_least?",
        ),
        ("- topic", "- topik", "notify.0: must be topic, or webhook: or apprise: and the app setting"),
        (
            "webhook: LANDFALL_WEBHOOK_PEOPLE",
            "webhook: https://x",
            "notify.1.webhook: must be the name of an app setting",
        ),
        (
            "- topic",
            "- apprise: LANDFALL_TEAM\n    quiet_hours: {begin: '20:00', end: 700, zone: UTC}",
            'notify.0.quiet_hours.end: must be a time from "00:00" to "23:59", in quotes',
        ),
    ],
)
def test_an_error_names_file_field_problem_and_value(old: str, new: str, problem: str) -> None:
    """The message is enough to correct the file."""
    assert any(found.startswith(f"digits.yaml: {problem}") for found in problems(old, new))


def test_a_script_is_our_module_or_a_file_beside_the_pipelines() -> None:
    """Any other path is refused."""
    assert problems("train:\n  cluster", "train:\n  script: ../../x.py\n  cluster")
    assert "scripts/x.py" == read_pipeline(own_script(PIPELINE)).train.script


def test_a_script_of_ones_own_gets_arguments_instead_of_options() -> None:
    """What would have no effect is refused, on both sides; so is what Azure ML would read otherwise."""

    def found(text: str, line: str) -> str:
        with pytest.raises(PipelineError) as caught:
            read_pipeline(text.replace("  num_nodes", f"  {line}\n  num_nodes"))
        return str(caught.value)

    named = own_script(PIPELINE)
    added = named.replace("  num_nodes", "  arguments: [--rate, '0.1', \"it's $HOME\"]\n  num_nodes")
    assert ("--rate", "0.1", "it's $HOME") == read_pipeline(added).train.arguments
    assert "train: options would have no effect: your own script" in found(named, "options: {epochs: 3}")
    assert "train: arguments would have no effect: Landfall's" in found(PIPELINE, "arguments: [--rate]")
    assert "train.arguments.0: must be a text without line" in found(named, "arguments: ['${{inputs.data}}']")


@pytest.mark.parametrize(
    ("features", "options", "label"),
    [
        ("age: {kind: int64}\n    label: {kind: int64}", "{}", "label"),
        ("age: {kind: int64}\n    kind: {kind: int64}", "{label_feature: kind}", "kind"),
        (
            "age: {kind: int64}\n    kind: {kind: int64}\n    x: {kind: float}\n  label_feature: age",
            "{label_feature: kind}",
            "age",
        ),
        ("age: {kind: int64}\n    label: {kind: bytes}", "{}", "age"),
        ("age: {kind: int64}\n    label: {kind: int64, shape: [2]}", "{}", "age"),
    ],
)
def test_the_label_of_drift_is_the_one_that_is_trained_on(features: str, options: str, label: str) -> None:
    """Another number of the records would be compared in silence; a file that states one is right."""
    image = "    image: {kind: float, shape: [2, 2, 1]}\n"
    text = PIPELINE.replace(image, "").replace("label: {kind: int64, minimum: 0, maximum: 9}", features)
    text = text.replace("options: {epochs: 3, per_process_batch_size: 1}", f"options: {options}")
    assert label == parse_pipeline(text.encode(), "x.yaml").data.requirements().label


def test_another_launcher_is_for_scripts_of_ones_own() -> None:
    """Horovod connects Landfall's training; and what a launcher sets to tell ranks apart, no pipeline sets."""

    def found(text: str, line: str) -> str:
        with pytest.raises(PipelineError) as caught:
            read_pipeline(text.replace("  num_nodes", f"  {line}\n  num_nodes"))
        return str(caught.value)

    named = own_script(PIPELINE)
    assert "mpi" == read_pipeline(named).train.distribution
    assert "train: distribution must be mpi for Landfall's training" in found(PIPELINE, "distribution: pytorch")
    assert "train.distribution" in found(named, "distribution: horovod")
    for name, distribution in (("TF_CONFIG", "tensorflow"), ("RANK", "pytorch")):
        line = f"distribution: {distribution}"
        chosen = named.replace("  num_nodes", f"  {line}\n  num_nodes")
        assert distribution == read_pipeline(chosen).train.distribution
        lines = f"environment_variables: {{{name}: '0'}}\n  {line}"
        assert f"environment_variables must not set {name}: with distribution" in found(named, lines)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (
            "format: synthetic",
            "format: tfrecord\n  splits: [train]",
            "the file: data.format synthetic and train.options.synthetic_records need each other",
        ),
        (
            "synthetic_records: 640, ",
            "",
            "the file: data.format synthetic and train.options.synthetic_records need",
        ),
        ("format: synthetic", "format: tfrecord", "data: splits is required: name at least one, such as train"),
        (
            "format: synthetic",
            "format: synthetic\n  splits: [train]",
            "data: synthetic data have no splits",
        ),
        (
            "    model_name: {",
            "    synthetic_records: {maximum: 1000}\n    model_name: {",
            "the file: train.overrides.synthetic_records needs data.format synthetic and a minimum of at least 1",
        ),
        (
            "image_height: 32, ",
            "",
            "the file: train.options must set image_height, image_width and image_channels",
        ),
        ("notify:", "register: {model: m}\nnotify:", "the file: register is not allowed with synthetic data"),
    ],
)
def test_synthetic_data_cannot_be_mixed_with_uploaded_data(old: str, new: str, problem: str) -> None:
    """A pipeline has either synthetic records or data, and registers no model of the former."""
    assert old in synthetic.PIPELINE
    with pytest.raises(PipelineError) as caught:
        read_pipeline(synthetic.PIPELINE.replace(old, new), "speed.yaml")
    assert any(found.startswith(f"speed.yaml: {problem}") for found in caught.value.problems)


def test_synthetic_records_cannot_be_an_override_for_data() -> None:
    """A pipeline with data cannot offer synthetic records to callers."""
    offered = "epochs: {minimum: 1, maximum: 100}"
    (found,) = problems(offered, f"{offered}\n    synthetic_records: {{minimum: 1}}")
    assert "train.overrides.synthetic_records needs data.format synthetic" in found


def test_attempts_are_bounded_in_number_node_hours_and_money() -> None:
    """All fields of the section can be set."""
    text = PIPELINE.replace(
        "register:",
        "attempts:\n  max: 5\n  max_node_hours: 8\n  wait_s: 600\n  other_clusters: [landfall-a100]\n"
        "  remedies: {timeout: resume}\nregister:",
    )
    attempts = read_pipeline(text).attempts
    assert (5, 8.0, 600, ("landfall-a100",), {"timeout": "resume"}) == (
        attempts.max,
        attempts.max_node_hours,
        attempts.wait_s,
        attempts.other_clusters,
        attempts.remedies,
    )
