"""The whole chain against what was promised of it, whatever may come."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.support.chain_model import ChainModel
from tests.support.chain_walk import walk_all


def test_the_chain_keeps_its_promises_whatever_comes() -> None:
    """What was promised holds after every step, and in the end nothing is left to do."""
    limits = settings(
        max_examples=100,
        stateful_step_count=30,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(ChainModel, settings=limits)


def test_the_chain_keeps_its_promises_on_every_walk() -> None:
    """The same, with rare encounters as likely as common ones."""
    walk_all()
