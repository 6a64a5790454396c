"""The board of single flight: one row, replaced under its revision, in both ledgers."""

from __future__ import annotations

from function_app.domain.run_queue import Dropped, Flight, FlightBoard, entered
from function_app.ports import Ledger
from tests.support.ledger_records import run_record
from tests.support.threads import at_once


def flight(number: int, pipeline: str = "digits") -> Flight:
    """The place that a run asks for."""
    return Flight.of(run_record(number, pipeline=pipeline))


def test_an_empty_board_is_there_before_anything_was_written(ledger: Ledger) -> None:
    """Nobody has to create it."""
    assert FlightBoard() == ledger.flights()


def test_a_board_is_returned_as_it_was_saved(ledger: Ledger) -> None:
    """Every member survives; the caller learns what was there before."""
    board = FlightBoard(
        going=(flight(1),), armed=(flight(2), flight(3, "faces")), dropped=(Dropped(logical_run="x", reason="é"),)
    )
    assert (FlightBoard(), board) == ledger.change_flights(lambda _: board)
    assert (board, board) == ledger.change_flights(lambda before: before)
    assert board == ledger.flights()


def test_of_twelve_that_want_the_only_place_one_gets_it(ledger: Ledger) -> None:
    """Twelve threads, one board: one goes, one is armed, ten lose their place, none is forgotten."""

    def enter(number: int) -> None:
        ledger.change_flights(lambda board: entered(board, flight(number), limit=1))

    at_once([lambda number=number: enter(number) for number in range(12)])  # type: ignore[misc]
    board = ledger.flights()
    assert (1, 1, 10) == (len(board.going), len(board.armed), len(board.dropped))


def test_a_thousand_pipelines_fit_on_the_board(ledger: Ledger) -> None:
    """As many as there may be pipeline files, each with something armed and something going."""
    flights = tuple(flight(number, f"pipeline-{number:050}") for number in range(1000))
    board = FlightBoard(going=flights, armed=flights)
    ledger.change_flights(lambda _: board)
    assert board == ledger.flights()
