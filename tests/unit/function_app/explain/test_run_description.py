"""What is said of a run: by its row, its log and its training report, whatever a script wrote there."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from function_app.config.settings import SignIn
from function_app.domain.errors import NotFoundError
from function_app.domain.jobs import report_path, spec_from_json
from function_app.explain.run_description import MAX_EPOCHS, MAX_LINE_CHARS, MAX_LOG_LINES, describe_run
from function_app.explain.run_files import WRITES, output_folders, studio_page, tensorboard_files
from shared.progress import PREFIX, Progress
from tests.support.world import World, ended_run
from tests.unit.function_app.web.client import look, principal


def progress(epoch: int, **members: float) -> str:
    """One line of the root."""
    return Progress(**{"epoch": epoch, "epochs": 3, "step": 10, "loss": 0.5, "accuracy": 0.5, **members}).to_line()  # type: ignore[arg-type]


def logged(*lines: str) -> tuple[World, str]:
    """A world with a run that trains and has written these lines."""
    world = World()
    run = world.upload_version()
    world.jobs.become(run.run_id, "Running")
    world.follow(run)
    world.jobs.logs[run.run_id] = "\n".join(lines)
    return world, run.run_id


def test_an_unknown_run_is_not_found() -> None:
    """The message names it."""
    with pytest.raises(NotFoundError, match="run x does not exist"):
        describe_run("x", World().services)


def test_lines_within_an_epoch_move_the_newest_and_no_epoch() -> None:
    """The root repeats the number of the last epoch until the next one ends."""
    lines = [progress(0, loss=9), progress(1, loss=2, val_loss=2.5), progress(1, loss=1.5, step=15)]
    world, run_id = logged(*lines)
    described = describe_run(run_id, world.services)
    assert [(1.0, 2.0)] == [(epoch["epoch"], epoch["loss"]) for epoch in described.epochs]
    assert described.newest is not None
    assert (15.0, 1.5) == (described.newest["step"], described.newest["loss"])


def test_what_is_no_number_is_left_out() -> None:
    """A script may print anything behind the prefix."""
    values = ['"x"', "NaN", "Infinity", "true", "null", "[]", str(10**400)]
    lines = [
        f'{PREFIX}{{"epoch": {number}, "epochs": 9, "step": 1, "loss": {value}, "accuracy": 0.5}}'
        for number, value in enumerate(values, start=1)
    ]
    world, run_id = logged(*lines, f'{PREFIX}{{"epoch": "x", "epochs": 9, "step": 1, "loss": 1, "accuracy": 0.5}}')
    epochs = describe_run(run_id, world.services).epochs
    assert len(values) == len(epochs)
    assert [] == [epoch for epoch in epochs if "loss" in epoch]


def test_log_and_epochs_are_bounded() -> None:
    """The amount that a job writes does not matter."""
    lines = [f"{number} {'x' * 2000}" for number in range(500)]
    world, run_id = logged(*lines, *(progress(number) for number in range(1, MAX_EPOCHS + 50)))
    described = describe_run(run_id, world.services)
    assert len(described.log) <= MAX_LOG_LINES
    assert max(map(len, described.log)) <= MAX_LINE_CHARS
    assert len(described.epochs) <= MAX_EPOCHS


def test_an_ended_run_shows_the_epochs_of_its_report() -> None:
    """The log may be gone, and only its end was ever read."""
    world, run = ended_run()
    world.write_report(run, {"val_accuracy": 0.97}, epochs=({"epoch": 1.0, "loss": 0.25, "duration_s": 7.0},))
    described = describe_run(run.run_id, world.services)
    assert ({"epoch": 1.0, "loss": 0.25, "duration_s": 7.0},) == described.epochs
    assert described.is_settled


@pytest.mark.parametrize("epochs", [["x"], [{"loss": 1}], [[1]], [{"epoch": "x"}], "abc", {"a": 1}])
def test_a_report_with_other_epochs_shows_none(epochs: object) -> None:
    """A script of one's own writes the report itself."""
    world, run = ended_run()
    world.write_report(run, {"val_accuracy": 0.97})
    path = report_path(spec_from_json(run.spec))
    members = {**json.loads(world.run_outputs.documents[path]), "epochs": epochs}
    world.run_outputs.documents[path] = json.dumps(members).encode()
    assert () == describe_run(run.run_id, world.services).epochs


