"""`landfall smoke`: its exit status and its report, also where it is interrupted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from cli.errors import CliError
from cli.main import landfall
from cli.smoke import command
from cli.smoke.assertions import ASSERTIONS
from tests.unit.cli.smoke.deployment import REPORT, VERSION, Deployment
from tests.unit.cli.smoke.test_removal import Archive


@pytest.fixture
def deployment(monkeypatch: pytest.MonkeyPatch) -> Deployment:
    """A deployment that the command finds."""
    made = Deployment()

    @contextmanager
    def uploader(_account: str, _container: str) -> Iterator[Any]:
        yield SimpleNamespace(container=made.data, has=lambda _prefix: False)

    monkeypatch.setattr("cli.options.api_client", lambda _url, _key: made.api())
    monkeypatch.setattr(command, "open_uploader", uploader)
    monkeypatch.setattr(command, "new_version", lambda _now, _is_taken: VERSION)
    monkeypatch.setattr("cli.deploy.workspace.AzureMlWorkspace.open", Archive().open)
    return made


def smoke(folder: Path, *more: str) -> tuple[Result, dict[str, Any]]:
    arguments = ["smoke", "--report", str(folder), "--account-url", "https://my.blob.core.windows.net", *more]
    result = CliRunner().invoke(landfall, arguments, standalone_mode=False)
    return result, json.loads((folder / "smoke.json").read_text())


def test_where_all_holds_the_exit_status_is_0(deployment: Deployment, tmp_path: Path) -> None:
    """The report has every assertion, and nothing is left in the container."""
    result, report = smoke(tmp_path)
    assert (0, "passed", None) == (result.return_value, report["outcome"], report["error"])
    assert [(assertion.name, "passed") for assertion in ASSERTIONS] == [
        (c["name"], c["outcome"]) for c in report["assertions"]
    ]
    assert ({}, f"landfall-smoke/{VERSION}") == (deployment.data.blobs, report["dataset_version"])
    assert "Every assertion holds; the report is" in result.stdout


def test_with_json_standard_output_has_the_report_alone(deployment: Deployment, tmp_path: Path) -> None:
    """Programs read it; people read standard error."""
    assert {} == deployment.data.blobs
    result, report = smoke(tmp_path, "--json")
    assert report == json.loads(result.stdout)
    assert "Every assertion holds; the report is" in result.stderr


def test_where_something_does_not_hold_it_is_1(deployment: Deployment, tmp_path: Path) -> None:
    """The report has what was seen, what was expected, and what to do."""
    deployment.report = REPORT | {"world_size": 1}
    result, report = smoke(tmp_path)
    assert (1, "failed") == (result.return_value, report["outcome"])
    [failed] = [assertion for assertion in report["assertions"] if assertion["outcome"] == "failed"]
    assert ("world_size", "1 ranks", True) == (failed["name"], failed["seen"], "Open MPI" in failed["fix"])


def test_an_app_that_fails_midway_leaves_a_report_and_no_uploads(deployment: Deployment, tmp_path: Path) -> None:
    """The error is the command's, and stands in the report."""
    deployment.fails_at = "GET /api/runs/run-training"
    result, report = smoke(tmp_path)
    assert isinstance(result.exception, CliError)
    assert ("failed", {}) == (report["outcome"], deployment.data.blobs)
    assert "the app is broken" in report["error"]


def test_an_answer_that_lacks_something_is_an_error(deployment: Deployment, tmp_path: Path) -> None:
    """An app of another version causes no stack trace, and a report is written."""
    deployment.pipelines = [{"dataset": "landfall-smoke", "state": "in_service"}]
    result, report = smoke(tmp_path)
    assert isinstance(result.exception, CliError)
    assert "the answer lacks 'machines'" in result.exception.message
    assert "KeyError('machines')" in report["error"]


def test_an_interruption_cancels_and_removes(deployment: Deployment, tmp_path: Path) -> None:
    """What costs money is ended, and the report says how far it came."""
    deployment.interrupts_at = "POST /api/runs/run-canceled/cancel"
    result, report = smoke(tmp_path)
    assert isinstance(result.exception, click.Abort)
    assert ("failed", {}, "canceled") == (
        report["outcome"],
        deployment.data.blobs,
        deployment.runs["run-canceled"]["state"],
    )
    assert "interrupted" in report["error"]


def test_gpus_are_refused_before_anything_is_uploaded(deployment: Deployment, tmp_path: Path) -> None:
    """They are refused because no pipeline has any."""
    deployment.pipelines = [{**deployment.pipelines[0], "splits": ["train", "validation"]}]
    arguments = ["smoke", "--gpu", "--report", str(tmp_path), "--account-url", "https://my.blob.core.windows.net"]
    result = CliRunner().invoke(landfall, arguments, standalone_mode=False)
    assert isinstance(result.exception, CliError)
    assert "no cluster has a GPU" in result.exception.message
    assert ({}, []) == (deployment.data.blobs, list(tmp_path.iterdir()))
