"""Pipeline files: what they may say, and how errors in them are worded."""

from __future__ import annotations

from pathlib import Path

import pytest

from function_app.config.pipeline_files import MAX_FILE_BYTES, load_pipelines, parse_pipeline
from function_app.domain.errors import PipelineError
from shared.example_schema import FeatureSpec
from tests.support import synthetic
from tests.support.world import PIPELINE

ROOT = Path(__file__).resolve().parents[4]


def problems(old: str, new: str) -> tuple[str, ...]:
    """What is wrong with the tests' pipeline once a part of it is exchanged."""
    assert old in PIPELINE
    with pytest.raises(PipelineError) as caught:
        parse_pipeline(PIPELINE.replace(old, new).encode(), "digits.yaml")
    return caught.value.problems


def test_the_shipped_pipelines_are_right() -> None:
    """What the repository carries is what users copy."""
    digits = load_pipelines(ROOT / "pipelines")["digits"]
    assert ("digits", ("train", "validation"), 2, 1) == (
        digits.pipeline,
        digits.data.splits,
        digits.train.num_nodes,
        digits.train.processes_per_node,
    )
    image = FeatureSpec(name="image", kind="bytes", encoding="png", shape=(8, 8, 1))
    assert image == digits.data.requirements().features[0]
    assert ("topic", "webhook:LANDFALL_WEBHOOK_PEOPLE") == digits.notify


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (
            "pipeline: digits",
            "pipeline: Digits",
            "pipeline: must be 1 to 63 lower-case letters, digits, - and _, got",
        ),
        ("timeout_s:", "timeouts:", "train.timeout_s: is required"),
        ("epochs: 3}", "epoch: 3}", "train.options.epoch: is unknown, got 3; did you mean epochs?"),
        ("epochs: 3}", "epochs: '3'}", "train.options.epochs: must be a valid integer, got '3'"),
        ("splits: [train, validation]", "splits: [train, train]", "data: splits must not repeat a name, got"),
        ("int64, minimum", "int64, encoding: png, minimum", "data.features.label: encoding belongs to kind bytes"),
        ("num_nodes: 2", "num_nodes: true", "train.num_nodes: must be a valid integer, got true"),
        ("compute: landfall-gpu", "compute: gpu-1", "train.compute: must be an Azure ML compute: 3 to 24 letters"),
        ("epochs: {minimum: 1, maximum: 100}", "epochs: {}", "train.overrides.epochs: must have minimum, maximum"),
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
            "register:",
            "attempts: {max_cost: 10}\nregister:",
            "the file: attempts.max_cost needs price_per_node_hour in train and in each of other_sizes",
        ),
        (
            "num_nodes: 2",
            "num_nodes: 2\n  price_per_node_hour: 0",
            "train.price_per_node_hour: must be greater than 0, got 0",
        ),
        (
            "at_least: 0.95",
            "atleast: 0.95",
            "register.require.0.atleast: is unknown, got 0.95; did you mean at_least?",
        ),
        ("- topic", "- topik", "notify.0: must be topic, or webhook: and the app setting that contains its address"),
        (
            "webhook: LANDFALL_WEBHOOK_PEOPLE",
            "webhook: https://x",
            "notify.1: must be topic, or webhook: and the app",
        ),
    ],
)
def test_an_error_names_file_field_expectation_and_sight(old: str, new: str, problem: str) -> None:
    """A person can mend the file without reading the code."""
    assert any(found.startswith(f"digits.yaml: {problem}") for found in problems(old, new))


def test_a_script_is_a_module_of_ours_or_a_file_beside_the_pipelines() -> None:
    """A pipeline names code, it does not bring any along."""
    assert problems("train:\n  compute", "train:\n  script: ../../x.py\n  compute")
    named = PIPELINE.replace("train:\n  compute", "train:\n  script: scripts/x.py\n  compute")
    assert "scripts/x.py" == parse_pipeline(named.encode(), "digits.yaml").train.script


