"""A pipeline's own script: looked at before its job is submitted, refused for its errors, let through by force."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path

import pytest

from function_app.config.pipeline_files import MAX_MODULES, read_modules, read_script
from function_app.domain.errors import ScriptRefusedError
from function_app.domain.records import RunRecord
from function_app.domain.run_states import RunState
from function_app.runs.mistakes import ScriptCheck, check_script
from function_app.runs.requests import request_run
from function_app.runs.submission import submit_run
from function_app.runs.sweep_requests import SweepRequest, request_sweep
from function_app.sweep.sweep import run_sweep
from horovod_lint import ScriptError
from tests.support.world import ALL_SHARDS, VERSION, World, pipeline

GOOD = "import horovod.tensorflow as hvd\nhvd.init()\n"
BAD = "import horovod.tensorflow as hvd\nprint(hvd.rank())\nepochs = 10 // hvd.size()\n"
SLOW = GOOD + 'import os\nos.environ["NCCL_IB_DISABLE"] = "1"\n'


def world_with(script: str, **train: object) -> World:
    """A world whose pipeline has a script of its own."""
    world = World()
    settings = {"script": "scripts/mine.py", **train}
    world.change_pipeline(train=pipeline().train.model_copy(update=settings))
    deploy(world, script)
    return world


def deploy(world: World, script: str) -> None:
    """Put the script beside the pipeline."""
    world.services = replace(world.services, read_script=lambda _: script.encode())


HELPED = """
import horovod.tensorflow as hvd
import tensorflow as tf
from parts import optimizer_of
hvd.init()
optimizer = optimizer_of()
hvd.broadcast_variables([], root_rank=0)
data = tf.data.Dataset.range(9).shard(hvd.size(), hvd.rank())
for step, batch in enumerate(data.take(9 // hvd.size())):
    optimizer.minimize(lambda: batch, [])
"""
PARTS = """
import horovod.tensorflow as hvd
import tensorflow as tf

def optimizer_of():
    return hvd.DistributedOptimizer(tf.compat.v1.train.AdamOptimizer(0.1 * hvd.size()))
"""
PLAIN = PARTS.replace(
    "hvd.DistributedOptimizer(tf.compat.v1.train.AdamOptimizer(0.1 * hvd.size()))",
    "tf.compat.v1.train.AdamOptimizer(0.1 * hvd.size())",
)


def checked(folder: Path, **train: object) -> ScriptCheck:
    """Return what is found in the script of a pipeline in a folder."""
    settings = {"script": "scripts/mine.py", **train}
    changed = {"train": pipeline().train.model_copy(update=settings)}
    read, modules = functools.partial(read_script, folder), functools.partial(read_modules, folder)
    return check_script(pipeline().model_copy(update=changed), read, modules)


def asked(world: World, key: str | None = None) -> RunRecord:
    """Return the answer to a person who requests a run, with force if there is a key."""
    run, _ = request_run(VERSION, {}, trigger="http", services=world.services, forced_by=key)
    return run


def test_a_script_without_errors_is_submitted() -> None:
    """Under its own command."""
    world = world_with(GOOD)
    run = world.upload_version()
    assert ("submitted", True) == (
        run.state,
        world.jobs.submitted[run.run_id].command.startswith("python -m training_job.machines scripts/mine.py "),
    )


@pytest.mark.parametrize(
    ("parts", "name", "errors"),
    [
        (PARTS, "scripts/parts.py", ()),
        (PLAIN, "scripts/parts.py", ("optimizer_not_distributed",)),
        (PLAIN, "lib/parts.py", ()),  # nothing says that its folder is on the script's path
        (PLAIN, "parts.py", ("optimizer_not_distributed",)),
    ],
)
def test_a_script_is_read_with_the_modules_that_it_imports(
    tmp_path: Path, parts: str, name: str, errors: tuple[str, ...]
) -> None:
    """A mistake in an imported module is found, and a module that avoids one is read."""
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / "scripts").mkdir(exist_ok=True)
    (tmp_path / name).write_text(parts)
    (tmp_path / "scripts" / "mine.py").write_text(HELPED)
    files = () if name.startswith("scripts/") else (name,)
    found = checked(tmp_path, files=files)
    assert errors == found.codes, found.errors


def test_an_error_in_a_module_names_its_file(tmp_path: Path) -> None:
    """The line is that of the module; modules that nothing imports, and folders of installed code, are ignored."""
    for name, text in {
        "mine.py": "import parts\nparts.train()\n",
        "parts.py": BAD + "\n\ndef train():\n    pass\n",
        "other.py": BAD,
        "venv/parts.py": GOOD,
    }.items():
        (tmp_path / "scripts" / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / "scripts" / name).write_text(text)
    found = checked(tmp_path, script="scripts/mine.py")
    assert found.errors
    assert all(error.startswith("scripts/parts.py:") for error in found.errors)


@pytest.mark.parametrize(
    ("script", "errors"),
    [
        ("import helper\n", ("scripts/broken.py:1: not Python 3: 'return' outside function",)),
        ("def unused():\n    import broken\n", ()),
    ],
)
def test_a_module_that_python_refuses_is_an_error_where_the_script_starts_with_it(
    tmp_path: Path, script: str, errors: tuple[str, ...]
) -> None:
    """This includes an import through another module; the job would fail at the import, on paid nodes."""
    (tmp_path / "scripts").mkdir()
    for name, text in {"mine": script, "helper": "from broken import x\n", "broken": "return 1\n"}.items():
        (tmp_path / "scripts" / f"{name}.py").write_text(text)
    found = checked(tmp_path)
    assert (errors, errors and ("unreadable",)) == (found.errors, found.codes)


def test_more_modules_than_are_read_are_an_error_that_says_so(tmp_path: Path) -> None:
    """The script is not judged without them."""
    (tmp_path / "scripts").mkdir()
    for number in range(MAX_MODULES + 1):
        (tmp_path / "scripts" / f"m{number}.py").touch()
    found = checked(tmp_path, script="scripts/m0.py")
    assert (("unreadable",), True) == (found.codes, "more than 500 modules" in found.summary)


def test_a_closing_with_a_bad_script_ends_failed_and_recipients_learn_why() -> None:
    """Reason, history and notification name file, line and code; nothing reaches Azure ML."""
    world = world_with(BAD)
    run = world.upload_version()
    assert ("failed", "user_code", "stop", {}) == (run.state, run.failure_class, run.remedy, world.jobs.submitted)
    for text in (
        run.reason or "",
        *(d.reason for d in world.ledger.history(run.run_id) if d.action == "submission_refused"),
    ):
        assert "scripts/mine.py:2: missing_init" in text
        assert "scripts/mine.py:3: epochs_divided" in text
    assert [True] == ["missing_init" in str(sent.content) for sent in world.topic.received]


PARSER = """import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--rate", type=float)
for_job = parser.parse_args()
"""
"""A parser that would exit at an argument of the job."""


def test_an_argument_that_the_script_does_not_know_is_refused_before_nodes_are_asked_for() -> None:
    """The error has the line and the argument; paths and known arguments are accepted."""
    world = world_with(GOOD + PARSER, pass_paths=False, arguments=("--epochs", "3"))
    run = world.upload_version()
    assert ("failed", "user_code", {}) == (run.state, run.failure_class, world.jobs.submitted)
    assert "scripts/mine.py:6: arguments_not_taken: the job passes --epochs, which this parser" in str(run.reason)
    knowing = world_with(GOOD + PARSER, pass_paths=False, arguments=("--rate", "3"))
    assert "submitted" == knowing.upload_version().state


def test_the_sweep_refuses_what_a_dead_handler_left_behind() -> None:
    """The place in the run queue is released, too."""
    world = world_with(BAD)
    world.upload_shards(*ALL_SHARDS)
    world.requests.messages.clear()
    world.clock.move(hours=1)
    run_sweep(world.services)
    world.serve_requests()
    assert ("failed", {}) == (world.only_run().state, world.jobs.submitted)
    deploy(world, GOOD)
    assert "submitted" == world.train(version="v2").state


def test_asking_for_a_run_with_a_bad_script_is_refused_with_the_findings() -> None:
    """Nothing is written down."""
    world = world_with(GOOD)
    world.finish(world.upload_version())
    deploy(world, BAD)
    before = len(world.ledger.runs())
    with pytest.raises(ScriptRefusedError, match=r"scripts/mine\.py has 2 errors.*force") as refused:
        asked(world)
    assert ["missing_init", "epochs_divided"] == [each.split(": ")[1] for each in refused.value.findings]
    assert before == len(world.ledger.runs())


def test_force_lets_a_bad_script_through_and_the_lineage_says_so() -> None:
    """History, job and model name the codes."""
    world = world_with(GOOD)
    world.finish(world.upload_version())
    deploy(world, BAD)
    run = asked(world, "key-1")
    world.serve_requests()
    run = world.finish(run)
    assert "registered" == run.state
    models = {model.tags["landfall.run_id"]: model.tags for model in world.models.registered.values()}
    codes = "missing_init,epochs_divided"
    assert (codes, codes) == (
        world.jobs.submitted[run.run_id].tags["landfall.script_errors"],
        models[run.run_id]["landfall.script_errors"],
    )
    assert "script_errors_forced" in world.actions(run.run_id)


def test_warnings_are_recorded_and_refuse_nothing() -> None:
    """The cluster's size has InfiniBand."""
    world = world_with(SLOW)
    world.change_machines(vm_size="Standard_ND96asr_v4")
    world.upload_version()
    run = asked(world, "key-1")
    warnings = [d.reason for d in world.ledger.history(run.run_id) if d.action == "script_warnings"]
    assert [True] == ["scripts/mine.py:4: infiniband_disabled" in text for text in warnings]


@pytest.mark.parametrize("script", ["print 'hello'", "def broken(:", "\0"])
def test_a_script_that_cannot_be_read_is_refused(script: str) -> None:
    """It could not run either."""
    world = world_with(script)
    run = world.upload_version()
    assert ("failed", True) == (run.state, "scripts/mine.py:1: not Python" in (run.reason or ""))


def test_a_script_that_is_not_there_is_refused() -> None:
    """The deployment was not whole."""

    def gone(script: str) -> bytes:
        raise ScriptError(f"{script}: should be in the folder of the pipelines")

    world = world_with(GOOD)
    world.services = replace(world.services, read_script=gone)
    assert ("failed", True) == (
        (run := world.upload_version()).state,
        "should be in the folder" in (run.reason or ""),
    )


def test_a_job_that_azure_ml_has_already_is_followed() -> None:
    """The process that submitted it died before recording that, and a stricter rule was deployed since."""
    world = world_with(GOOD)
    run = world.upload_version()
    world.ledger.run_rows[run.run_id] = replace(world.stands(run), state=RunState.SUBMITTING, claimed_until=None)
    deploy(world, BAD)
    assert "submitted" == submit_run(world.stands(run), world.services).state


def test_a_claim_that_was_left_behind_is_looked_at_again() -> None:
    """The process that claimed it died before refusing; Azure ML has no such job."""
    world = world_with(BAD)
    world.upload_shards(*ALL_SHARDS)
    deploy(world, GOOD)
    world.jobs.refusal = "stop here"
    world.serve_requests()
    world.jobs.refusal = None
    run = world.only_run()
    world.ledger.run_rows[run.run_id] = replace(run, state=RunState.SUBMITTING, claimed_until=None, remedy=None)
    deploy(world, BAD)
    assert ("failed", {}) == (submit_run(world.stands(run), world.services).state, world.jobs.submitted)


def test_a_later_attempt_is_not_looked_at_again() -> None:
    """It goes on with the code that was let through."""
    world = world_with(GOOD)
    run = world.upload_version()
    deploy(world, BAD)
    world.jobs.become(run.run_id, "Failed", error="the node was preempted")
    world.follow(run)
    world.serve_requests()
    following = world.stands(run).next_run_id
    assert "submitted" == world.ledger.run_rows[str(following)].state


def test_the_script_must_take_the_arguments_of_every_run_of_a_sweep() -> None:
    """One run's value ends the parser: nothing is queued for any of them, unless it is forced."""
    world = world_with(GOOD + PARSER.replace("float", "int"), pass_paths=False, arguments=("--rate", "1"))
    world.finish(world.upload_version())
    before = len(world.ledger.runs())

    def sweep(*rates: float, forced_by: str | None = None) -> int:
        each = [{"rate": rate} for rate in rates]
        wanted = SweepRequest(
            version=VERSION, option_sets=each, max_node_hours=50, trigger="http", forced_by=forced_by
        )
        return len(request_sweep(wanted, world.services)[0].runs)

    with pytest.raises(ScriptRefusedError) as refused:
        sweep(2, 3, 0.5)
    words = "argument --rate: invalid int value: '0.5' (run 3 of the sweep)"
    assert [True] == [words in each for each in refused.value.findings]
    assert before == len(world.ledger.runs())
    assert (2, 3) == (sweep(2, 3), sweep(2, 3, 0.5, forced_by="key"))
