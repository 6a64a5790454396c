"""The composition root: what it needs to be told, and that it asks nobody anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from function_app.bootstrap import build_services
from function_app.errors import PipelineError, SettingsError
from tests.support.world import PIPELINE
from tests.unit.function_app.test_settings import REQUIRED

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
