"""Scripts of users' own on the twin: a sound one trains and registers, a bad one is refused, force insists."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.api_client import ApiError
from tests.integration.twin.shards import whole_version
from tests.support.twin import PIPELINES, TwinUnderTest, options, twin_under_test

pytestmark = pytest.mark.twin

SCRIPT = (Path(__file__).parent / "own_scripts" / "small.py").read_text(encoding="utf-8")
AVERAGING = "        tape = hvd.DistributedGradientTape(tape)\n"
CARELESS = SCRIPT.replace(AVERAGING, "")


def write_pipeline(folder: Path, name: str, script: str) -> None:
    """Write a pipeline with its script; nothing else tells the script where its imports are."""
    text = (PIPELINES / "steady.yaml").read_text(encoding="utf-8").replace("steady", name)
    text = text.replace("stand_in.py", f"{name}.py").replace('{PYTHONPATH: ".", STAND_IN_VAL_ACCURACY: "0.99"}', "{}")
    (folder / f"{name}.yaml").write_text(text.replace("at_least: 0.95", "at_least: 0.7"), encoding="utf-8")
    (folder / "scripts" / f"{name}.py").write_text(script, encoding="utf-8")


@pytest.fixture(scope="module")
def own_twin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwinUnderTest]:
    """A twin with two pipelines: one's script is sound, the other's averages nothing."""
    folder = tmp_path_factory.mktemp("pipelines")
    (folder / "scripts").mkdir()
    write_pipeline(folder, "sound", SCRIPT)
    write_pipeline(folder, "careless", CARELESS)
    with twin_under_test(options(tmp_path_factory.mktemp("twin"), pipelines=folder)) as running:
        yield running


def test_a_sound_script_runs_to_a_registered_model(own_twin: TwinUnderTest) -> None:
    """Two real ranks, a report that the gate accepts, a model."""
    own_twin.upload("sound/v1", whole_version())
    run = own_twin.await_settled("sound/v1")
    assert ("registered", 2, 1) == (run["state"], run["world_size"], len(own_twin.models(run["run_id"]))), run


def test_a_bad_script_is_refused_until_it_is_forced(own_twin: TwinUnderTest) -> None:
    """The run that the closing wanted, the answer to a request and the story all name file, line and rule.

    Forced, it shows why: each rank has learned its own half of the labels, and the gate refuses the model.
    """
    assert AVERAGING in SCRIPT
    line = CARELESS[: CARELESS.index("tape.gradient")].count("\n") + 1
    found = f"scripts/careless.py:{line}: tape_not_distributed"
    own_twin.upload("careless/v1", whole_version())
    run = own_twin.await_settled("careless/v1")
    assert ("failed", "user_code", True) == (run["state"], run["failure_class"], found in run["reason"]), run
    with pytest.raises(ApiError, match="tape_not_distributed") as refused:
        own_twin.api.submit("careless", "v1", {})
    assert (422, "script_refused") == (refused.value.status, refused.value.code)
    forced = own_twin.api.submit("careless", "v1", {}, force=True)
    own_twin.await_quiet()
    ended = own_twin.await_settled("careless/v1")
    story = own_twin.api.get(f"/api/why/{forced['run_id']}")
    assert (forced["run_id"], "not_registered", True) == (ended["run_id"], ended["state"], found in str(story)), ended
