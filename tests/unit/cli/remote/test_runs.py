"""`landfall runs`, `run`, `submit` and `cancel`: what they send, and what they print."""

from __future__ import annotations

import json
from typing import Any

import click
import pytest

from cli.remote.runs import (
    OverrideOption,
    describe_ranks,
    describe_request,
    describe_run,
    describe_spending,
    files_of,
    listing,
)
from tests.support.terminal import landfall
from tests.support.world import unregistered
from tests.unit.cli.fake_function_app import served, serving

Capture = pytest.CaptureFixture[str]
RUN: dict[str, Any] = {"run_id": "landfall-x-a1", "state": "planned"}


def test_a_dataset_without_runs_is_named() -> None:
    """This reveals a mistyped name."""
    printed = [list(listing({"runs": []}, {})), list(listing({"runs": []}, {"dataset": "digist", "state": "lost"}))]
    assert [["There are no runs."], ["There are no runs of dataset digist in state lost."]] == printed


def test_a_run_shows_how_it_ended_and_who_was_notified() -> None:
    """Reason, failure class and remedy, recipients and the end of the log."""
    run = {
        "run_id": "r",
        "state": "failed",
        "state_since": "12:00",
        "waiting": "waits for run landfall-w-a1; it is next",
        "dataset": "d",
        "version": "v",
        "generation": 1,
        "attempt": 1,
        "failure_class": "out_of_memory",
        "remedy": "none",
        "reason": "exit 1",
        "model_name": None,
        "metrics": {},
        "notifications": [{"recipient": "topic", "outcome": "failed", "state": "sent"}],
        "log_tail": "one\ntwo",
    }
    assert [
        "r: failed since 12:00 UTC",
        "  dataset version: d/v (generation 1)",
        "  waits for run landfall-w-a1; it is next",
        "  attempt: 1",
        "  failure: out_of_memory, remedy: none",
        "  reason: exit 1",
        "  notification (failed) to topic: sent",
        "  end of the log:",
        "    one",
        "    two",
    ] == list(describe_run(run))


def test_a_registered_run_shows_its_model_and_metrics() -> None:
    """Metrics in order of name; what the run led to."""
    run = RUN | {
        "state_since": "12:00",
        "dataset": "d",
        "version": "v",
        "generation": 1,
        "attempt": 1,
        "next_run_id": "landfall-x-a2",
        "reason": None,
        "model_name": "m",
        "model_version": "7",
        "metrics": {"val_loss": 0.25, "loss": 0.5},
        "notifications": None,
        "log_tail": None,
    }
    assert [
        "  continued by: landfall-x-a2",
        "  model: m version 7",
        "  loss: 0.5",
        "  val_loss: 0.25",
    ] == list(describe_run(run))[3:]


def test_a_run_says_where_its_ranks_ran() -> None:
    """A line for each rank, what is not known, and how to see the others."""
    place = {"rank": 0, "world_size": 20, "node": 0, "host": "node-a", "nodes": ["10.0.0.4"], "met": []}
    ranks = {"run_id": "r", "num_ranks": 20, "places": [place], "problem": "Rank 1 has written no log.", "next": 16}
    assert [
        "  rank 0 of 20 on host node-a (node 0), nodes of the job: 10.0.0.4",
        "  Rank 1 has written no log.",
        "  ranks 16 to 19: landfall logs r --rank N says where each ran",
    ] == list(describe_ranks(ranks))


WHERE = "azureml://subscriptions/s-1/resourcegroups/my group/workspaces/w/datastores/landfall_runs/paths/"
ENDED = RUN | {
    "state": "registered",
    "dataset": "d",
    "version": "v",
    "logical_run": "landfall-x",
    "submitted_at": "12:00",
    "model_name": None,
    "outputs": {
        "model": f"{WHERE}d/v/landfall-x/a1/model",
        "report": f"{WHERE}d/v/landfall-x/a1/report",
        "checkpoints": f"{WHERE}d/v/landfall-x/checkpoints",
    },
}


WORKSPACE_WORDS = "--subscription s-1 --resource-group 'my group' --workspace-name w"


