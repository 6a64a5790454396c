"""App settings and their problems, and the time limit of a validation."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from function_app.config.settings import (
    DEFAULT_BUDGET_S,
    HOST_FILE,
    PATIENCE,
    TIMEOUT_OVERRIDE,
    check_budget,
    read_settings,
    read_url,
)
from function_app.domain.errors import SettingsError

_ARM = "/subscriptions/s/resourceGroups/r/providers/Microsoft.MachineLearningServices/workspaces/w"
REQUIRED = {
    "LANDFALL_SUBSCRIPTION_ID": "00000000-0000-0000-0000-000000000000",
    "LANDFALL_RESOURCE_GROUP": "landfall",
    "LANDFALL_WORKSPACE": "landfall",
    "LANDFALL_ENVIRONMENT_ID": f"{_ARM}/environments/landfall-training/versions/1",
    "LANDFALL_CODE_ID": f"{_ARM}/codes/landfall-training/versions/1",
}


def test_optional_settings_have_defaults() -> None:
    """Only settings without a sensible default are required."""
    settings = read_settings(REQUIRED)
    seen = (settings.data_container, settings.state_container, settings.runs_container, settings.pipelines_dir)
    assert ("datasets", "landfall", "runs", Path("pipelines")) == seen
    assert (None, None, timedelta(seconds=120)) == (settings.topic_endpoint, settings.client_id, settings.sweep_grace)


@pytest.mark.parametrize(
    ("setting", "others", "problem"),
    [
        ("portal", {}, "must be one of off, easy-auth, none"),
        ("none", {"WEBSITE_INSTANCE_ID": "1"}, "must not be none in Azure"),
        ("none", {"CONTAINER_NAME": "x"}, "must not be none in Azure"),
        ("easy-auth", {"WEBSITE_AUTH_ENABLED": "False"}, "App Service authentication is off"),
    ],
)
def test_pages_are_never_left_open_by_mistake(setting: str, others: dict[str, str], problem: str) -> None:
    """A typing error, the twin's setting in Azure, and headers that nothing would remove from a request."""
    with pytest.raises(SettingsError, match=f"LANDFALL_PAGES_SIGN_IN.*{problem}"):
        read_settings({**REQUIRED, "LANDFALL_PAGES_SIGN_IN": setting, **others})


def test_pages_are_off_unless_a_setting_says_otherwise() -> None:
    """A deployment decides who may see them."""
    chosen = [{}, {"LANDFALL_PAGES_SIGN_IN": "none"}, {"LANDFALL_PAGES_SIGN_IN": "easy-auth"}]
    assert ["off", "none", "easy-auth"] == [read_settings({**REQUIRED, **one}).pages_sign_in for one in chosen]


def test_all_missing_settings_are_reported_at_once() -> None:
    """One error lists them all."""
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
        ("LANDFALL_REQUESTS_PER_MINUTE", "0"),
        ("LANDFALL_REQUESTS_PER_MINUTE", "100001"),
        ("LANDFALL_PIPELINES_DIR", "x" * 3000),
        ("AZURE_CLIENT_ID", "me"),
        ("LANDFALL_CLUSTER_SIZES", "Standard_ND96asr_v4"),
        ("LANDFALL_CLUSTER_SIZES", "a=x,a=y"),
        ("LANDFALL_CLUSTER_SIZES", "a=x,,b=y"),
        ("LANDFALL_CLUSTER_SIZES", ",".join(f"a{n}=x" for n in range(21))),
    ],
)
def test_a_wrong_setting_is_named(name: str, value: str) -> None:
    """The message starts with the name of the setting."""
    with pytest.raises(SettingsError, match=f"^{name} "):
        read_settings(REQUIRED | {name: value})


def test_the_sizes_of_clusters_are_a_list_of_pairs() -> None:
    """`landfall publish` prints them in this form; without the setting, no size is known."""
    sizes = read_settings(REQUIRED | {"LANDFALL_CLUSTER_SIZES": "a=x, b=y"}).cluster_sizes
    assert ({"a": "x", "b": "y"}, {}) == (sizes, read_settings(REQUIRED).cluster_sizes)


def test_arm_ids_compare_without_case() -> None:
    """Azure writes both resourceGroups and resourcegroups."""
    code_id = REQUIRED["LANDFALL_CODE_ID"].replace("resourceGroups", "resourcegroups")
    assert code_id == read_settings(REQUIRED | {"LANDFALL_CODE_ID": code_id}).workspace.code_id


