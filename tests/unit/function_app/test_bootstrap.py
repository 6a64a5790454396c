"""The composition root: which settings it needs, and that it sends no request."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from azure.functions import HttpRequest
from click.testing import CliRunner

from cli.main import landfall
from cli.up import describe_outages
from function_app import bootstrap, functions
from function_app.adapters.log_lines import LOGGER, LogLines, stop_log_lines
from function_app.adapters.telemetry import OpenTelemetrySink
from function_app.bootstrap import build_services
from function_app.domain.errors import PipelineError, SettingsError
from horovod_lint import ScriptError
from shared import SPOKEN, asset_version, mismatch
from tests.support.world import CLUSTERS, PIPELINE, SIZES
from tests.unit.function_app.config.test_settings import REQUIRED
from tests.unit.function_app.web.client import ask

CONNECTION = "DefaultEndpointsProtocol=http;AccountName=a;AccountKey=a2V5;BlobEndpoint=http://127.0.0.1:1/a"


def environ(tmp_path: Path, **changes: str) -> dict[str, str]:
    """Settings that are complete, with pipelines in a folder of the test."""
    (tmp_path / "digits.yaml").write_text(PIPELINE)
    (tmp_path / "clusters.yaml").write_text(CLUSTERS)
    complete = REQUIRED | {
        "AzureWebJobsStorage": CONNECTION,
        "DataStorage": CONNECTION,
        "LANDFALL_PIPELINES_DIR": str(tmp_path),
        "LANDFALL_CLUSTER_SIZES": ",".join(f"{name}={size}" for name, size in SIZES.items()),
        "LANDFALL_NOTIFICATION_TOPIC_ENDPOINT": "https://topic.example.com/api/events",
        "LANDFALL_WEBHOOK_PEOPLE": "https://people.example.com/hook",
    }
    return {name: value for name, value in (complete | changes).items() if value}


def test_services_are_built_without_asking_any_service(tmp_path: Path) -> None:
    """Nothing listens at the addresses of this test."""
    services = build_services(environ(tmp_path))
    assert ["digits"] == list(services.pipelines)
    assert ["topic", "webhook:LANDFALL_WEBHOOK_PEOPLE"] == list(services.notifiers)


def test_where_telemetry_goes_log_lines_go_too(tmp_path: Path) -> None:
    """The lines keep their fields; nothing is sent while nothing happens."""
    connection = "InstrumentationKey=00000000-0000-0000-0000-000000000000;IngestionEndpoint=http://127.0.0.1:1/"
    logger = logging.getLogger(LOGGER)
    services = build_services(environ(tmp_path, APPLICATIONINSIGHTS_CONNECTION_STRING=connection))
    sink = services.telemetry_sink
    try:
        assert [LogLines] == [type(handler) for handler in logger.handlers if isinstance(handler, LogLines)]
        assert not logger.propagate
    finally:
        stop_log_lines()
        assert isinstance(sink, OpenTelemetrySink)
        sink.shutdown()
    assert logger.propagate


def test_scripts_are_read_beside_the_pipelines(tmp_path: Path) -> None:
    """One that is gone since the start is an error that names it."""
    services = build_services(environ(tmp_path))
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "mine.py").write_text("pass")
    assert b"pass" == services.read_script("scripts/mine.py")
    with pytest.raises(ScriptError, match=r"^scripts/other\.py: cannot be read from the folder of the pipelines"):
        services.read_script("scripts/other.py")


def test_what_is_wrong_anywhere_is_reported_together(tmp_path: Path) -> None:
    """Settings and connections, in one list."""
    changes = {"DataStorage": "", "LANDFALL_CLAIM_LEASE_S": "soon", "LANDFALL_PIPELINES_DIR": str(tmp_path / "no")}
    with pytest.raises(SettingsError) as caught:
        build_services(environ(tmp_path, **changes))
    words = [problem.split(" ", 1)[0] for problem in caught.value.problems]
    assert ["DataStorage", "LANDFALL_CLAIM_LEASE_S"] == words


def test_a_missing_folder_of_pipelines_is_a_pipeline_error(tmp_path: Path) -> None:
    """Nothing tells which datasets there are."""
    with pytest.raises(PipelineError, match="the folder with the pipeline files does not exist"):
        build_services(environ(tmp_path, LANDFALL_PIPELINES_DIR=str(tmp_path / "no")))


OTHER = PIPELINE.replace("pipeline: digits", "pipeline: other").replace("dataset: digits", "dataset: other")


@pytest.mark.parametrize(
    ("text", "dataset", "problem"),
    [
        ("pipeline: x\ndataset: digits\n", "digits", "digits.yaml: data: is required"),
        ("dataset: 'digits'  # the handwritten ones\ndata: [", "digits", "digits.yaml: not valid YAML"),
        ("pipeline: x", "", "digits.yaml: dataset: is required"),
        ("dataset: digits\ndataset: other\n", "", "digits.yaml: not valid YAML: key 'dataset' is repeated"),
        ("\x00", "", "digits.yaml: not valid YAML"),
    ],
)
def test_a_wrong_file_takes_only_its_own_dataset_out_of_service(
    tmp_path: Path, text: str, dataset: str, problem: str
) -> None:
    """The line with the dataset tells whose it is; where it cannot be read, no dataset loses the pipeline it has."""
    settings = environ(tmp_path)
    (tmp_path / "digits.yaml").write_text(text)
    (tmp_path / "other.yaml").write_text(OTHER)
    services = build_services(settings)
    assert (["other"], [dataset]) == (list(services.pipelines), list(services.out_of_service))
    assert services.out_of_service[dataset][0].startswith(problem)
    assert problem in str(services.outage("digits"))
    assert services.outage("other") is None


def test_the_recipients_of_a_wrong_file_are_known_as_far_as_they_can_be_read(tmp_path: Path) -> None:
    """They are notified of the outage; one that is malformed keeps no other from it."""
    settings = environ(tmp_path)
    (tmp_path / "digits.yaml").write_text(
        "dataset: digits\nnotify: [mail, topic, {webhook: LANDFALL_WEBHOOK_PEOPLE}]\n"
    )
    services = build_services(settings)
    known = {dataset: [one.name for one in found] for dataset, found in services.outage_recipients.items()}
    assert {"digits": ["topic", "webhook:LANDFALL_WEBHOOK_PEOPLE"]} == known
    assert {"topic", "webhook:LANDFALL_WEBHOOK_PEOPLE"} == set(services.notifiers)


def test_a_missing_address_stops_the_pipelines_that_need_it(tmp_path: Path) -> None:
    """The webhook of one dataset is not another's."""
    settings = environ(tmp_path, LANDFALL_WEBHOOK_PEOPLE="")
    (tmp_path / "other.yaml").write_text(OTHER.replace("  - webhook: LANDFALL_WEBHOOK_PEOPLE\n", ""))
    services = build_services(settings)
    problem = "digits.yaml: notify: LANDFALL_WEBHOOK_PEOPLE is not set; set it to an https address"
    assert (["other"], {"digits": (problem,)}) == (list(services.pipelines), services.out_of_service)


