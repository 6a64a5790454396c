"""Faults on request: what Event Grid may do to deliveries, made to happen."""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, get_args

from local_azure.event_grid.events import Event

Order = Literal["forward", "reverse", "shuffle"]

MAX_DELIVERIES = 100
MAX_HELD = 100_000
MAX_DELAY_S = 3600.0


@dataclass(frozen=True, kw_only=True)
class FaultPlan:
    """What to do to the events of one topic. The default does nothing."""

    drop: bool = False
    """Lose every event."""
    drop_fraction: float = 0.0
    """Lose this share of the events, picked by ``seed``."""
    seed: int = 0
    deliveries: int = 1
    """Deliver each event so many times."""
    order: Order = "forward"
    """In which order held events are let go."""
    hold_until: int = 0
    """Hold events until so many are there, then let all go; 0 with another order than forward: until released."""
    delay_s: float = 0.0
    """Deliver so much later."""
    duplicate_fraction: float = 0.0
    """Deliver this share of the events once more than ``deliveries``."""
    late_fraction: float = 0.0
    """Keep this share back until the faults end, however long that takes."""


@dataclass(frozen=True, kw_only=True)
class Admitted:
    """An event on its way to the subscriptions."""

    seq: int
    """Its number in the topic's journal."""
    event: Event
    copies: int = 1
    delay_s: float = 0.0


@dataclass(kw_only=True)
class FaultGate:
    """Stands between a topic and its subscriptions."""

    plan: FaultPlan = field(default_factory=FaultPlan)
    dropped: int = 0
    duplicated: int = 0
    held: list[Admitted] = field(default_factory=list)
    late: list[Admitted] = field(default_factory=list)
    late_in_all: int = 0
    _random: random.Random = field(default_factory=lambda: random.Random(0))  # noqa: S311 (faults, not secrets)

    def set_plan(self, plan: FaultPlan) -> None:
        """Follow ``plan`` from the next event on."""
        self.plan = plan
        self._random = random.Random(plan.seed)  # noqa: S311 (faults, not secrets)

    def loses_next(self) -> bool:
        """Whether the next event is to be lost; asked once per event."""
        lost = self.plan.drop or self._random.random() < self.plan.drop_fraction
        self.dropped += lost
        return lost

    def admit(self, seq: int, event: Event) -> list[Admitted]:
        """What may go to the subscriptions now that ``event`` has come: nothing, it, or all that was held."""
        admitted = Admitted(seq=seq, event=event, copies=self._copies(), delay_s=self.plan.delay_s)
        if self._random.random() < self.plan.late_fraction:
            self.late.append(admitted)
            self.late_in_all += 1
            return []
        if not self.plan.hold_until and self.plan.order == "forward":
            return [admitted]
        self.held.append(admitted)
        full = self.plan.hold_until and len(self.held) >= self.plan.hold_until
        return self.release() if full or len(self.held) >= MAX_HELD else []

    def end(self) -> list[Admitted]:
        """Everything that is held or kept back, as the faults are over."""
        late, self.late = self.late, []
        released = self.release()
        self.plan = FaultPlan()
        return [*released, *late]

    def _copies(self) -> int:
        doubled = self._random.random() < self.plan.duplicate_fraction
        self.duplicated += doubled
        return self.plan.deliveries + doubled

    def release(self) -> list[Admitted]:
        """Everything that is held, in the plan's order; what is kept back stays."""
        released, self.held = self.held, []
        if self.plan.order == "reverse":
            released.reverse()
        elif self.plan.order == "shuffle":
            self._random.shuffle(released)
        return released

    def describe(self) -> dict[str, Any]:
        """The plan and what it did so far."""
        did = {"dropped": self.dropped, "duplicated": self.duplicated, "late": self.late_in_all}
        return {**asdict(self.plan), **did, "held": len(self.held)}


def parse_plan(given: dict[str, Any]) -> FaultPlan:
    """A plan from a request's JSON. Raises ValueError naming the field."""
    known = {one.name: one for one in fields(FaultPlan)}
    unknown = set(given) - set(known)
    if unknown:
        raise ValueError(f"a fault plan has the fields {sorted(known)}, not {sorted(unknown)}")
    for name, value in given.items():
        default = known[name].default
        accepted = (int, float) if isinstance(default, float) else type(default)
        if not isinstance(value, accepted) or (isinstance(value, bool) and not isinstance(default, bool)):
            raise ValueError(f"{name} should be {type(default).__name__}, is {value!r}")  # noqa: TRY004 (a wrong request)
    plan = FaultPlan(**given)
    _check_ranges(plan)
    return plan


def _check_ranges(plan: FaultPlan) -> None:
    if plan.order not in get_args(Order):
        raise ValueError(f"order should be one of {get_args(Order)}, is {plan.order!r}")
    ranges = (
        ("drop_fraction", plan.drop_fraction, 0, 1),
        ("duplicate_fraction", plan.duplicate_fraction, 0, 1),
        ("late_fraction", plan.late_fraction, 0, 1),
        ("deliveries", plan.deliveries, 1, MAX_DELIVERIES),
        ("hold_until", plan.hold_until, 0, MAX_HELD),
        ("delay_s", plan.delay_s, 0, MAX_DELAY_S),
    )
    for name, value, low, high in ranges:
        if not low <= value <= high:
            raise ValueError(f"{name} should be from {low} to {high}, is {value}")
