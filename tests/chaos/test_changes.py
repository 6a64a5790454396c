"""The owner of the data: what is drawn, in which order and at which moments it is done."""

from __future__ import annotations

import random

import pytest

from function_app.domain.run_states import RunState
from tests.chaos.changes import INCIDENTS, LAST_ONLY, Change, DataOwner, Moment, moment_of
from tests.chaos.plan import ChaosPlan
from tests.chaos.report import ChaosError
from tests.support.ledger_records import DIGITS, run_record

PLAN = ChaosPlan(versions=60, shards=4, changed_fraction=1.0)
LOOKS = 1000
"""At 5 % chance for each, one of them is the one."""


def test_a_replaced_shard_keeps_its_size() -> None:
    """Only its content differs from that of the first one."""
    sizes = {name: {len(PLAN.content(name, shift)) for shift in range(10)} for name in PLAN.shard_names()}
    assert {1} == {len(found) for found in sizes.values()}
    assert 10 == len({PLAN.content(PLAN.shard_names()[0], shift) for shift in range(10)})


def test_versions_end_replaced_put_back_and_without_a_shard() -> None:
    """Each kind of end is drawn: the first content again, another one, and a missing shard."""
    first = ChaosPlan(versions=1, shards=4, changed_fraction=0.0).last_fingerprints()["chaos-000"]
    ends = list(PLAN.last_fingerprints().values())
    assert (True, True, True) == (first in ends, None in ends, len(set(ends)) > 2)


def test_the_share_of_disturbed_versions_is_as_asked() -> None:
    """The others are uploaded once and left alone."""
    assert (3, 0) == tuple(len(ChaosPlan(versions=6, shards=4, changed_fraction=s).changes()) for s in (0.5, 0.0))


def test_a_share_above_one_is_refused() -> None:
    """The message names the option."""
    with pytest.raises(ChaosError, match="--changed 2 is no share"):
        ChaosPlan(changed_fraction=2.0)


def test_only_the_last_incident_leaves_a_version_without_a_shard() -> None:
    """All others end with the shards written."""
    assert {LAST_ONLY} == {name for name, steps in INCIDENTS.items() if steps[-1].name == "GONE"}


def owner(*moments: Moment) -> tuple[DataOwner, list[bytes | None]]:
    """An owner with one change of the first shard for each moment, and what it has written."""
    written: list[bytes | None] = []
    changes = [Change(moment=moment, contents={"s": bytes([n])}) for n, moment in enumerate(moments)]
    made = DataOwner(
        changes={DIGITS.dataset: changes},
        write=lambda _dataset, _name, content: written.append(content),
        dice=random.Random(1),  # noqa: S311 (chances, not secrets)
    )
    return made, written


def test_no_shard_is_changed_before_its_upload() -> None:
    """The upload would undo the change."""
    data_owner, written = owner(Moment.UPLOADED)
    for _ in range(LOOKS):
        data_owner.act([])
    assert [] == written
    data_owner.uploaded.add((DIGITS.dataset, "s"))
    for _ in range(LOOKS):
        data_owner.act([])
    assert ([b"\0"], True, {"before a run": 1}) == (written, data_owner.is_done, data_owner.made)


def test_changes_are_made_in_order_when_their_moment_has_come() -> None:
    """The second one waits for the job, although the first one is long done."""
    data_owner, written = owner(Moment.QUEUED, Moment.TRAINING)
    data_owner.uploaded.add((DIGITS.dataset, "s"))
    for state, expected in ((RunState.SUBMITTED, [b"\0"]), (RunState.RUNNING, [b"\0", b"\1"])):
        for _ in range(LOOKS):
            data_owner.act([run_record(1, state=state)])
        assert expected == written


def test_a_run_that_waits_in_the_calm_gets_its_change() -> None:
    """It may wait for that very shard."""
    data_owner, written = owner(Moment.ENDED)
    for _ in range(LOOKS):
        data_owner.act([run_record(1, state=RunState.PLANNED)], is_calm=True)
    assert [b"\0"] == written


@pytest.mark.parametrize("state", RunState)
def test_every_state_is_a_moment(state: RunState) -> None:
    """No state of a run is forgotten."""
    assert moment_of(run_record(1, state=state)) in Moment
