from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from local_azure.functions_host.settings import (
    DevHostError,
    HostOptions,
    QueueOptions,
    app_settings,
    host_id,
    host_options,
    seconds,
)


def _write(folder: Path, name: str, content: Any) -> Path:
    text = content if isinstance(content, str) else json.dumps(content)
    (folder / name).write_text(text, encoding="utf-8")
    return folder


def test_without_host_json_the_defaults_hold(tmp_path: Path) -> None:
    """Those of the Functions host, but for the pause of an idle queue."""
    expected = QueueOptions(
        batch_size=16,
        new_batch_threshold=8,
        max_dequeue_count=5,
        visibility_timeout_s=0.0,
        max_polling_interval_s=1.0,
        message_encoding="base64",
    )

    assert HostOptions(route_prefix="api", queues=expected) == host_options(tmp_path)


def test_host_json_is_used(tmp_path: Path) -> None:
    """Route prefix and every queue option."""
    queues = {
        "batchSize": 4,
        "newBatchThreshold": 1,
        "maxDequeueCount": 2,
        "visibilityTimeout": "00:00:30",
        "maxPollingInterval": "00:00:00.25",
        "messageEncoding": "none",
    }
    _write(tmp_path, "host.json", {"extensions": {"http": {"routePrefix": "/v1/"}, "queues": queues}})

    expected = QueueOptions(
        batch_size=4,
        new_batch_threshold=1,
        max_dequeue_count=2,
        visibility_timeout_s=30.0,
        max_polling_interval_s=0.25,
        message_encoding="none",
    )
    assert HostOptions(route_prefix="v1", queues=expected) == host_options(tmp_path)


def test_a_setting_goes_before_host_json(tmp_path: Path) -> None:
    """As on the Functions host, the name is the field's path joined by two underscores; other fields stay."""
    _write(tmp_path, "host.json", {"extensions": {"queues": {"batchSize": 4, "maxDequeueCount": 2}}})
    prefix = "AzureFunctionsJobHost__extensions__queues__"
    settings = {f"{prefix}visibilityTimeout": "00:00:01", f"{prefix}maxDequeueCount": "3", "unrelated": "1"}

    queues = host_options(tmp_path, settings).queues

    assert (4, 3, 1.0) == (queues.batch_size, queues.max_dequeue_count, queues.visibility_timeout_s)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "must be JSON"),
        ([], "must hold a JSON object, not list"),
        ({"extensions": 1}, "extensions must be an object, not int"),
        ({"extensions": {"queues": {"batchSize": 33}}}, "batchSize must be a whole number from 1 to 32, not 33"),
        ({"extensions": {"queues": {"batchSize": True}}}, "batchSize must be a whole number from 1 to 32, not True"),
        (
            {"extensions": {"queues": {"messageEncoding": "utf"}}},
            "messageEncoding must be base64 or none, not 'utf'",
        ),
        ({"extensions": {"queues": {"visibilityTimeout": "30 s"}}}, "must look like 00:00:30, not '30 s'"),
    ],
)
def test_a_field_that_cannot_be_used_is_named(tmp_path: Path, content: Any, said: str) -> None:
    """The error has the file, the expected and the actual value."""
    _write(tmp_path, "host.json", content)

    with pytest.raises(DevHostError) as raised:
        host_options(tmp_path)

    assert said in str(raised.value)
    assert str(raised.value).startswith(str(tmp_path / "host.json"))


@pytest.mark.parametrize(
    ("text", "expected"), [("00:00:30", 30.0), ("01:02:03", 3723.0), ("1.00:00:00.5", 86400.5), (250, 0.25)]
)
def test_time_spans_are_read_as_dotnet_writes_them(text: object, expected: float) -> None:
    """Days and fractions included; a number is milliseconds."""
    assert expected == seconds(text)


def test_the_environment_wins_over_local_settings(tmp_path: Path) -> None:
    """Values of the file fill what the environment leaves open."""
    _write(tmp_path, "local.settings.json", {"Values": {"A": "file", "B": 2}})

    assert {"A": "environment", "B": "2"} == app_settings(tmp_path, {"A": "environment"})


def test_local_settings_must_hold_an_object(tmp_path: Path) -> None:
    """A list of values is refused."""
    _write(tmp_path, "local.settings.json", {"Values": ["A"]})

    with pytest.raises(DevHostError, match="Values must be an object, not list"):
        app_settings(tmp_path, {})


def test_apps_in_one_storage_account_have_different_ids() -> None:
    """Made from the folder, unless a setting says otherwise."""
    ids = {host_id(Path("/a/app"), {}), host_id(Path("/b/app"), {})}

    assert 2 == len(ids)
    assert "mine" == host_id(Path("/a/app"), {"AzureFunctionsWebHost__hostid": "mine"})
