"""The rules of the chain's model in an order that a seed gives, each as likely as any other.

Hypothesis prefers what is small and simple, for it wants to explain a failure. Whoever only asks whether there is
one, gets to the rare encounters sooner by an even draw.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.support.chain_model import ChainModel
from tests.support.chain_promises import ENDED
from tests.support.faulty_ports import Fate
from tests.support.world import ALL_SHARDS

STEPS = 20
NUM_WALKS = 60
"""Twelve seconds; each missing safeguard of the tests is noticed within the first twenty."""
POLICIES = ("notify", "train", "cancel_and_train")
ERRORS = (None, "The job was preempted", "exited with status code 10.")

Rule = Callable[[ChainModel, random.Random], object]


def walk(seed: int) -> None:
    """Take a model from its beginning to its end. Raises AssertionError where a promise breaks."""
    dice, model = random.Random(seed), ChainModel()  # noqa: S311 (a walk, not secrets)
    model.deploy(dice.choice(POLICIES), going=dice.random() < 0.7)
    for _ in range(STEPS):
        dice.choice(RULES)(model, dice)
        model.promises_hold()
    model.teardown()


def walk_all() -> None:
    """Take every walk. Raises AssertionError where a promise breaks."""
    for seed in range(NUM_WALKS):
        walk(seed)


def fates(dice: random.Random) -> list[tuple[int, Fate]]:
    """Draw what goes wrong: mostly one thing."""
    return [(dice.randrange(20), dice.choice(list(Fate))) for _ in range(dice.choice((0, 1, 1, 2)))]


def number(dice: random.Random) -> int:
    """Draw a choice among events or runs."""
    return dice.randrange(30)


def version(dice: random.Random) -> str:
    """Draw a version."""
    return dice.choice(("v1", "v2"))


def order(dice: random.Random) -> int:
    """Draw a seed of turns."""
    return dice.randrange(10_000)


RULES: tuple[Rule, ...] = (
    lambda m, d: m.upload(version(d), d.choice(ALL_SHARDS), d.choice((1, 2, 0))),
    lambda m, d: m.move_jobs(d.choice(("Running", *ENDED)), d.choice(ERRORS)),
    lambda m, d: m.forget_job(number(d)),
    lambda m, d: m.wait(d.choice((1, 5, 60))),
    lambda m, _: m.deploy_again(),
    lambda m, d: m.cancel(number(d), d.choice((None, *ENDED)), d.choice(ERRORS), fates(d), order(d)),
    lambda m, d: m.ask(d.choice((5, 6)), d.choice((None, "k1")), fates(d)),
    lambda m, d: m.deliver_everything(fates(d)),
    lambda m, d: m.deliver_at_once([number(d), number(d), number(d)], fates(d), order(d)),
    lambda m, d: m.land_at_once(version(d), d.choice((1, 2)), fates(d), order(d)),
    lambda m, d: m.get_going(d.choice((1, 2))),
    lambda m, d: m.end_at_once(d.choice(ENDED), d.choice(ERRORS), fates(d), order(d)),
    lambda m, d: m.deliver_late(number(d), fates(d), order(d)),
    lambda m, d: m.lose(number(d)),
    lambda m, d: m.fire_timer(fates(d)),
    lambda m, d: m.fire_timer_meanwhile(number(d), order(d)),
)
