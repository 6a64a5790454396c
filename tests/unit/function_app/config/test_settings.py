"""App settings: defaults, checks, and everything that is wrong at once."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from function_app.config.settings import read_settings, read_url
from function_app.domain.errors import SettingsError

_ARM = "/subscriptions/s/resourceGroups/r/providers/Microsoft.MachineLearningServices/workspaces/w"
REQUIRED = {
    "LANDFALL_SUBSCRIPTION_ID": "00000000-0000-0000-0000-000000000000",
    "LANDFALL_RESOURCE_GROUP": "landfall",
    "LANDFALL_WORKSPACE": "landfall",
    "LANDFALL_ENVIRONMENT_ID": f"{_ARM}/environments/landfall-training/versions/1",
    "LANDFALL_CODE_ID": f"{_ARM}/codes/landfall-training/versions/1",
}


def test_what_is_not_set_has_its_default() -> None:
    """Only what nobody can guess is required."""
    settings = read_settings(REQUIRED)
    seen = (settings.data_container, settings.state_container, settings.runs_container, settings.pipelines_dir)
    assert ("datasets", "landfall", "runs", Path("pipelines")) == seen
    assert (None, None, timedelta(seconds=120)) == (settings.topic_endpoint, settings.client_id, settings.sweep_grace)


def test_all_that_is_missing_is_reported_at_once() -> None:
    """One start, one list; nobody deploys five times to find five settings."""
    with pytest.raises(SettingsError) as caught:
        read_settings({})
    assert sorted(REQUIRED) == sorted(problem.split(" ", 1)[0] for problem in caught.value.problems)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("LANDFALL_SUBSCRIPTION_ID", "mine"),
        ("LANDFALL_RESOURCE_GROUP", "a/b"),
        ("LANDFALL_ENVIRONMENT_ID", "landfall-training:1"),
        ("LANDFALL_CODE_ID", f"{_ARM}/codes/landfall-training"),
        ("LANDFALL_DATA_CONTAINER", "Datasets"),
        ("LANDFALL_DATA_DATASTORE", "a-b"),
        ("LANDFALL_NOTIFICATION_TOPIC_ENDPOINT", "http://example.com/topic"),
        ("LANDFALL_NOTIFICATION_TOPIC_ENDPOINT", "https://"),
        ("LANDFALL_NOTIFICATION_TOPIC_ENDPOINT", "https://[::1/"),
        ("LANDFALL_SWEEP_GRACE_S", "-1"),
        ("LANDFALL_SWEEP_GRACE_S", "soon"),
        ("LANDFALL_MAX_CONCURRENT_RUNS", "0"),
        ("LANDFALL_MAX_CONCURRENT_RUNS", "1001"),
        ("LANDFALL_PIPELINES_DIR", "x" * 3000),
        ("AZURE_CLIENT_ID", "me"),
    ],
)
def test_a_wrong_setting_is_named(name: str, value: str) -> None:
    """The name of the setting begins the message."""
    with pytest.raises(SettingsError, match=f"^{name} "):
        read_settings(REQUIRED | {name: value})


def test_arm_ids_compare_without_case() -> None:
    """Azure itself writes resourceGroups and resourcegroups."""
    code_id = REQUIRED["LANDFALL_CODE_ID"].replace("resourceGroups", "resourcegroups")
    assert code_id == read_settings(REQUIRED | {"LANDFALL_CODE_ID": code_id}).workspace.code_id


def test_a_secret_address_is_not_repeated() -> None:
    """Whoever has a webhook's address may post to it."""
    with pytest.raises(SettingsError) as caught:
        read_url({"LANDFALL_WEBHOOK_PEOPLE": "http://example.com/secret"}, "LANDFALL_WEBHOOK_PEOPLE")
    assert "secret" not in str(caught.value)


def test_the_key_is_not_in_the_settings_own_text() -> None:
    """Settings end up in logs."""
    assert "hush" not in repr(read_settings(REQUIRED | {"LANDFALL_NOTIFICATION_TOPIC_KEY": "hush"}))


def test_an_address_on_this_machine_may_be_plain() -> None:
    """That is where the local twin listens."""
    assert "http://127.0.0.1:7000/x" == read_url({"X": "http://127.0.0.1:7000/x"}, "X")