def test_code_of_another_release_takes_every_pipeline_out_of_service(tmp_path: Path) -> None:
    """Uploads wait as with a wrong file, and nothing is submitted, until app and code are of one release."""
    code_id, later = REQUIRED["LANDFALL_CODE_ID"].rpartition("/")[0], (SPOKEN[-1] + 1,)
    named = f"{code_id}/{asset_version('0a', later)}"
    services = build_services(environ(tmp_path, LANDFALL_CODE_ID=named))
    assert {"digits": (f"digits.yaml: LANDFALL_CODE_ID: {mismatch(named)}",)} == services.out_of_service
    known = {dataset: [one.name for one in found] for dataset, found in services.outage_recipients.items()}
    assert {"digits": ["topic", "webhook:LANDFALL_WEBHOOK_PEOPLE"]} == known
    named = f"{code_id}/{asset_version('0a', (SPOKEN[-1], *later))}"
    assert ["digits"] == list(build_services(environ(tmp_path, LANDFALL_CODE_ID=named)).pipelines)


def test_a_copy_stops_its_dataset_but_not_the_name_of_its_original(tmp_path: Path) -> None:
    """Nothing tells which of two files for one dataset is meant; a name belongs to the file that is called so."""
    settings = environ(tmp_path)
    (tmp_path / "a.yaml").write_text(PIPELINE.replace("dataset: digits", "dataset: other"))
    services = build_services(settings)
    assert ["digits"] == list(services.pipelines)
    assert ("a.yaml: pipeline: digits.yaml already uses the name digits (line 2)",) == services.out_of_service[
        "other"
    ]
    (tmp_path / "a.yaml").write_text(PIPELINE.replace("pipeline: digits", "pipeline: other"))
    services = build_services(settings)
    assert {} == services.pipelines
    problem = "a.yaml: dataset: digits.yaml already has the pipeline of dataset digits (line 3)"
    assert (problem,) == services.out_of_service["digits"]