def test_a_run_says_where_its_files_are_and_how_to_fetch_them() -> None:
    """The paths, and a command that a shell takes as it is.

    Options of `az ml job download`: https://learn.microsoft.com/cli/azure/ml/job#az-ml-job-download.
    """
    assert [
        "  files:",
        "    checkpoints: d/v/landfall-x/checkpoints (datastore landfall_runs)",
        "    model:       d/v/landfall-x/a1/model (datastore landfall_runs)",
        "    report:      d/v/landfall-x/a1/report (datastore landfall_runs)",
        "    logs:        user_logs of job landfall-x-a1",
        "  to fetch them:",
        f"    az ml job download --all --name landfall-x-a1 --download-path landfall-x-a1 {WORKSPACE_WORDS}",
    ] == list(files_of(ENDED, None))


@pytest.mark.parametrize(
    ("state", "heading"),
    [
        ("running", "  to fetch them once the job has ended:"),
        ("completed", "  to fetch them:"),
        ("failed", "  to fetch them:"),
    ],
)
def test_files_of_a_job_that_runs_can_be_fetched_later(state: str, heading: str) -> None:
    """`az ml job download` refuses a job that has not ended; the twin's storage can be read at any time."""
    assert heading in list(files_of(ENDED | {"state": state}, None))
    assert "  to fetch them:" in list(files_of(ENDED | {"state": state}, "AccountKey=k"))


def test_a_registered_model_can_be_fetched_too() -> None:
    """The command has its name and version: https://learn.microsoft.com/cli/azure/ml/model#az-ml-model-download."""
    *_, last = files_of(ENDED | {"model_name": "m", "model_version": "7"}, None)
    expected = f"    az ml model download --name m --version 7 --download-path landfall-x-a1 {WORKSPACE_WORDS}"
    assert expected == last


def test_files_of_the_local_twin_are_fetched_from_its_storage() -> None:
    """`az ml` talks to Azure only; outputs and logs are in two containers. Without `--overwrite` a second call fails.

    Options: https://learn.microsoft.com/cli/azure/storage/blob#az-storage-blob-download-batch.
    """
    *_, outputs, logs = files_of(ENDED, "AccountKey=k;X=1;QueueEndpoint=q;TableEndpoint=t")
    fetch = "    az storage blob download-batch --overwrite true --destination . --source"
    assert [
        f"{fetch} runs --pattern 'd/v/landfall-x/*' --connection-string 'AccountKey=k;X=1'",
        f"{fetch} azureml --pattern 'ExperimentRun/dcid.landfall-x-a1/*' --connection-string 'AccountKey=k;X=1'",
    ] == [outputs, logs]


@pytest.mark.parametrize("members", [{"submitted_at": None}, {"outputs": {}}])
def test_a_run_without_a_job_has_no_files(members: dict[str, Any]) -> None:
    """A run that was never submitted, or one of an older deployment."""
    assert [] == list(files_of(ENDED | members, None))


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("planned", "r: planned. To follow it: landfall run r"),
        ("registered", "r has already ended: registered. No new run was started."),
        ("failed", "To train again: landfall submit digits/v1 --force"),
    ],
)
def test_a_request_that_leads_to_an_ended_run_starts_nothing_and_says_so(state: str, words: str) -> None:
    """Otherwise its user would wait."""
    assert words in "\n".join(describe_request({"run_id": "r", "state": state}, "digits/v1"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("epochs=3", ("epochs", 3)),
        ("learning_rate=0.01", ("learning_rate", 0.01)),
        ("optimizer=adam", ("optimizer", "adam")),
        ("note=a=b", ("note", "a=b")),
        ("date=2026-11-20", ("date", "2026-11-20")),
        ("learning_rate=1e-3", ("learning_rate", 0.001)),
        ("nesterov=true", ("nesterov", True)),
        ("epochs=010", ("epochs", "010")),
        ("epochs=!!bool maybe", ("epochs", "!!bool maybe")),
        ("date=2026-13-45", ("date", "2026-13-45")),
        ("epochs=1e999", ("epochs", "1e999")),
        ("epochs=NaN", ("epochs", "NaN")),
        ("epochs=" + "[" * 100_000, ("epochs", "[" * 100_000)),
        ("epochs=" + "9" * 5000, ("epochs", "9" * 5000)),
    ],
)
def test_overrides_are_read_as_numbers_where_they_are_numbers(text: str, expected: tuple[str, object]) -> None:
    """The API is strict about types; a date stays the text that was typed."""
    assert expected == OverrideOption().convert(text, None, None)


