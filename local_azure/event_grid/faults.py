"""Scripted faults: lost, duplicate, late and reordered deliveries."""

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
    """Faults of one topic's deliveries, by default none."""

    drop: bool = False
    """Lose every event."""
    drop_fraction: float = 0.0
    """Lose this share of the events, chosen by `seed`."""
    seed: int = 0
    deliveries: int = 1
    """Number of deliveries of each event."""
    order: Order = "forward"
    """Order in which held events are delivered."""
    hold_until: int = 0
    """Hold this many events, then deliver all. If 0 and ``order`` is not forward, hold events until a release."""
    delay_s: float = 0.0
    """Delay of each delivery."""
    duplicate_fraction: float = 0.0
    """Deliver this share of the events one more time than ``deliveries``."""
    late_fraction: float = 0.0
    """Hold this share of the events until the faults end."""


@dataclass(frozen=True, kw_only=True)
class Admitted:
    """An event for the subscriptions, which may be delayed or have several copies."""

    seq: int
    """The event's number in the topic's journal."""
    event: Event
    copies: int = 1
    delay_s: float = 0.0


@dataclass(kw_only=True)
class FaultGate:
    """Applies a plan to the events between a topic and its subscriptions."""

    plan: FaultPlan = field(default_factory=FaultPlan)
    dropped: int = 0
    duplicated: int = 0
    held: list[Admitted] = field(default_factory=list)
    late: list[Admitted] = field(default_factory=list)
    late_in_all: int = 0
    _random: random.Random = field(default_factory=lambda: random.Random(0))  # noqa: S311 (faults, not secrets)

    def set_plan(self, plan: FaultPlan) -> None:
        """Apply `plan` from the next event on."""
        self.plan = plan
        self._random = random.Random(plan.seed)  # noqa: S311 (faults, not secrets)

    def loses_next(self) -> bool:
        """Return whether the next event is lost; call it once per event."""
        lost = self.plan.drop or self._random.random() < self.plan.drop_fraction
        self.dropped += lost
        return lost

    def admit(self, seq: int, event: Event) -> list[Admitted]:
        """Accept `event`, and return the events to deliver now: none, this one, or all held ones."""
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
        """End the faults, and return all held or late events."""
        late, self.late = self.late, []
        released = self.release()
        self.plan = FaultPlan()
        return [*released, *late]

    def _copies(self) -> int:
        doubled = self._random.random() < self.plan.duplicate_fraction
        self.duplicated += doubled
        return self.plan.deliveries + doubled

    def release(self) -> list[Admitted]:
        """Return all held events in the plan's order; late events stay."""
        released, self.held = self.held, []
        if self.plan.order == "reverse":
            released.reverse()
        elif self.plan.order == "shuffle":
            self._random.shuffle(released)
        return released

    def describe(self) -> dict[str, Any]:
        """Return the plan and its effects so far."""
        did = {"dropped": self.dropped, "duplicated": self.duplicated, "late": self.late_in_all}
        return {**asdict(self.plan), **did, "held": len(self.held)}


def parse_plan(members: dict[str, Any]) -> FaultPlan:
    """Return a plan from a request's JSON. Raises ValueError, which names the wrong field."""
    known = {one.name: one for one in fields(FaultPlan)}
    unknown = set(members) - set(known)
    if unknown:
        raise ValueError(f"a fault plan has the fields {sorted(known)}, not {sorted(unknown)}")
    for name, value in members.items():
        default = known[name].default
        accepted = (int, float) if isinstance(default, float) else type(default)
        if not isinstance(value, accepted) or (isinstance(value, bool) and not isinstance(default, bool)):
            raise ValueError(f"{name} must be {type(default).__name__}, not {value!r}")  # noqa: TRY004 (a wrong request)
    plan = FaultPlan(**members)
    _check_ranges(plan)
    return plan


def _check_ranges(plan: FaultPlan) -> None:
    if plan.order not in get_args(Order):
        raise ValueError(f"order must be one of {get_args(Order)}, not {plan.order!r}")
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
            raise ValueError(f"{name} must be from {low} to {high}, not {value}")
