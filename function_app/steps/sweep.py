"""The sweep: whatever can be missed is looked for, and repaired by the very steps that missed it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import TypeVar

from function_app.errors import LandfallError
from function_app.ledger import DatasetVersion, RunRecord
from function_app.run_states import Actor
from function_app.steps.closing import close_version
from function_app.steps.flights import sweep_flights
from function_app.steps.follow_up import follow_up
from function_app.steps.inventory import missed_shards, unclosed_changes
from function_app.steps.notification import deliver_one
from function_app.steps.reconciliation import reconcile_run
from function_app.steps.services import Services
from function_app.steps.shard_places import ShardPlace
from function_app.steps.submission import AWAITING_SUBMISSION, submit_run
from function_app.steps.uploads import judge_shard

logger = logging.getLogger(__name__)

MAX_SHARDS = 500
"""Judged in one sweep, for each dataset: the timer has other work, and comes again."""

_Thing = TypeVar("_Thing")


class SweepError(LandfallError):
    """Parts of a sweep failed; the others were done, and the next sweep tries again."""


def sweep(services: Services) -> None:
    """Compare the ledger with storage and Azure ML, and repair the difference. Raises SweepError at the end."""
    ledger = services.ledger
    problems: list[str] = []
    for dataset in services.pipelines:
        problems += _each(islice(missed_shards(dataset, services), MAX_SHARDS), lambda p: _judge_missed(p, services))
    problems += _each(ledger.versions(), lambda version: _care_for_version(version, services))
    problems += _each(ledger.unfinished_runs(), lambda run: _care_for_run(run, services))
    problems += _each([services], sweep_flights)
    problems += _each(ledger.unsent_notifications(), lambda row: deliver_one(row, services))
    if problems:
        raise SweepError(f"{len(problems)} parts of the sweep failed; the first: {problems[0]}")


def _each(things: Iterable[_Thing], care: Callable[[_Thing], object]) -> Iterator[str]:
    """Care for one after the other; what fails is yielded in words, and holds up no other."""
    try:
        for thing in things:
            try:
                care(thing)
            except LandfallError as error:
                logger.exception("a part of the sweep failed", extra={"action": "sweep_failed"})
                yield str(error)
    except LandfallError as error:
        logger.exception("a part of the sweep failed", extra={"action": "sweep_failed"})
        yield str(error)


def _judge_missed(place: ShardPlace, services: Services) -> None:
    """Judge a shard, a long one for one slice only: the timer has other work, and the queue takes over."""
    one_slice = replace(services.slices, budget_s=services.slices.checkpoint_every_s)
    judge_shard(place, replace(services, slices=one_slice))


def _care_for_version(version: DatasetVersion, services: Services) -> None:
    pipeline = services.pipelines.get(version.dataset)
    if pipeline is None:
        return
    generation = services.ledger.latest_generation(version)
    if generation is None or unclosed_changes(version, generation, services):
        close_version(pipeline, version, services)
    elif services.clock() - generation.closed_at >= services.sweep_grace:
        follow_up(pipeline, generation, services)


def _care_for_run(run: RunRecord, services: Services) -> None:
    if run.state not in AWAITING_SUBMISSION:
        reconcile_run(run.run_id, services, by=Actor.SWEEP)
    elif services.clock() - run.state_since >= services.sweep_grace:
        submit_run(run, services, by=Actor.SWEEP)
