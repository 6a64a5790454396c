"""Reading pipeline files: the folder, hostile YAML, and scripts."""

from __future__ import annotations

from pathlib import Path

import pytest

from function_app.config.pipeline_files import load_pipelines, parse_pipeline, read_pipelines
from function_app.config.yaml_text import MAX_FILE_BYTES
from function_app.domain.errors import PipelineError
from shared.manifest import FeatureSpec
from tests.support.world import CLUSTERS, PIPELINE, own_script

ROOT = Path(__file__).resolve().parents[4]


def test_a_missing_script_is_reported(tmp_path: Path) -> None:
    """The error names the pipeline file and the script; with the script the pipelines load."""
    (tmp_path / "of-the-bank.yml").write_text(own_script(PIPELINE))
    (tmp_path / "clusters.yaml").write_text(CLUSTERS)
    with pytest.raises(PipelineError) as caught:
        load_pipelines(tmp_path)
    assert (
        "of-the-bank.yml: train.script: scripts/x.py does not exist in this folder (line 13)",
    ) == caught.value.problems
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "x.py").write_text("")
    assert {"digits": "of-the-bank.yml"} == {name: one.file_name for name, one in load_pipelines(tmp_path).items()}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"a: &x 1\nb: *x", "aliases are not allowed, line 2, column 4"),
        (b"[" * 10_000, "nested more than 20 levels deep"),
        (b"a: 1\na: 2", "key 'a' is repeated, line 2, column 1"),
        (b"1: 2", "keys must be texts, got '1', line 1, column 1"),
        (b"a: .nan", ": a: must be a finite number, got nan"),
        (b"a: [1, 1%s]" % (b"0" * 309), ": a.1: must be a finite number, got 1000"),
        (b"!!python/object:os.system {}", "could not determine a constructor"),
        (b"a: !!bool maybe", "'maybe' is not a value of !!bool, line 1, column 4"),
        (b"a: !!int ''", "'' is not a value of !!int, line 1, column 4"),
        (b"a: !!float 1:x", "'1:x' is not a value of !!float, line 1, column 4"),
        (b"a: !!map x", "expected a mapping, line 1, column 4"),
        (b"a: !!set [b]", "expected a mapping, line 1, column 4"),
        (b"- 1", "must be an object"),
        (b"", "must be an object, got null"),
        (b"\x00", "special characters are not allowed"),
        (b"a" * (MAX_FILE_BYTES + 1), f"the file is larger than {MAX_FILE_BYTES} bytes"),
    ],
)
def test_hostile_yaml_is_refused(text: bytes, problem: str) -> None:
    """Aliases expand without bound, a repeated key hides the first, and objects run code."""
    with pytest.raises(PipelineError, match=r"^x\.yaml: ") as caught:
        parse_pipeline(text, "x.yaml")
    assert problem in str(caught.value)


@pytest.mark.parametrize("text", ["1e-3", "1E-3", "1.0e-3", "0.001", "+1e-03", ".1e-2"])
def test_a_number_with_an_exponent_is_a_number(text: str) -> None:
    """YAML 1.2 says so; PyYAML implements YAML 1.1 and reads 1e-3 as a text."""
    changed = PIPELINE.replace("epochs: 3,", f"epochs: 3, learning_rate: {text},")
    assert 0.001 == parse_pipeline(changed.encode(), "x.yaml").train.options.learning_rate


@pytest.mark.parametrize("text", ["010", "-007", "1_000", "1:30", "1:30.5", "1_0.5"])
def test_a_number_that_yaml_versions_read_differently_is_refused(text: str) -> None:
    """010 is 8 to one reader and 10 to another, and 1:30 is 90."""
    with pytest.raises(PipelineError, match=r"is ambiguous: write a number without leading .*, line 1, column 4$"):
        parse_pipeline(f"a: {text}".encode(), "x.yaml")


def test_two_pipelines_for_one_dataset_are_an_error(tmp_path: Path) -> None:
    """A shard has to meet the requirements of one pipeline."""
    (tmp_path / "clusters.yaml").write_text(CLUSTERS)
    (tmp_path / "a.yaml").write_text(PIPELINE)
    (tmp_path / "b.yml").write_text(PIPELINE.replace("pipeline: digits", "pipeline: other"))
    with pytest.raises(PipelineError) as caught:
        load_pipelines(tmp_path)
    assert ("b.yml: dataset: a.yaml already has the pipeline of dataset digits (line 3)",) == caught.value.problems


