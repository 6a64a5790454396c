"""docs/scripts.md: a section for each kind of script, with a script that is tested; what it says to write works."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from cli.main import landfall
from function_app.config.pipeline_files import read_pipelines
from function_app.domain.jobs import plan_run
from function_app.domain.records import Generation
from function_app.planning.job_body import job_body
from local_azure.azure_ml.api.call import violations
from tests.support.world import VERSION, WORKSPACE

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "scripts.md").read_text(encoding="utf-8")
TESTED = ROOT / "tests" / "twin" / "own_scripts"
KINDS = {
    "Your own training loop with Horovod": "small.py",
    "A Keras `fit` with Horovod, for Keras 2": "keras2_fit.py",
    "An estimator, or another script of TensorFlow 1": "tf1_estimator.py",
    "A script with TensorFlow's strategies": "multi_worker.py",
    "A script with PyTorch, DeepSpeed or the like": "sockets.py",
    "A script that DeepSpeed's launcher starts": "start_deepspeed.py",
}
SNIPPETS = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
BROUGHT = {
    "scripts/mine.py": "",
    "scripts/start_deepspeed.py": "",
    "weights.h5": "w",
    "vocab/words.txt": "a",
    "environments/mine.txt": "numpy==2.0.2\n",
}
"""What the snippets name."""
CLOSING = Generation(
    dataset_version=VERSION,
    number=1,
    fingerprint="f" * 64,
    manifest_path="manifests/digits/v1/g1-ffffffffffff.json",
    num_shards=3,
    num_records=30,
    closed_at=datetime(2026, 11, 20, tzinfo=UTC),
)


def test_each_kind_of_script_has_a_section_with_a_script_that_is_tested() -> None:
    """The scripts of the twin's tests, no more and no fewer."""
    assert {path.name for path in TESTED.glob("*.py")} == set(KINDS.values())
    sections = dict(part.split("\n", 1) for part in PAGE.split("\n## ")[1:])
    assert [] == [kind for kind, name in KINDS.items() if f"own_scripts/{name}`" not in sections.get(kind, "")]
    assert {"A notebook", "A job of Azure Batch AI", "When not to distribute"} <= set(sections)


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_each_snippet_makes_a_pipeline_that_is_in_service(tmp_path: Path, snippet: str) -> None:
    """The files that it names exist beside it, and the strict check of job bodies accepts its job."""
    for name, content in BROUGHT.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content, encoding="utf-8")
    shipped = ROOT / "pipelines"
    (tmp_path / "clusters.yaml").write_bytes((shipped / "clusters.yaml").read_bytes())
    pipeline: dict[str, Any] = yaml.safe_load((shipped / "digits.yaml").read_text(encoding="utf-8"))
    train = {name: pipeline["train"][name] for name in ("cluster", "num_nodes", "timeout_s")}
    pipeline["train"] = {**train, **yaml.safe_load(snippet)["train"]}
    (tmp_path / "digits.yaml").write_text(yaml.safe_dump(pipeline), encoding="utf-8")
    found = read_pipelines(tmp_path)
    assert ({}, ["digits"]) == (found.out_of_service, [*found.pipelines])
    body = job_body(plan_run(found.pipelines["digits"], CLOSING, WORKSPACE).spec, WORKSPACE)
    assert [] == violations("jobs", body)
    kind = {"tensorflow": "TensorFlow", "pytorch": "PyTorch"}.get(pipeline["train"].get("distribution"), "Mpi")
    assert kind == body["properties"]["distribution"]["distributionType"]


def test_the_page_has_snippets_of_each_way_to_start_a_script() -> None:
    """Otherwise the test of the snippets would test nothing."""
    trains = [yaml.safe_load(snippet)["train"] for snippet in SNIPPETS]
    assert {"tensorflow", "pytorch"} <= {train.get("distribution") for train in trains}
    assert {"files", "environment", "environment_variables"} <= {name for train in trains for name in train}


@pytest.mark.parametrize("line", sorted(set(re.findall(r"`landfall ([^`]+)`", PAGE))))
def test_each_command_exists_with_its_options(line: str) -> None:
    """The options are used as the page states them."""
    command: click.Command = landfall
    words = line.split()
    while isinstance(command, click.Group):
        found = command.get_command(click.Context(command), words.pop(0))
        assert found is not None, line
        command = found
    known = {option for parameter in command.params for option in parameter.opts}
    assert set() == {word for word in words if word.startswith("--")} - known
