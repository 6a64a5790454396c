from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.event_grid import start_event_grid_process

SUBSCRIPTION = {"name": "s", "topic": "t", "webhook": "http://127.0.0.1:9/x"}


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ("{", "should be JSON, is not: "),
        ("[]", "should hold a JSON object, holds list"),
        ({"topics": ["t/../u"]}, "topics should be letters, digits, - and _ only, is 't/../u'"),
        ({"topics": [], "subscriptions": [SUBSCRIPTION]}, "subscription s: topic should be one of [], is 't'"),
        ({"topics": ["t"], "subscriptions": [SUBSCRIPTION | {"queue": "q"}]}, "either a queue or a webhook"),
        ({"topics": ["t"], "subscriptions": [SUBSCRIPTION] * 2}, "subscriptions should have different names"),
        (
            {"topics": ["t"], "subscriptions": [SUBSCRIPTION | {"webhook": "file:///x"}]},
            "webhook should be an http URL",
        ),
        ({"topics": ["t"], "subscriptions": [SUBSCRIPTION | {"retry_schedule_s": ["x"]}]}, "list of seconds"),
        ({"topics": ["t"], "storage": {}}, "storage: access_log should be a text, is None"),
        (
            {"topics": ["t"], "subscriptions": [{"name": "s", "topic": "t", "queue": "q"}]},
            "storage connection AzureWebJobsStorage should be a connection string",
        ),
    ],
)
def test_a_configuration_that_cannot_be_used_is_explained(tmp_path: Path, config: Any, said: str) -> None:
    """One line that names the field, and exit code 1."""
    path = tmp_path / "config.json"
    path.write_text(config if isinstance(config, str) else json.dumps(config), encoding="utf-8")

    process = start_event_grid_process(path, {})

    assert 1 == process.popen.wait(30)
    (line,) = process.output().splitlines()
    assert line.startswith("event grid: ")
    assert said in line