@pytest.mark.parametrize("text", ["epochs", "=3"])
def test_an_override_without_key_or_value_is_refused(text: str) -> None:
    """The error shows the form."""
    with pytest.raises(click.BadParameter, match=f"{text!r} is not KEY=VALUE, such as epochs=3"):
        OverrideOption().convert(text, None, None)


@pytest.mark.parametrize(
    ("target", "members"),
    [("speed", {"dataset": "speed"}), ("digits/v1", {"dataset": "digits", "version": "v1"})],
)
def test_submit_sends_a_version_only_where_the_user_names_one(
    capsys: Capture, target: str, members: dict[str, str]
) -> None:
    """Synthetic data have no version."""
    seen: list[tuple[str, Any]] = []
    with served(RUN, seen) as url:
        status, _, _ = landfall(capsys, "submit", target, "--url", url, "--key", "k")
    assert (0, [("/api/runs", {**members, "overrides": {}})]) == (status, seen)


def test_submit_sends_force(capsys: Capture) -> None:
    """The flag goes into the body."""
    seen: list[tuple[str, Any]] = []
    with served(RUN, seen) as url:
        landfall(capsys, "submit", "digits/v1", "--force", "--url", url, "--key", "k")
    assert ("/api/runs", True) == (seen[0][0], seen[0][1]["force"])


@pytest.mark.parametrize(
    ("state", "words"), [("canceled", "landfall-x-a1 is canceled."), ("running", "landfall-x-a1 is being canceled.")]
)
def test_cancel_says_whether_the_run_has_ended(capsys: Capture, state: str, words: str) -> None:
    """A job takes its time to end; the next command follows it."""
    seen: list[tuple[str, Any]] = []
    with served(RUN | {"state": state}, seen) as url:
        status, out, _ = landfall(capsys, "cancel", "landfall-x-a1", "--url", url, "--key", "k")
    assert (0, [("/api/runs/landfall-x-a1/cancel", None)], True) == (status, seen, out.startswith(words))


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        (("cancel", "landfall-x-a1"), {"run_id": "landfall-x-a1", "state": "running"}),
        (("run", "landfall-x-a1"), {"run_id": "landfall-x-a1", "log_tail": "\x1b[31mred\r\n\x1b[2J"}),
        (("runs",), {"runs": [{"run_id": "landfall-x-a1"}]}),
        (("runs",), {"runs": []}),
    ],
)
def test_json_is_what_the_function_app_answered(
    capsys: Capture, command: tuple[str, ...], answer: dict[str, Any]
) -> None:
    """Complete, unchanged, and nothing else: a program reads it."""
    with served(answer) as url:
        status, out, _ = landfall(capsys, *command, "--json", "--url", url, "--key", "k")
    assert (0, answer) == (status, json.loads(out))


PAGE = {
    "runs": [{"run_id": "landfall-x-a1", "state": "failed", "created_at": "2026-11-20T12:00:00Z"}],
    "next": "/api/runs?x",
}


def test_a_list_of_runs_is_asked_for_by_state_and_page(capsys: Capture) -> None:
    """What is filtered by goes into the query, and the last line says how to see older runs."""
    with served(PAGE) as url:
        arguments = ("--state", "failed", "--after", "landfall-y-a1", "--limit", "1", "--url", url)
        status, out, _ = landfall(capsys, "runs", *arguments)
    assert (0, "2026-11-20 12:00:00 UTC  failed          landfall-x-a1") == (status, out.splitlines()[0])
    assert "There may be older ones: add --after landfall-x-a1" == out.splitlines()[1]