def test_all_attempts_are_listed_and_paid() -> None:
    """The nodes of a failed attempt were paid too."""
    world = World()
    run = world.upload_version()
    world.jobs.become(run.run_id, "Running")
    world.follow(run)
    world.clock.move(hours=1)
    world.jobs.become(run.run_id, "Failed", error="node was preempted", error_code="UserError/Preempted")
    failed = world.follow(run)
    described = describe_run(failed.next_run_id or failed.run_id, world.services)
    assert [run.run_id] == [each.run_id for each in described.attempts][:1]
    assert 2.0 == round(described.node_hours, 3)  # two nodes for an hour
    assert described.cost is None


def test_phases_follow_each_other_without_a_gap() -> None:
    """Each begins where the one before it ends."""
    world = World()
    run = world.upload_version()
    world.clock.move(minutes=2)
    world.jobs.become(run.run_id, "Running")
    world.follow(run)
    world.clock.move(minutes=10)
    world.finish(run)
    phases = describe_run(run.run_id, world.services).phases
    assert ["In line", "Waiting for nodes", "Training", "Decision and notification"] == [each.name for each in phases]
    assert [each.until for each in phases[:-1]] == [each.since for each in phases[1:]]
    assert [0, 2, 10, 0] == [round(each.duration_s / 60) for each in phases]


def test_a_run_of_azure_links_to_the_studio_and_says_where_its_summaries_are() -> None:
    """The links appear after the submission; the twin has no studio."""
    world = World()
    run = world.upload_version()
    azure = replace(world.services, pages_sign_in=SignIn.EASY_AUTH)
    workspace = "/subscriptions/00000000-0000-0000-0000-000000000000/resourcegroups/landfall/workspaces/landfall"
    assert f"https://ml.azure.com/runs/{run.run_id}?wsid={workspace}" == studio_page(run, azure)
    assert studio_page(run, replace(azure, pages_sign_in=SignIn.NONE)) is None
    found = tensorboard_files(run)
    assert found is not None
    folder = report_path(spec_from_json(run.spec)).rpartition("/")[0]
    assert ("landfall_runs", f"{folder}/tensorboard") == (found.datastore, found.path)
    assert f"az ml job download --name {run.run_id} --output-name report" in found.command
    planned = replace(run, submitted_at=None)
    assert (None, None) == (studio_page(planned, azure), tensorboard_files(planned))
    quiet = replace(run, spec={**run.spec, "command": str(run.spec["command"]).replace(WRITES, "")})
    assert tensorboard_files(quiet) is None
    page = look(world, f"/runs/{run.run_id}").text
    assert (True, False) == (found.path in page, "ml.azure.com" in page)
    header = principal(("roles", "reader"))
    page = look(world, f"/runs/{run.run_id}", sign_in=SignIn.EASY_AUTH, x_ms_client_principal=header).text
    assert f'href="https://ml.azure.com/runs/{run.run_id}?wsid={workspace}"' in page


def test_a_run_says_where_its_outputs_are() -> None:
    """This includes scripts that write no TensorBoard summaries; the outputs are shown after the submission."""
    world = World()
    run = world.upload_version()
    quiet = replace(run, spec={**run.spec, "command": str(run.spec["command"]).replace(WRITES, "")})
    world.ledger.run_rows[run.run_id] = quiet
    folders = output_folders(quiet)
    assert ["report", "model", "checkpoints"] == [each.name for each in folders]
    page = look(world, f"/runs/{run.run_id}").text
    assert [] == [each for each in folders if f"<code>{each.path}</code> in datastore" not in page]
    assert "TensorBoard" not in page
    assert () == output_folders(replace(run, submitted_at=None))
