"""The composition root: which settings it needs, and that it sends no request."""

from __future__ import annotations

from pathlib import Path

import pytest

from function_app.bootstrap import build_services
from function_app.domain.errors import PipelineError, SettingsError
from horovod_lint import ScriptError
from tests.support.world import PIPELINE
from tests.unit.function_app.config.test_settings import REQUIRED

CONNECTION = "DefaultEndpointsProtocol=http;AccountName=a;AccountKey=a2V5;BlobEndpoint=http://127.0.0.1:1/a"


def environ(tmp_path: Path, **changes: str) -> dict[str, str]:
    """Settings that are complete, with pipelines in a folder of the test."""
    (tmp_path / "digits.yaml").write_text(PIPELINE)
    complete = REQUIRED | {
        "AzureWebJobsStorage": CONNECTION,
        "DataStorage": CONNECTION,
        "LANDFALL_PIPELINES_DIR": str(tmp_path),
        "LANDFALL_NOTIFICATION_TOPIC_ENDPOINT": "https://topic.example.com/api/events",
        "LANDFALL_WEBHOOK_PEOPLE": "https://people.example.com/hook",
    }
    return {name: value for name, value in (complete | changes).items() if value}


def test_services_are_built_without_asking_any_service(tmp_path: Path) -> None:
    """Nothing listens at the addresses of this test."""
    services = build_services(environ(tmp_path))
    assert ["digits"] == list(services.pipelines)
    assert ["topic", "webhook:LANDFALL_WEBHOOK_PEOPLE"] == list(services.notifiers)


def test_scripts_are_read_beside_the_pipelines(tmp_path: Path) -> None:
    """One that is gone since the start is an error that names it."""
    services = build_services(environ(tmp_path))
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "mine.py").write_text("pass")
    assert b"pass" == services.read_script("scripts/mine.py")
    with pytest.raises(ScriptError, match=r"^scripts/other\.py: cannot be read from the folder of the pipelines"):
        services.read_script("scripts/other.py")


def test_what_is_wrong_anywhere_is_reported_together(tmp_path: Path) -> None:
    """Settings, connections and the addresses that pipelines name, in one list."""
    changes = {"DataStorage": "", "LANDFALL_NOTIFICATION_TOPIC_ENDPOINT": "", "LANDFALL_WEBHOOK_PEOPLE": ""}
    with pytest.raises(SettingsError) as caught:
        build_services(environ(tmp_path, **changes))
    words = [problem.split(" ", 1)[0] for problem in caught.value.problems]
    assert ["DataStorage", "LANDFALL_NOTIFICATION_TOPIC_ENDPOINT", "LANDFALL_WEBHOOK_PEOPLE"] == words


def test_a_wrong_pipeline_is_a_pipeline_error(tmp_path: Path) -> None:
    """The settings are right then, and the message is about files."""
    settings = environ(tmp_path)
    (tmp_path / "digits.yaml").write_text("pipeline: x")
    with pytest.raises(PipelineError, match=r"^digits.yaml: dataset: is required"):
        build_services(settings)


@pytest.mark.parametrize("container", ["datasets", "landfall", "runs"])
def test_quarantine_needs_a_container_of_its_own(tmp_path: Path, container: str) -> None:
    """Copies of rejected shards among the shards would be uploads of shards."""
    settings = environ(tmp_path)
    (tmp_path / "digits.yaml").write_text(f"{PIPELINE}\nquarantine: {container}\n")
    with pytest.raises(PipelineError, match="pipeline digits: quarantine is one of Landfall's own containers"):
        build_services(settings)


def test_the_budget_of_a_validation_is_a_setting(tmp_path: Path) -> None:
    """Twenty minutes by default: an execution may take thirty."""
    budgets = [
        build_services(environ(tmp_path, LANDFALL_VALIDATION_BUDGET_S=b)).time_budget.budget_s for b in ("", "60")
    ]
    assert [1200, 60] == budgets


def test_a_budget_longer_than_an_execution_is_refused_at_start_up(tmp_path: Path) -> None:
    """The host would kill each execution before it hands over, and nothing would ever be judged."""
    with pytest.raises(SettingsError, match=r"^LANDFALL_VALIDATION_BUDGET_S must be at most 1350, .* got 1800$"):
        build_services(environ(tmp_path, LANDFALL_VALIDATION_BUDGET_S="1800"))