def test_models_are_shown_with_their_metrics_and_data(capsys: Capture) -> None:
    """The list marks the current version, and compares each version with the current one of its time."""
    words = (
        "val_accuracy 2.1 points better, 95 % between 1.4 and 2.8 (the current version 2 on the same 10,000 examples)"
    )
    version = {
        "version": "3",
        "run_id": "landfall-x-a1",
        "dataset": "digits",
        "dataset_version": "v1",
        "registered_at": "2026-11-20T12:00:00Z",
        "metrics": {"val_accuracy": 0.97},
        "evidence": {"comparison": {"words": words}},
    }
    with served({"models": [{"name": "digits-cnn", "current": "3", "versions": [version]}]}) as url:
        _, out, _ = landfall(capsys, "models", "--url", url)
    assert [
        "digits-cnn: version 3 is current",
        "  version 3, registered 2026-11-20 12:00:00 UTC: val_accuracy 0.97",
        f"    {words}",
        "    trained on digits/v1 by landfall-x-a1",
    ] == out.splitlines()


def test_models_of_all_pages_are_listed(capsys: Capture) -> None:
    """The command asks for the next page until there is none."""
    following = "/api/models?limit=1000&after=a"
    pages: list[dict[str, Any]] = [{"name": name, "current": None, "versions": []} for name in ("a", "b")]
    seen: list[tuple[str, Any]] = []
    answers: list[dict[str, Any]] = [
        {"models": pages[:1], "next": following},
        {"models": pages[1:], "next": None},
    ]
    with served(iter(answers), seen) as url:
        _, out, _ = landfall(capsys, "models", "--url", url)
    assert ["a: no version is current", "b: no version is current"] == out.splitlines()
    assert ["/api/models?limit=1000", following] == [path for path, _ in seen]


def test_a_version_is_promoted_by_its_name(capsys: Capture) -> None:
    """The answer says instead of which; a name without a version is refused before anything is asked."""
    promoted = {"name": "digits-cnn", "version": "7", "previous": "3"}
    with served(promoted) as url:
        code, out, _ = landfall(capsys, "promote", "digits-cnn:7", "--url", url)
        refused, _, error = landfall(capsys, "promote", "digits-cnn", "--url", url)
    assert (0, "Version 7 of model digits-cnn is the current one instead of version 3.\n") == (code, out)
    assert (2, True) == (refused, "is not MODEL:VERSION, such as digits-cnn:202611201200003818" in error)


def test_a_model_is_registered_after_a_person_has_read_what_that_does(capsys: Capture) -> None:
    """Without --confirmed it asks; a repeated command says which version there is."""
    world, run = unregistered()
    command = ("register", run.run_id, "--why", "known labels")
    with serving(world) as url:
        _, planned, _ = landfall(capsys, *command, "--dry-run", "--url", url)
        refused = landfall(capsys, *command, "--url", url)  # there is no answer: standard input is empty
        assert {} == world.models.registered
        done = landfall(capsys, *command, "--confirmed", "--url", url)
        again = landfall(capsys, *command, "--json", "--url", url)
    name = f"digits-cnn:{world.stands(run).model_version}"
    assert ("It is not promoted" in planned, "The gate decided not to" in refused[2], 1) == (True, True, refused[0])
    assert (0, f"{name} is registered. To make it the current version: landfall promote {name}\n") == done[:2]
    assert "known labels" == json.loads(again[1])["override"]["why"]


def test_a_registration_needs_a_reason(capsys: Capture) -> None:
    """Wrong usage, before anything is asked."""
    code, _, error = landfall(capsys, "register", "landfall-x-a1", "--url", "http://127.0.0.1:1")
    assert (2, True) == (code, "--why" in error)
    code, _, error = landfall(capsys, "register", "landfall-x-a1", "--url", "http://127.0.0.1:1", "--why", " ")
    assert (2, True) == (code, "--why is empty" in error)


def test_the_versions_of_a_dataset_say_which_are_whole(capsys: Capture) -> None:
    """The output says how to see more of them."""
    whole = {"version": "v2", "state": "closed", "generation": 1, "closed_at": "2026-11-20T12:00:00Z"}
    begun = {"version": "v1", "state": "open", "generation": None, "closed_at": None}
    with served({"dataset": "digits", "versions": [whole, begun], "next": "/api/datasets/digits?x"}) as url:
        _, out, _ = landfall(capsys, "datasets", "digits", "--url", url)
    assert [
        "digits/v2  generation 1, complete since 2026-11-20 12:00:00 UTC",
        "digits/v1  open",
        "There are more: add --after v1",
    ] == out.splitlines()


