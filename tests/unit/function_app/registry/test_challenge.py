"""The challenge: a model is compared with the current one in pairs of the same examples, and the numbers say so."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from function_app.config.registration import Compare
from function_app.domain.model_versions import CURRENT_TAG
from function_app.domain.records import RunRecord
from function_app.domain.run_states import RunState
from function_app.registry.challenge import in_words
from function_app.registry.examples import ExamplesError, examples_path, parse_examples
from function_app.registry.paired import Interval
from tests.support.world import VALIDATION_SHARDS, World, pipeline, shard_content

NUMBER = 400


def results(right: int, number: int = NUMBER, *, wrong_first: int = 0, **columns: Any) -> bytes:
    """A file whose examples are ``right`` from number ``wrong_first`` on."""
    accuracy = [float(wrong_first <= i < wrong_first + right) for i in range(number)]
    members = {"shard": [VALIDATION_SHARDS[0]] * number, "record": list(range(number)), "accuracy": accuracy}
    written = BytesIO()
    table = {name: values for name, values in {**members, **columns}.items() if values is not None}
    pq.write_table(pa.table(table), written)
    return written.getvalue()


def challenge(second: bytes | None, accuracy: float, *, validation: bytes | None = None, **rule: Any) -> World:
    """A world whose first model has 0.96, and whose second one left these results; its validation data may differ."""
    world = World()
    register = pipeline().register_
    assert register is not None
    compare = Compare(**rule) if rule.get("compare", True) else None
    world.change_pipeline(register_=register.model_copy(update={"compare": compare}), on_change="train")
    train(world, world.train(), results(384), 0.96)
    again = world.change_shard(7)
    if validation is not None:
        world.deliver(world.put(VALIDATION_SHARDS[0], validation))
        world.serve_requests()
        world.end_job(again, "Failed")
        world.follow(again)
        world.serve_requests()
        again = world.ledger.runs()[0]
    train(world, again, second, accuracy)
    return world


def train(world: World, run: RunRecord, content: bytes | None, accuracy: float) -> None:
    """Let a run end with results of each example."""
    if content is not None:
        world.run_outputs.write(examples_path(run), content)
    world.end_job(run, val_accuracy=accuracy)
    world.follow(run)


def newest(world: World) -> RunRecord:
    """Return the run that challenged."""
    return world.ledger.runs()[0]


def current(world: World) -> list[str]:
    """Return the runs whose models have the tag of the current version."""
    return [m.tags["landfall.run_id"] for m in world.models.registered.values() if CURRENT_TAG in m.tags]


def test_the_first_model_is_registered_and_promoted() -> None:
    """There is nothing to compare it with."""
    world = World()
    run = world.train()
    train(world, run, results(384), 0.96)
    run = world.stands(run)
    assert (RunState.REGISTERED, True, None) == (run.state, run.evidence["promoted"], run.evidence.get("comparison"))
    assert [run.run_id] == current(world)
    value, low, high = run.evidence["intervals"]["val_accuracy"]
    assert (0.96, True) == (value, 0.93 < low < 0.96 < high < 0.99)


def test_a_metric_with_a_long_name_gets_no_interval() -> None:
    """Otherwise the intervals would not fit into the run's row."""
    world = World()
    run = world.train()
    names = [f"{number:02}{'x' * 1000}" for number in range(20)]
    columns: dict[str, Any] = {name: [0.5] * NUMBER for name in names}
    world.run_outputs.write(examples_path(run), results(384, **columns))
    world.write_report(run, {"val_accuracy": 0.96, **{f"val_{name}": 0.5 for name in names}})
    world.jobs.become(run.run_id, "Completed")
    assert ["val_accuracy"] == list(world.follow(run).evidence["intervals"])


def test_a_better_model_is_promoted_with_the_interval_in_words() -> None:
    """It is in the run, in its history and in the notification."""
    world = challenge(results(396), 0.99)
    run = newest(world)
    difference = run.evidence["comparison"]["difference"]
    assert (RunState.REGISTERED, True) == (run.state, run.evidence["promoted"])
    assert 0.03 == pytest.approx(difference["value"])
    words = run.evidence["comparison"]["words"]
    assert words.startswith("val_accuracy 3.0 points better, 95 % between 1.")
    assert f"(the current version {first_version(world)} on the same 400 examples)" in words
    assert words in str(world.topic.received[-1].content["text"])
    assert "is registered and promoted" in str(world.topic.received[-1].content["text"])
    assert any(words in entry.reason for entry in world.ledger.history(run.run_id))
    assert [run.run_id] == current(world)


def first_version(world: World) -> str:
    """Return the version of the first model."""
    return str(world.ledger.runs()[-1].model_version)


def test_a_worse_model_is_not_registered_although_its_conditions_hold() -> None:
    """The interval is the reason, and the current model stays."""
    world = challenge(results(380), 0.95)
    run = newest(world)
    assert RunState.NOT_REGISTERED is run.state
    assert str(run.reason).startswith("val_accuracy 1.0 points worse, 95 % between 0.25 and ")
    assert str(run.reason).endswith("; register.compare demands: not worse")
    assert run.evidence["comparison"]["difference"]["high"] <= 0
    assert (1, [world.ledger.runs()[-1].run_id]) == (len(world.models.registered), current(world))


def test_a_difference_that_may_be_chance_is_not_worse() -> None:
    """Right on 12 examples where the other is wrong, and wrong on 15 where it is right."""
    assert RunState.REGISTERED is newest(challenge(results(381, wrong_first=15), 0.9525)).state


