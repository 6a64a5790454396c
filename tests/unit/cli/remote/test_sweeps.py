"""`landfall submit --sweep`: what it sends, what it prints, and what it refuses before it sends anything."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli.remote.sweeps import describe_comparison, describe_sweep
from tests.support.terminal import landfall
from tests.unit.cli.fake_function_app import served

Capture = pytest.CaptureFixture[str]
SWEEP = {
    "sweep_id": "sweep-digits-v1-0123",
    "state": "running",
    "num_nodes": 1,
    "node_hours": 3.0,
    "max_node_hours": 4.0,
    "metric": "val_accuracy",
    "higher_is_better": True,
    "reason": None,
    "runs": [{}, {}, {}],
}


def submit(
    capsys: Capture, *words: str, answer: dict[str, Any] = SWEEP
) -> tuple[int | str | None, str, str, list[Any]]:
    """Run the command against a function app; return status, output, errors and what was sent."""
    seen: list[tuple[str, Any]] = []
    with served(answer, seen) as url:
        status, out, err = landfall(capsys, "submit", "digits/v1", *words, "--url", url, "--key", "k")
    return status, out, err, seen


def test_values_and_bound_are_sent_and_said(capsys: Capture) -> None:
    """Several options make a grid; the answer says what it may cost."""
    words = ["--sweep", "learning_rate=0.1,0.03,0.01", "--sweep", "optimizer=adam,sgd", "--max-node-hours", "4"]
    status, out, _, seen = submit(capsys, *words, "--set", "epochs=3")
    sent = {
        "dataset": "digits",
        "version": "v1",
        "overrides": {"epochs": 3},
        "force": False,
        "num_nodes": 1,
        "max_node_hours": 4.0,
        "grid": {"learning_rate": [0.1, 0.03, 0.01], "optimizer": ["adam", "sgd"]},
    }
    assert (0, [("/api/sweeps", sent)]) == (status, seen)
    assert "running, 3 runs with 1 node each, at most 3 of 4 node-hours." in out
    assert "The run with the highest val_accuracy is registered" in out


def test_a_file_lists_the_options_of_each_run(capsys: Capture, tmp_path: Path) -> None:
    """A list of objects, in JSON."""
    path = tmp_path / "runs.json"
    path.write_text(json.dumps([{"epochs": 3}, {"epochs": 5}]))
    _, _, _, seen = submit(capsys, "--sweep-file", str(path), "--max-node-hours", "4", "--num-nodes", "2")
    assert ([{"epochs": 3}, {"epochs": 5}], 2) == (seen[0][1]["runs"], seen[0][1]["num_nodes"])


def test_a_sweep_that_has_ended_says_so(capsys: Capture) -> None:
    """The same request again trains nothing."""
    ended = {**SWEEP, "state": "ended", "reason": "the best of 3 runs"}
    _, out, _, _ = submit(capsys, "--sweep", "epochs=1,2", "--max-node-hours", "4", answer=ended)
    assert "No new run was started: the best of 3 runs. To train again, add --force." in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--sweep", "epochs=1,2"], "a sweep needs --max-node-hours"),
        (["--sweep", "epochs"], "is not KEY=VALUE,VALUE"),
        (["--sweep", "epochs=1,,2"], "is not KEY=VALUE,VALUE"),
        (["--sweep", "epochs=1,2", "--sweep", "epochs=3", "--max-node-hours", "1"], "--sweep epochs is stated twice"),
        (["--set", "epochs=3", "--set", "epochs=3"], "--set epochs is stated twice: state one value."),
        (["--max-node-hours", "3"], "belong to a sweep"),
        (["--sweep", "epochs=1,2", "--max-node-hours", "0"], "--max-node-hours"),
        (["--sweep", "epochs=1,2", "--max-node-hours", "nan"], "--max-node-hours nan: expected a number of hours"),
        (["--sweep", "epochs=1,2", "--max-node-hours", "1e400"], "--max-node-hours inf: expected a number of hours"),
    ],
)
def test_a_mistake_is_named_and_nothing_is_sent(capsys: Capture, words: list[str], message: str) -> None:
    """Status 2, as for every wrong command line."""
    status, _, err, seen = submit(capsys, *words)
    assert (2, []) == (status, seen)
    assert message in " ".join(err.split())


@pytest.mark.parametrize(
    "text", ["{}", "no JSON", "[1]", "[" * 100_000, '[{"a": NaN}]', '[{"a": 1e999}]', r'[{"a": "\ud800"}]']
)
def test_a_file_that_lists_no_runs_is_refused(capsys: Capture, tmp_path: Path, text: str) -> None:
    """The message says what to write."""
    path = tmp_path / "runs.json"
    path.write_text(text)
    status, _, err, seen = submit(capsys, "--sweep-file", str(path), "--max-node-hours", "4")
    assert (1, [], True) == (status, seen, "runs.json" in err)
    assert "unexpected error" not in err


def test_bytes_that_are_no_text_are_named(capsys: Capture) -> None:
    """A terminal passes on what was typed, and Python keeps it as half a character."""
    status, _, err, seen = submit(capsys, "--set", "name=\udcff")
    assert (1, [], True) == (status, seen, "is not a character that can be sent" in err)


def test_a_sweep_is_canceled_by_its_id(capsys: Capture) -> None:
    """The command is the same as for a run."""
    seen: list[tuple[str, Any]] = []
    with served({**SWEEP, "state": "canceled"}, seen) as url:
        _, out, _ = landfall(capsys, "cancel", "sweep-digits-v1-0123", "--url", url, "--key", "k")
    assert ([("/api/sweeps/sweep-digits-v1-0123/cancel", None)], "sweep-digits-v1-0123 is canceled") == (
        seen,
        out.partition(",")[0],
    )


COMPARED = {
    "options": ["learning_rate"],
    "metrics": ["val_accuracy"],
    "runs": [
        {
            "run_id": f"landfall-{rate}-a1",
            "dataset": "digits",
            "version": "v1",
            "generation": 1,
            "state": state,
            "reason": reason,
            "model_name": "digits-cnn" if state == "registered" else None,
            "model_version": "7",
            "options": {"learning_rate": rate},
            "metrics": metrics,
            "trained_s": 90.0,
            "node_hours": 0.025,
            "cost": None,
        }
        for rate, state, metrics, reason in (
            ("0.1", "not_registered", {"val_accuracy": 0.96}, "run landfall-0.01-a1 is better"),
            ("0.01", "registered", {"val_accuracy": 0.98}, None),
        )
    ],
}


def test_a_comparison_is_a_table_with_a_line_for_each_run() -> None:
    """What differs, what was reached, what it took; ids and reasons stand below, where they have room."""
    assert [
        "run  state           learning_rate  val_accuracy  time     node-hours",
        "1    not_registered  0.1            0.96          1.5 min  0.025",
        "2    registered      0.01           0.98          1.5 min  0.025",
        "1: landfall-0.1-a1 (digits/v1, generation 1)",
        "   run landfall-0.01-a1 is better",
        "2: landfall-0.01-a1 (digits/v1, generation 1), model digits-cnn version 7",
    ] == list(describe_comparison(COMPARED))


def test_a_comparison_that_is_wider_than_the_terminal_is_a_list() -> None:
    """Each run with its cells by name; and what has no interval is said below."""
    noted = {**COMPARED, "notes": ["Without an interval: val_f1."]}
    assert list(describe_comparison(noted)) == list(describe_comparison(noted, width=69))
    assert [
        "run 1:",
        "  state          not_registered",
        "  learning_rate  0.1",
        "  val_accuracy   0.96",
        "  time           1.5 min",
        "  node-hours     0.025",
    ] == list(describe_comparison(noted, width=68))[:6]
    assert "Without an interval: val_f1." == list(describe_comparison(noted, width=68))[-1]


@pytest.mark.parametrize(
    ("members", "line"),
    [
        ({"state": "ended", "best": "landfall-1-a1", "reason": "the best"}, "  best: landfall-1-a1, the best"),
        ({"state": "canceled", "best": None, "reason": "a person"}, "  no model is registered: a person"),
        ({"best": None}, "sweep-digits-v1-0123: running, 1 of 2 runs started, at most 3 node-hours"),
    ],
)
def test_a_sweep_says_how_it_stands(members: dict[str, Any], line: str) -> None:
    """Its state comes before the comparison."""
    sweep = {**SWEEP, **members, "runs": [{"state": "running"}, {"state": None}]}
    assert line == list(describe_sweep(sweep))[-1]


def test_compare_asks_for_all_runs_at_once(capsys: Capture) -> None:
    """The option --json prints the answer unchanged."""
    words = ["landfall-1-a1", "landfall-2-a1", "--json"]
    with served(COMPARED, []) as url:
        status, out, _ = landfall(capsys, "compare", *words, "--url", url, "--key", "k")
    assert (0, COMPARED) == (status, json.loads(out))