def test_a_secret_address_is_not_repeated() -> None:
    """A webhook's address is enough to post to it."""
    with pytest.raises(SettingsError) as caught:
        read_url({"LANDFALL_WEBHOOK_PEOPLE": "http://example.com/secret"}, "LANDFALL_WEBHOOK_PEOPLE")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("name", [*REQUIRED, "LANDFALL_DATA_CONTAINER", "AZURE_CLIENT_ID", "LANDFALL_CLAIM_LEASE_S"])
@pytest.mark.parametrize(
    "secret",
    [
        "https://prod.logic.example/workflows/SECRET/run?sig=SECRET",
        "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=SECRET==;EndpointSuffix=x",
        "SECRET" * 15 + "+/==",
    ],
)
def test_a_secret_in_the_wrong_setting_is_not_repeated(name: str, secret: str) -> None:
    """An address, a connection string or a key where a name, an id or a number belongs."""
    with pytest.raises(SettingsError) as caught:
        read_settings(REQUIRED | {name: secret})
    assert (True, False) == (name in str(caught.value), "SECRET" in str(caught.value))


@pytest.mark.parametrize("address", ["SECRET:x", "https:/SECRET", "ftp://h/SECRET", "SECRET"])
def test_what_is_no_address_is_not_repeated_either(address: str) -> None:
    """Not even a part that looks like its scheme is repeated."""
    with pytest.raises(SettingsError) as caught:
        read_url({"LANDFALL_WEBHOOK_PEOPLE": address}, "LANDFALL_WEBHOOK_PEOPLE")
    assert "secret" not in str(caught.value).lower()


def test_the_topic_key_is_not_in_the_repr_of_settings() -> None:
    """Settings may be logged."""
    assert "hush" not in repr(read_settings(REQUIRED | {"LANDFALL_NOTIFICATION_TOPIC_KEY": "hush"}))


def test_an_address_on_this_machine_may_use_http() -> None:
    """The local twin listens there."""
    assert "http://127.0.0.1:7000/x" == read_url({"X": "http://127.0.0.1:7000/x"}, "X")


def host_file(tmp_path: Path, text: str) -> Path:
    """Write a host.json."""
    path = tmp_path / "host.json"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("timeout", "budget_s"),
    [
        ('"00:30:00"', 1350),
        ('"00:05:00"', 225),
        ('"1.00:00:00"', 64_800),
        ('"-1"', 999_999),
        ("null", 1350),
    ],
)
def test_a_validation_may_take_three_quarters_of_an_execution(tmp_path: Path, timeout: str, budget_s: int) -> None:
    """One second more is refused, unless executions have no limit."""
    path = host_file(tmp_path, f'{{"functionTimeout": {timeout}}}')
    check_budget(budget_s, {}, path)
    if timeout != '"-1"':
        with pytest.raises(SettingsError, match=f"must be at most {budget_s}, .* host.json .* got {budget_s + 1}$"):
            check_budget(budget_s + 1, {}, path)


def test_the_timeout_setting_overrides_host_json(tmp_path: Path) -> None:
    """The Functions host does the same."""
    path = host_file(tmp_path, '{"functionTimeout": "00:30:00"}')
    with pytest.raises(SettingsError, match=r"must be at most 450, .* the 600 s that AzureFunctionsJobHost__f"):
        check_budget(1200, {TIMEOUT_OVERRIDE: "00:10:00"}, path)


def test_without_host_json_the_default_timeout_counts(tmp_path: Path) -> None:
    """It is half an hour on Flex Consumption."""
    with pytest.raises(SettingsError, match="the 1800 s that"):
        check_budget(1351, {}, tmp_path / "host.json")


@pytest.mark.parametrize("text", ["?", "[]", '{"functionTimeout": "30 minutes"}', '{"functionTimeout": 30}'])
def test_an_invalid_host_json_is_named(tmp_path: Path, text: str) -> None:
    """The message states the problem."""
    with pytest.raises(SettingsError, match=r"host.json (cannot be read|must be a time)"):
        check_budget(60, {}, host_file(tmp_path, text))


def test_the_default_budget_fits_the_shipped_host_json() -> None:
    """The budget and its extension for shards that cannot be paused fit into one execution."""
    assert HOST_FILE.is_file(), HOST_FILE
    check_budget(DEFAULT_BUDGET_S, {})
    assert PATIENCE * 0.75 < 1