def test_all_invalid_files_of_a_folder_are_reported(tmp_path: Path) -> None:
    """One error lists the problems of all files."""
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text("pipeline: x")
    with pytest.raises(PipelineError) as caught:
        load_pipelines(tmp_path)
    assert {"a.yaml", "b.yaml"} == {problem.split(":")[0] for problem in caught.value.problems}


def test_what_a_file_says_of_features_is_shown_safely(tmp_path: Path) -> None:
    """Names come from the file, and problems go to logs, terminals and recipients."""
    named = PIPELINE.replace(
        "epochs: 3,", 'epochs: 3, image_feature: "\\e[31m", label_feature: "https://h.example/SECRET",'
    )
    (tmp_path / "digits.yaml").write_text(named)
    (tmp_path / "clusters.yaml").write_text(CLUSTERS)
    problems = read_pipelines(tmp_path).out_of_service["digits"]
    assert (2, True, False) == (len(problems), all(map(str.isprintable, problems)), "SECRET" in str(problems))


def test_a_missing_folder_is_reported(tmp_path: Path) -> None:
    """An app without pipelines would ignore every event, so it must not start."""
    with pytest.raises(PipelineError, match="the folder with the pipeline files does not exist"):
        load_pipelines(tmp_path / "absent")


def test_the_shipped_pipelines_are_valid() -> None:
    """Users copy the pipelines in this repository."""
    digits = load_pipelines(ROOT / "pipelines")["digits"]
    assert ("digits", ("train", "validation"), 2, 1) == (
        digits.pipeline,
        digits.data.splits,
        digits.train.num_nodes,
        digits.machines.processes_per_node,
    )
    image = FeatureSpec(name="image", kind="bytes", encoding="png", shape=(8, 8, 1))
    assert image == digits.data.requirements().features[0]
    assert ("topic", "webhook:LANDFALL_WEBHOOK_PEOPLE") == tuple(one.name for one in digits.notify)


BARE_KEY = "SECRET" * 14 + "=="
"""As long as the key of a storage account, with nothing around it that would show what it is."""


@pytest.mark.parametrize(
    "entry",
    [
        "  - webhook: https://h.example/SECRET?sig=SECRET",
        "  - https://h.example/SECRET?sig=SECRET",
        "  - webhook:h.example/SECRET",
        "  - webhook: SECRET_key",
        "  - {teams: https://h.example/SECRET}",
        "  - 'https://h.example/SECRET': [1, 'https://h.example/SECRET'",
        "  - webhook: h.example/SECRET: x: y",
        "webhook_url: https://h.example/SECRET?sig=SECRET",
        "AccountName=a;AccountKey=SECRET==: x",
        f"{BARE_KEY}: x",
        f"quarantine: {BARE_KEY}",
    ],
)
def test_a_secret_in_a_pipeline_file_is_not_repeated(entry: str) -> None:
    """A webhook's address where the name of its setting belongs, below notify or anywhere else."""
    with pytest.raises(PipelineError) as caught:
        parse_pipeline(PIPELINE.replace("  - topic", entry).encode(), "digits.yaml")
    assert ("digits.yaml: ", False) == (str(caught.value)[:13], "SECRET" in str(caught.value))


@pytest.mark.parametrize("line", ["on_change: notify", "cluster: landfall-gpu", "epochs: {min", "dataset: digits\n"])
def test_a_bare_key_in_a_pipeline_file_is_not_repeated(line: str) -> None:
    """This holds for values and option names; the message has its length, so that it can be found."""
    name, separator, rest = line.partition(":")
    changed = f"{BARE_KEY}:{rest}" if "{" in rest else f"{name}{separator} {BARE_KEY}\n"
    with pytest.raises(PipelineError) as caught:
        parse_pipeline(PIPELINE.replace(line, changed, 1).encode(), "digits.yaml")
    words = str(caught.value)
    assert ("digits.yaml: ", False, True) == (
        words[:13],
        "SECRET" in words,
        f"of {len(BARE_KEY)} characters" in words,
    )
