"""The faults of a storm: of jobs by their name, scripts for calls of Azure ML, and a draw for storage requests.

All follow from a seed.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from function_app.domain.failures import FailureClass
from local_azure.azure_ml.faults import FAULTS, RETRIED, SDK_TRIES, AnswerFault, LaunchFault, LifeFault, NamedFault
from tests.chaos.storage_proxy import Draw, StorageFault

TIME_OUT_S = 31.0
"""One second longer than the client waits for an answer."""
CHANGED_NAME = {
    "status": 400,
    "code": "UserError",
    "message": "A job with this name already exists. If you are trying to create a new job, use a different name. "
    "If you are trying to update an existing job, the existing job's command cannot be changed.",
    "inner": ["Immutable", "JobPropertyImmutable"],
    "effect_first": True,
}
"""The service's answer for a job that exists; here the emulator creates the job first and then answers this."""
ANY_CALL: tuple[dict[str, Any], ...] = (
    {"status": 429, "retry_after_s": 1},
    {"status": 503},
    {"status": 503, "effect_first": True},
    {"drop": True},
    {"drop_after": True},
)
TARGETS = (("PUT", "/jobs/"), ("PUT", "/jobs/"), ("GET", "/jobs/"), ("PUT", "/models/"))
"""Calls that may fail. Submissions are listed twice because they are what must not be repeated."""
SHARE_OF_TIME_OUTS, SHARE_OF_CHANGED_NAMES = 0.03, 0.25
"""Shares of the faults of submissions."""
HOST_BLOBS, SEND = "/azure-webjobs-", "POST"
"""Requests of the Functions host itself are spared: its blobs, and every queue request but sending."""
IN_A_ROW = (1, 1, 1, 6)
"""Lengths of a fault in requests: the SDK's first retry gets past one, and gives up before the end of six."""

ENDS: Mapping[NamedFault, FailureClass] = {
    LaunchFault.ONE_RANK: FailureClass.MISSING_RESOURCES,
    LaunchFault.ONE_NODE: FailureClass.MISSING_RESOURCES,
    LaunchFault.NO_GPU: FailureClass.MISSING_RESOURCES,
    LaunchFault.NO_OUTPUTS: FailureClass.COMMUNICATION,
    LifeFault.CAPACITY: FailureClass.NO_CAPACITY,
    LifeFault.COMPUTE_GONE: FailureClass.CANCELED,
    LifeFault.IMAGE_BUILD: FailureClass.IMAGE_BUILD,
    LifeFault.PACKAGES: FailureClass.PACKAGES,
    LifeFault.PREEMPTED: FailureClass.PREEMPTED,
    AnswerFault.FORBIDDEN: FailureClass.CONFIGURATION,
    AnswerFault.NAME_TAKEN: FailureClass.CONFIGURATION,
    AnswerFault.QUOTA: FailureClass.NO_CAPACITY,
    AnswerFault.UNKNOWN_COMPUTE: FailureClass.CONFIGURATION,
}
"""Faults that end a run, and why it has ended then; another attempt or a request leads to the model.

With any other fault the run goes on.
"""
ONE_EACH: Sequence[Sequence[NamedFault]] = (
    (LifeFault.NOT_RESPONDING, LifeFault.SLOW_BUILD, LifeFault.UNKNOWN_STATE),
    (AnswerFault.LOST_AFTER, AnswerFault.TRUNCATED),
)
"""Faults with which a job may succeed, so that no later job of its version meets what is left of the same kind."""
NEED_SEVERAL_NODES = frozenset({LaunchFault.ONE_RANK, LaunchFault.ONE_NODE})


@dataclass(frozen=True, kw_only=True)
class PlannedFault:
    """A fault that jobs of a dataset, or calls about them, meet once or several times."""

    fault: NamedFault
    dataset: str
    times: int = 1


def deal_faults(dice: random.Random, whole: Sequence[str], steady: Sequence[str]) -> list[PlannedFault]:
    """Deal each fault to a dataset, and each dataset a fault, in such an order that all of them are met.

    ``whole``: datasets that have a model in the end. ``steady``: those of them whose data do not change. What two
    datasets cannot both have is left out where there are too few of them.
    """
    dealt: list[tuple[NamedFault, str]] = []
    turns = itertools.cycle(dice.sample(whole, len(whole)))
    last = {fault for faults in ONE_EACH for fault in faults}
    first = [fault for fault in FAULTS if fault not in last]
    for fault, dataset in zip(dice.sample(first, len(first)), turns, strict=False):
        if fault is LifeFault.NO_END_EVENT:
            continue  # shows only where the job fails
        of = dice.choice(steady) if fault is LifeFault.COMPUTE_GONE and steady else dataset
        dealt.append((fault, of))
        if fault is LaunchFault.NO_OUTPUTS:
            dealt.append((LifeFault.NO_END_EVENT, of))
    for faults in ONE_EACH:
        some = dice.sample(whole, min(len(whole), len(faults)))
        dealt += zip(dice.sample(faults, len(faults)), some, strict=False)
    without = sorted(set(whole) - {dataset for _, dataset in dealt})
    dealt += [(dice.choice((LifeFault.CAPACITY, LifeFault.PREEMPTED, AnswerFault.CONFLICT)), one) for one in without]
    return [
        PlannedFault(fault=fault, dataset=dataset, times=dice.choice((1, SDK_TRIES)) if fault in RETRIED else 1)
        for fault, dataset in dealt
    ]


def call_fault(dice: random.Random) -> dict[str, Any]:
    """Return a fault script for one call of Azure ML."""
    method, path = dice.choice(TARGETS)
    done = dict(dice.choice(ANY_CALL))
    if (method, path) == TARGETS[0]:
        fate = dice.random()
        if fate < SHARE_OF_TIME_OUTS:
            done = {"delay_after_s": TIME_OUT_S}
        elif fate < SHARE_OF_TIME_OUTS + SHARE_OF_CHANGED_NAMES:
            done = dict(CHANGED_NAME)
    return {"match": {"method": method, "path": path}, "times": 1, "do": done}


def storage_faults(dice: random.Random, share: float, in_a_row: Sequence[int] = IN_A_ROW) -> Draw:
    """Return a draw that starts a fault at a share of the requests; some faults outlast the SDK's retries."""
    left: list[StorageFault] = []

    def draw(service: str, verb: str, path: str) -> StorageFault | None:
        if HOST_BLOBS in path or (service == "queue" and verb != SEND):
            return None
        if not left and dice.random() < share:
            fault = dice.choice(list(StorageFault))
            left.extend([fault] * dice.choice(in_a_row))
        return left.pop() if left else None

    return draw
