"""A configuration file that cannot be used is refused before anything is served."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from local_azure.event_grid.__main__ import main

SUBSCRIPTION = {"name": "s", "topic": "t", "webhook": "http://127.0.0.1:9/x"}
FILTER = {"operatorType": "StringIn", "key": "data.api", "values": ["PutBlob"]}


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ("{", "must be JSON: "),
        ("[]", "must hold a JSON object, not list"),
        ({"topics": ["t/../u"]}, "topics must be letters, digits, - and _ only, not 't/../u'"),
        ({"topics": [], "subscriptions": [SUBSCRIPTION]}, "subscription s: topic must be one of [], not 't'"),
        ({"topics": ["t"], "subscriptions": [SUBSCRIPTION | {"queue": "q"}]}, "either a queue or a webhook"),
        ({"topics": ["t"], "subscriptions": [SUBSCRIPTION] * 2}, "subscriptions must have different names"),
        (
            {"topics": ["t"], "subscriptions": [SUBSCRIPTION | {"webhook": "file:///x"}]},
            "webhook must be an http URL",
        ),
        ({"topics": ["t"], "subscriptions": [SUBSCRIPTION | {"retry_schedule_s": ["x"]}]}, "list of seconds"),
        ({"topics": ["t"], "subscriptions": [SUBSCRIPTION | {"message_ttl_s": 0}]}, "must be seconds or -1, not 0"),
        ({"topics": ["t"], "subscriptions": [SUBSCRIPTION | {"advanced_filters": [FILTER] * 26}]}, "may be 25, with"),
        (
            {"topics": ["t"], "subscriptions": [SUBSCRIPTION | {"advanced_filters": [FILTER | {"key": "topic"}]}]},
            "needs an operatorType of StringIn, StringContains, a key subject or data.MEMBER, and values",
        ),
        ({"topics": ["t"], "storage": {}}, "storage: access_log must be a text, not None"),
        (
            {"topics": ["t"], "subscriptions": [{"name": "s", "topic": "t", "queue": "q"}]},
            "storage connection AzureWebJobsStorage is not set",
        ),
    ],
)
def test_a_configuration_that_cannot_be_used_is_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], config: Any, said: str
) -> None:
    """One line that names the field, and exit code 1."""
    path = tmp_path / "config.json"
    path.write_text(config if isinstance(config, str) else json.dumps(config), encoding="utf-8")

    status = main(["--port", "0", "--config", str(path)])

    (line,) = capsys.readouterr().err.splitlines()
    assert (1, True, True) == (status, line.startswith("event grid: "), said in line), line
