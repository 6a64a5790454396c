"""The table of run states: complete, without duplicates, and forward only."""

from __future__ import annotations

from function_app.domain.run_states import (
    MEANINGS,
    SETTLED,
    TABLE,
    TRANSITIONS,
    Actor,
    RunState,
    is_legal,
)


def test_every_state_has_a_meaning_and_every_move_a_cause() -> None:
    """Nothing is left to guess."""
    assert (set(RunState), []) == (set(MEANINGS), [move for move in TABLE if not move.actors])


def test_no_move_is_named_twice() -> None:
    """Who may cause a move is said in one place."""
    moves = [(move.source, move.target) for move in TABLE]
    assert len(moves) == len(set(moves))


def test_every_state_is_reached_from_planned_and_no_way_leads_back() -> None:
    """States only go forward: following the table from anywhere never returns."""

    def beyond(state: RunState, seen: frozenset[RunState] = frozenset()) -> set[RunState]:
        assert state not in seen
        return {state}.union(*(beyond(target, seen | {state}) for target in TRANSITIONS[state]))

    assert set(RunState) == beyond(RunState.PLANNED)


def test_settled_states_lead_nowhere_by_themselves() -> None:
    """An end is an end, but for a person who registers a model against the gate."""
    ends = {"failed", "canceled", "lost", "registered", "not_registered", "suppressed"}
    assert ends == {str(state) for state in SETTLED}
    overrides = [(str(move.target), set(move.actors)) for move in TABLE if move.source in SETTLED]
    assert [("registered", {Actor.PERSON})] == overrides


def test_a_move_is_legal_for_those_who_may_cause_it() -> None:
    """A person cancels what is planned, and moves no job of Azure ML's."""
    moves = [
        (RunState.PLANNED, RunState.CANCELED, Actor.PERSON),
        (RunState.PLANNED, RunState.CANCELED, Actor.RECONCILIATION),
        (RunState.RUNNING, RunState.CANCELED, Actor.PERSON),
        (RunState.RUNNING, RunState.CANCELED, Actor.RECONCILIATION),
        (RunState.REGISTERED, RunState.CANCELED, Actor.PERSON),
    ]
    assert [True, False, False, True, False] == [is_legal(*move) for move in moves]