def test_a_corrected_file_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No restart is needed, and the clients stay."""
    for name, value in environ(tmp_path).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(bootstrap, "_built", [])
    monkeypatch.setattr(bootstrap, "_read", [])
    (tmp_path / "digits.yaml").write_text("dataset: digits\n")
    broken = bootstrap.services()
    assert broken is bootstrap.services()
    (tmp_path / "digits.yaml").write_text(PIPELINE)
    corrected = bootstrap.services()
    assert (["digits"], {}) == (list(corrected.pipelines), corrected.out_of_service)
    assert ["topic", "webhook:LANDFALL_WEBHOOK_PEOPLE"] == list(corrected.notifiers)
    assert corrected.ledger is broken.ledger


@pytest.mark.parametrize("container", ["datasets", "landfall", "runs"])
def test_quarantine_needs_a_container_of_its_own(tmp_path: Path, container: str) -> None:
    """Copies of rejected shards among the shards would be uploads of shards."""
    settings = environ(tmp_path)
    (tmp_path / "digits.yaml").write_text(f"{PIPELINE}\nquarantine: {container}\n")
    problem = "digits.yaml: quarantine: is one of Landfall's own containers; name another one"
    assert {"digits": (problem,)} == build_services(settings).out_of_service


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


BARE_KEY = "SECRET" * 14 + "=="


@pytest.mark.parametrize(
    "entry",
    [
        "  - webhook: https://h.example/SECRET?sig=SECRET",
        f"  - webhook: {BARE_KEY}",
        f"  - {BARE_KEY}",
        f"  - topic\nquarantine: {BARE_KEY}",
        f"  - topic\n{BARE_KEY}: 1",
        f"  - topic\n{BARE_KEY}: 1\n{BARE_KEY}: 2",
    ],
)
def test_a_secret_where_a_settings_name_belongs_is_repeated_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, entry: str
) -> None:
    """It is absent from the log, health, the API, the output of `landfall up` and the check of the file."""
    settings = environ(tmp_path)
    (tmp_path / "digits.yaml").write_text(PIPELINE.replace("  - topic", entry))
    with caplog.at_level("DEBUG"):
        services = build_services(settings)
    monkeypatch.setattr(bootstrap, "_built", [services])
    assert ["digits"] == list(services.out_of_service)
    listed = ask(lambda: services, "GET", "/api/pipelines").json()["pipelines"]
    health = functions.health.build().get_user_function()(HttpRequest("GET", "/api/health", body=b""))
    requested = ask(lambda: services, "POST", "/api/runs", json={"dataset": "digits", "version": "v1"})
    checked = CliRunner().invoke(landfall, ["validate", __file__, "--pipeline", str(tmp_path / "digits.yaml")])
    said = [caplog.text, str(listed), "\n".join(describe_outages(listed)), requested.text, checked.output]
    assert ([True] * 5, [False] * 5) == (["digits" in text for text in said], ["SECRET" in text for text in said])
    assert ("digits" in str(health.get_body()), "SECRET" in str(health.get_body())) == (True, False)


@pytest.mark.parametrize("name", ["LANDFALL_RESOURCE_GROUP", "LANDFALL_RUNS_CONTAINER", "LANDFALL_CLAIM_LEASE_S"])
def test_a_secret_in_another_setting_is_repeated_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    """The log names the setting; health says only that there is a problem."""
    for key, value in environ(tmp_path, **{name: BARE_KEY}).items():
        monkeypatch.setenv(key, value)
    monkeypatch.setattr(bootstrap, "_built", [])
    health = functions.health.build().get_user_function()(HttpRequest("GET", "/api/health", body=b""))
    assert (503, True) == (health.status_code, name in caplog.text)
    assert "SECRET" not in caplog.text + str(health.get_body())