def test_a_script_has_to_be_there(tmp_path: Path) -> None:
    """The folder's error names the pipeline's file and the script; once it is there, the pipelines load."""
    named = PIPELINE.replace("train:\n  compute", "train:\n  script: scripts/x.py\n  compute")
    (tmp_path / "digits.yaml").write_text(named)
    with pytest.raises(PipelineError) as caught:
        load_pipelines(tmp_path)
    assert ("digits.yaml: train.script: scripts/x.py does not exist in this folder",) == caught.value.problems
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "x.py").write_text("")
    assert ["digits"] == list(load_pipelines(tmp_path))


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
def test_random_pixels_never_pass_for_data(old: str, new: str, problem: str) -> None:
    """Synthetic records and data of their own exclude each other, and no model comes of the former."""
    assert old in synthetic.PIPELINE
    with pytest.raises(PipelineError) as caught:
        parse_pipeline(synthetic.PIPELINE.replace(old, new).encode(), "speed.yaml")
    assert any(found.startswith(f"speed.yaml: {problem}") for found in caught.value.problems)


def test_an_override_draws_no_pixels_instead_of_data() -> None:
    """A pipeline with data cannot offer synthetic records."""
    offered = "epochs: {minimum: 1, maximum: 100}"
    (found,) = problems(offered, f"{offered}\n    synthetic_records: {{minimum: 1}}")
    assert "train.overrides.synthetic_records needs data.format synthetic" in found


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"a: &x 1\nb: *x", "aliases are not allowed, line 2, column 4"),
        (b"[" * 10_000, "nested more than 20 levels deep"),
        (b"a: 1\na: 2", "key 'a' is repeated, line 2, column 1"),
        (b"1: 2", "keys must be texts, got '1', line 1, column 1"),
        (b"a: .nan", "Out of range float values are not JSON compliant"),
        (b"!!python/object:os.system {}", "could not determine a constructor"),
        (b"- 1", "must be an object"),
        (b"", "must be an object, got null"),
        (b"\x00", "special characters are not allowed"),
        (b"a" * (MAX_FILE_BYTES + 1), f"the file is larger than {MAX_FILE_BYTES} bytes"),
    ],
)
def test_what_yaml_could_be_abused_for_is_refused(text: bytes, problem: str) -> None:
    """Aliases grow without bound, a duplicate key hides the first, and objects run code."""
    with pytest.raises(PipelineError, match=r"^x\.yaml: ") as caught:
        parse_pipeline(text, "x.yaml")
    assert problem in str(caught.value)


def test_two_pipelines_for_one_dataset_are_an_error(tmp_path: Path) -> None:
    """Nobody could say which of them a shard has to satisfy."""
    (tmp_path / "a.yaml").write_text(PIPELINE)
    (tmp_path / "b.yml").write_text(PIPELINE.replace("pipeline: digits", "pipeline: other"))
    with pytest.raises(PipelineError) as caught:
        load_pipelines(tmp_path)
    assert ("b.yml: dataset: a.yaml already has the pipeline of dataset digits",) == caught.value.problems


def test_every_wrong_file_of_a_folder_is_reported(tmp_path: Path) -> None:
    """All of them at one start."""
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text("pipeline: x")
    with pytest.raises(PipelineError) as caught:
        load_pipelines(tmp_path)
    assert {"a.yaml", "b.yaml"} == {problem.split(":")[0] for problem in caught.value.problems}


def test_a_missing_folder_says_so(tmp_path: Path) -> None:
    """An app without pipelines would suppress every event; better not to start."""
    with pytest.raises(PipelineError, match="the folder with the pipeline files does not exist"):
        load_pipelines(tmp_path / "absent")


def test_attempts_are_bounded_in_number_node_hours_and_money() -> None:
    """Every member of the section, as a file states it."""
    text = PIPELINE.replace("num_nodes: 2", "num_nodes: 2\n  price_per_node_hour: 3.06").replace(
        "register:",
        "attempts:\n  max: 5\n  max_node_hours: 8\n  max_cost: 40\n  wait_s: 600\n"
        "  other_sizes: [{compute: landfall-a100, vm_size: Standard_ND96asr_v4, price_per_node_hour: 27.2}]\n"
        "  remedies: {timeout: resume}\nregister:",
    )
    attempts = parse_pipeline(text.encode(), "digits.yaml").attempts
    assert (5, 8.0, 40.0, 600, "landfall-a100", {"timeout": "resume"}) == (
        attempts.max,
        attempts.max_node_hours,
        attempts.max_cost,
        attempts.wait_s,
        attempts.other_sizes[0].compute,
        attempts.remedies,
    )
