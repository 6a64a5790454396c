from __future__ import annotations

from local_azure.event_grid.events import Event
from local_azure.event_grid.faults import FaultGate, FaultPlan
from tests.support.event_grid import custom_event


def _admit(gate: FaultGate, *seqs: int) -> list[list[int]]:
    """The numbers that each event lets through."""
    return [
        [one.seq for one in gate.admit(seq, Event(schema="event_grid", body=custom_event(str(seq))))] for seq in seqs
    ]


def test_without_a_plan_everything_passes_at_once() -> None:
    """One copy, no delay."""
    gate = FaultGate()

    assert [[1], [2]] == _admit(gate, 1, 2)
    assert [False] * 100 == [gate.loses_next() for _ in range(100)]


def test_held_events_go_together_when_there_are_enough() -> None:
    """Then the next events are held."""
    gate = FaultGate()
    gate.set_plan(FaultPlan(hold_until=2, order="reverse"))

    assert [[], [2, 1], []] == _admit(gate, 1, 2, 3)


def test_another_order_without_a_number_waits_for_release() -> None:
    """Shuffled by the seed: the same twice."""
    orders = []
    for _ in range(2):
        gate = FaultGate()
        gate.set_plan(FaultPlan(order="shuffle", seed=3))
        assert [[]] * 8 == _admit(gate, *range(8))
        orders.append([one.seq for one in gate.release()])

    assert orders[0] == orders[1]
    assert list(range(8)) == sorted(orders[0]) != orders[0]


def test_losses_are_counted() -> None:
    """All with drop, a share with a fraction."""
    gate = FaultGate()
    gate.set_plan(FaultPlan(drop=True))
    assert [True, True] == [gate.loses_next(), gate.loses_next()]
    gate.set_plan(FaultPlan(drop_fraction=0.5, seed=1))
    lost = sum(gate.loses_next() for _ in range(1000))

    assert 2 + lost == gate.dropped
    assert 400 < lost < 600


def test_a_share_is_delivered_twice() -> None:
    """The others once; how many were doubled is counted."""
    gate = FaultGate()
    gate.set_plan(FaultPlan(duplicate_fraction=0.25, seed=2))
    event = Event(schema="event_grid", body=custom_event("1"))
    copies = [gate.admit(seq, event)[0].copies for seq in range(1000)]

    assert {1, 2} == set(copies)
    assert gate.duplicated == copies.count(2)
    assert 200 < gate.duplicated < 300


def test_late_events_stay_behind_until_the_faults_end() -> None:
    """A release lets go what is held for its order, and nothing of these."""
    gate = FaultGate()
    gate.set_plan(FaultPlan(late_fraction=1.0, order="reverse"))

    assert [[], []] == _admit(gate, 1, 2)
    assert ([], [1, 2], 2) == (gate.release(), [one.seq for one in gate.end()], gate.late_in_all)
    assert [[3]] == _admit(gate, 3)
