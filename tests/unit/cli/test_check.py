"""`landfall check`: mistakes in pipeline files are found before a deployment, with file, field, line and fix."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from cli.main import landfall
from tests.support.world import own_script
from tests.unit.cli.pipeline_mistakes import CLUSTERS, MISTAKES, PIPELINE, Mistake

FILE = "cats.yaml"


def folder(tmp_path: Path, pipeline: str = PIPELINE, clusters: str = CLUSTERS) -> Path:
    """Write a pipeline file and its clusters; return the file."""
    (tmp_path / "clusters.yaml").write_text(clusters)
    (tmp_path / FILE).write_text(pipeline)
    return tmp_path / FILE


def checked(*arguments: str | Path) -> tuple[int, str]:
    """Run the command; return its exit status and what it prints."""
    ended = CliRunner().invoke(landfall, ["check", *map(str, arguments)], prog_name="landfall")
    return ended.exit_code, ended.output


def test_the_list_has_at_least_fifty_different_mistakes() -> None:
    """It is a promise of the documentation."""
    assert len({(mistake.before, mistake.after) for mistake in MISTAKES}) == len(MISTAKES) >= 50


def test_the_pipeline_without_a_mistake_can_be_used(tmp_path: Path) -> None:
    """Each message of the other tests is therefore about its mistake."""
    status, output = checked(folder(tmp_path))
    assert (0, True) == (status, output.startswith(f"usable  {tmp_path / FILE}  (dataset cats, splits train,")), (
        output
    )


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.after.strip()[:40])
def test_a_mistake_is_found_with_file_field_and_fix(tmp_path: Path, mistake: Mistake) -> None:
    """The mistake is not found only on a node that is paid for."""
    assert mistake.before in PIPELINE
    status, output = checked(folder(tmp_path, PIPELINE.replace(mistake.before, mistake.after, 1)))
    problems = [line.strip() for line in output.splitlines()[1:]]
    found = [line for line in problems if line.startswith(f"{FILE}: {mistake.field}: ") and mistake.words in line]
    assert (1, True) == (status, bool(found)), output


OF_FIELDS = [one for one in MISTAKES if one.field not in ("not valid YAML", "the file")]


@pytest.mark.parametrize("mistake", OF_FIELDS, ids=lambda mistake: mistake.after.strip()[:40])
def test_a_message_ends_with_the_line_of_its_field(tmp_path: Path, mistake: Mistake) -> None:
    """A field that is missing has the line of its section; one of the outermost level has none."""
    text = PIPELINE.replace(mistake.before, mistake.after, 1)
    _, output = checked(folder(tmp_path, text))
    line = next(line for line in output.splitlines() if f"{FILE}: {mistake.field}: " in line)
    section = mistake.field.split(".")[0]
    lines = [number for number, each in enumerate(text.splitlines(), 1) if each.startswith(f"{section}:")]
    if lines:
        assert int(line.rpartition("(line ")[2].rstrip(")")) >= lines[0], line
    else:
        assert "(line" not in line


def test_a_line_is_the_fields_own(tmp_path: Path) -> None:
    """Counted from 1, as editors do."""
    _, output = checked(folder(tmp_path, PIPELINE.replace("    epochs: 3", "    epochs: 3\n    image_feature: img")))
    assert f"{FILE}: train.options.image_feature: " in output
    assert output.rstrip().endswith("did you mean image? (line 18)")


def test_every_problem_of_a_file_is_listed_at_once(tmp_path: Path) -> None:
    """A wrong cluster hides no wrong feature."""
    text = PIPELINE.replace("cluster: gpu", "cluster: none").replace("epochs: 3", "image_feature: x")
    status, output = checked(folder(tmp_path, text))
    assert 1 == status
    assert ["train.cluster", "train.options.image_feature"] == [
        line.split(": ")[1] for line in output.splitlines()[1:]
    ]


def test_a_wrong_clusters_file_is_named(tmp_path: Path) -> None:
    """Every pipeline beside it is out of service until it is corrected."""
    status, output = checked(folder(tmp_path, clusters=CLUSTERS.replace("NC24ads", "NC24adss")))
    assert (1, True) == (status, "clusters.yaml: gpu.sizes.0.vm_size: must be an Azure VM size; did you" in output)


def test_a_folder_is_checked_whole(tmp_path: Path) -> None:
    """Two files for one dataset are a mistake that neither shows by itself."""
    folder(tmp_path)
    (tmp_path / "copy.yaml").write_text(PIPELINE.replace("pipeline: cats", "pipeline: dogs"))
    status, output = checked(tmp_path)
    assert (1, True) == (status, "copy.yaml: dataset: cats.yaml already has the pipeline of dataset cats" in output)


def test_a_script_of_ones_own_is_linted(tmp_path: Path) -> None:
    """Its job would not be submitted."""
    path = folder(tmp_path, own_script(PIPELINE).replace("x.py", "mine.py"))
    assert "scripts/mine.py does not exist in this folder (line 11)" in checked(path)[1]
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "mine.py").write_text("def (:\n")
    status, output = checked(path)
    assert (1, True) == (status, f"{FILE}: train.script: scripts/mine.py" in output), output


def test_json_has_one_object_per_file(tmp_path: Path) -> None:
    """The option --json is for programs."""
    status, output = checked("--json", folder(tmp_path, "pipeline: x\n"))
    answer = json.loads(output)
    assert (1, "wrong", True) == (status, answer["verdict"], f"{FILE}: dataset: is required" in answer["problems"])


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("absent.yaml", "there is no such file or folder"),
        ("notes.txt", "ends in .yaml or .yml"),
        ("empty", "has no pipeline file"),
    ],
)
def test_other_arguments_are_wrong_usage(tmp_path: Path, name: str, problem: str) -> None:
    """Exit status 2, and what to pass instead."""
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "empty").mkdir()
    status, output = checked(tmp_path / name)
    assert (2, True) == (status, problem in output), output


def test_a_hostile_file_is_shown_without_escapes_and_secrets(tmp_path: Path) -> None:
    """What a terminal would obey is spelt out."""
    status, output = checked(folder(tmp_path, PIPELINE + "\x1b[31m: x\n"))
    assert (1, False) == (status, "\x1b" in output)
    _, output = checked(folder(tmp_path, PIPELINE.replace("- topic", "- webhook: https://h.example/SECRET")))
    assert "SECRET" not in output
    status, output = checked(folder(tmp_path, "a: " + "b" * (1 << 20)))
    assert (1, True) == (status, "larger than" in output)