def test_pipelines_say_what_is_wrong_with_them(capsys: Capture) -> None:
    """File, field and problem, as the loader says it."""
    broken = {
        "dataset": "faces",
        "state": "out_of_service",
        "problems": ["faces.yaml: train.epochs: expected a number"],
    }
    good = {"dataset": "digits", "state": "in_service", "pipeline": "digits", "splits": ["train", "validation"]}
    with served({"pipelines": [broken, good]}) as url:
        _, out, _ = landfall(capsys, "pipelines", "--url", url)
    assert [
        "faces: out of service",
        "  faces.yaml: train.epochs: expected a number",
        "digits: in service, pipeline digits, splits train, validation",
    ] == out.splitlines()


SPENT: dict[str, Any] = {
    "since": "2026-11-13T12:00:00Z",
    "until": "2026-11-20T12:00:00Z",
    "num_runs": 2,
    "node_hours": 6.5,
    "cost": 21.0,
    "currency": "USD",
    "unpriced_node_hours": 0.5,
    "is_whole": True,
    "datasets": [
        {"dataset": "digits", "num_runs": 1, "node_hours": 6.0, "cost": 21.0},
        {"dataset": "letters", "num_runs": 1, "node_hours": 0.5, "cost": None},
    ],
    "runs": [
        RUN | {"created_at": "2026-11-20T09:00:00Z", "node_hours": 6.0, "cost": 21.0},
        RUN | {"created_at": "2026-11-19T09:00:00Z", "node_hours": 0.5, "cost": None},
    ],
}


def test_what_a_week_cost_is_one_command(capsys: Capture) -> None:
    """Each run, each dataset, and all together; the API is asked for as many hours."""
    seen: list[tuple[str, Any]] = []
    with served(SPENT, seen, status=200) as url:
        status, out, _ = landfall(capsys, "runs", "--since", "1w", "--dataset", "digits", "--url", url)
        assert (0, "/api/spending?hours=168&dataset=digits") == (status, seen[0][0])
        asked = landfall(capsys, "runs", "--since", "7d", "--limit", "1", "--url", url)
    assert [
        "2026-11-20 09:00:00 UTC  planned         6.00 node-hours, cost 21.00 USD   landfall-x-a1",
        "2026-11-19 09:00:00 UTC  planned         0.50 node-hours                   landfall-x-a1",
        "digits: 6.00 node-hours, cost 21.00 USD, runs: 1",
        "letters: 0.50 node-hours, runs: 1",
        "Together: 6.50 node-hours, cost 21.00 USD, runs: 2, from 2026-11-13 12:00:00 UTC to 2026-11-20 12:00:00 UTC",
        "Without 0.50 node-hours of clusters that have no price.",
    ] == out.splitlines()
    assert ("… 1 older ones: add --limit" in asked[1], "/api/spending?hours=168") == (True, seen[1][0])


def test_a_week_without_runs_cost_nothing_and_one_without_prices_is_unknown() -> None:
    """These are two things."""
    nothing = SPENT | {"num_runs": 0, "runs": [], "datasets": [], "cost": None, "node_hours": 0.0}
    assert "No run had nodes" in "".join(describe_spending(nothing, 20))
    assert "The cost is unknown: neither clusters.yaml nor" in "".join(describe_spending(SPENT | {"cost": None}, 20))


@pytest.mark.parametrize("since", ["7", "d", "0h", "400d", "-1d", "7 d", "\u0667d", "99999999d"])
def test_a_time_that_is_none_is_refused_with_an_example(capsys: Capture, since: str) -> None:
    """No request is sent."""
    status, _, err = landfall(capsys, "runs", "--since", since, "--url", "http://127.0.0.1:9")
    assert (2, True) == (status, "such as 24h, 7d or 2w" in err)


def test_a_time_and_a_state_cannot_be_combined(capsys: Capture) -> None:
    """The total would be of something else than it says."""
    status, _, err = landfall(capsys, "runs", "--since", "7d", "--state", "failed", "--url", "http://127.0.0.1:9")
    assert (2, True) == (status, "cannot be combined" in err)