@pytest.mark.parametrize(
    ("right", "rule", "state"),
    [
        (384, {"accept": "not_worse"}, RunState.REGISTERED),
        (384, {"accept": "not_worse", "margin": 0.01}, RunState.REGISTERED),
        (384, {"accept": "better"}, RunState.NOT_REGISTERED),
        (396, {"accept": "better"}, RunState.REGISTERED),
        (396, {"accept": "better", "margin": 0.025}, RunState.NOT_REGISTERED),
        (380, {"accept": "not_worse", "margin": 0.03}, RunState.REGISTERED),
        (380, {"accept": "not_worse"}, RunState.NOT_REGISTERED),
    ],
)
def test_the_pipeline_says_what_the_interval_must_show(right: int, rule: dict[str, Any], state: RunState) -> None:
    """The options are: not shown to be worse, worse by at most a margin, or better by one."""
    assert state is newest(challenge(results(right), right / NUMBER, **rule)).state


@pytest.mark.parametrize(
    ("second", "why"),
    [
        (None, "has no results of each example"),
        (b"no parquet", "it cannot be read"),
        (results(384, 399), "evaluated on different examples"),
        (results(384, accuracy=None, f1=[1.0] * NUMBER), "there is no column for val_accuracy"),
        (results(300), "give val_accuracy 0.75, but the report says 0.96"),
        (results(384, record=[0] * NUMBER), "are in two rows"),
        (results(384, accuracy=[float("nan")] * NUMBER), "a finite number in each row"),
        (results(384, accuracy=["right"] * NUMBER), "must have numbers"),
        (results(384, shard=["elsewhere"] * NUMBER), "evaluated on different examples"),
    ],
)
def test_what_cannot_be_compared_is_registered_by_its_conditions_and_left_to_a_person(
    second: bytes | None, why: str
) -> None:
    """The evidence says why; the current model stays current."""
    world = challenge(second, 0.96)
    run = newest(world)
    assert (RunState.REGISTERED, False) == (run.state, run.evidence["promoted"])
    assert why in run.evidence["comparison"]["words"]
    assert run.evidence["promotion"].endswith(f"landfall promote digits-cnn:{run.model_version}")
    assert [run.run_id] != current(world)
    assert why in str(world.topic.received[-1].content["text"])


def test_a_column_of_texts_is_refused_before_it_is_decoded() -> None:
    """The file has one text of 64 KiB; decoded, its column would have 25 MiB."""
    content = results(384, text=["x" * (64 << 10)] * NUMBER)
    before = pa.default_memory_pool()
    counted = pa.proxy_memory_pool(before)
    pa.set_memory_pool(counted)
    try:
        with pytest.raises(ExamplesError, match="column text must have numbers, not string"):
            parse_examples(content)
    finally:
        pa.set_memory_pool(before)
    assert counted.max_memory() < 4 << 20


def test_other_content_of_the_validation_data_is_no_ground_for_a_comparison() -> None:
    """Names and numbers of the records are the same, and the manifests say that the records are others."""
    world = challenge(results(396), 0.99, validation=shard_content(1, 2, 3, 4))
    words = newest(world).evidence["comparison"]["words"]
    assert f"the validation data differ: {VALIDATION_SHARDS[0]} has other content" in words


def test_other_training_data_do_not_matter() -> None:
    """A new version may well have other training shards; the fingerprints differ."""
    world = challenge(results(396), 0.99)
    prints = {run.fingerprint for run in world.ledger.runs()}
    assert (2, True) == (len(prints), newest(world).evidence["comparison"]["difference"] is not None)


def test_a_pipeline_may_leave_out_the_comparison() -> None:
    """The conditions alone decide then, and the newest model is the current one."""
    world = World()
    register = pipeline().register_
    assert register is not None
    world.change_pipeline(register_=register.model_copy(update={"compare": None}), on_change="train")
    train(world, world.train(), None, 0.99)
    train(world, world.change_shard(7), None, 0.96)
    run = newest(world)
    assert (True, None, [run.run_id]) == (run.evidence["promoted"], run.evidence.get("comparison"), current(world))


def test_a_pipeline_may_leave_the_promotion_to_a_person() -> None:
    """The model is registered without the tag."""
    world = World()
    register = pipeline().register_
    assert register is not None
    world.change_pipeline(register_=register.model_copy(update={"promote": "by_person"}))
    run = world.train()
    train(world, run, None, 0.99)
    assert (RunState.REGISTERED, []) == (world.stands(run).state, current(world))
    assert "register.promote is by_person" in world.stands(run).evidence["promotion"]


@pytest.mark.parametrize(
    ("interval", "is_share", "words"),
    [
        ((0.021, 0.014, 0.028), True, "2.1 points better, 95 % between 1.4 and 2.8"),
        ((-0.021, -0.028, -0.014), True, "2.1 points worse, 95 % between 1.4 and 2.8 worse"),
        ((0.004, -0.002, 0.01), True, "0.4 points better, 95 % between 0.2 worse and 1.0 better"),
        ((0.0, 0.0, 0.0), True, "as good, 95 % between 0.0 and 0.0"),
        ((0.0312, 0.01, 0.05), False, "0.031 better, 95 % between 0.01 and 0.05"),
    ],
)
def test_a_difference_is_said_in_words(interval: tuple[float, float, float], is_share: bool, words: str) -> None:  # noqa: FBT001
    """Points of a hundred for shares, the metric's own unit for anything else."""
    value, low, high = interval
    assert words == in_words(Interval(value=value, low=low, high=high), is_share=is_share)
