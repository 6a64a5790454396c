"""Closings of a dataset version: behaviour that both ledgers share."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from function_app.domain.errors import NotFoundError
from function_app.domain.records import DatasetVersion
from function_app.ports import Ledger
from tests.support.ledger_records import DIGITS, generation_record
from tests.support.threads import at_once


def test_a_version_that_never_closed_has_no_generation(ledger: Ledger) -> None:
    """Claimed split sizes alone are not a closing."""
    ledger.claim_split_size(DIGITS, "train", 4)
    assert ledger.latest_generation(DIGITS) is None


def test_a_generation_is_returned_as_it_was_added(ledger: Ledger) -> None:
    """Every member is kept."""
    generation = generation_record(num_records=1 << 40)
    assert ledger.add_generation(generation)
    assert generation == ledger.latest_generation(DIGITS)


def test_a_generation_is_added_once(ledger: Ledger) -> None:
    """A second closing with the same number is refused and changes nothing."""
    first = generation_record(fingerprint="a" * 64)
    added = [ledger.add_generation(g) for g in (first, first, generation_record(fingerprint="b" * 64))]
    assert ([True, False, False], first) == (added, ledger.latest_generation(DIGITS))


def test_the_latest_generation_has_the_highest_number(ledger: Ledger) -> None:
    """The tenth closing follows the ninth, and another version's eleventh does not matter."""
    for number in (1, 2, 9, 10):
        ledger.add_generation(generation_record(number))
    ledger.add_generation(generation_record(11, dataset_version=DatasetVersion(dataset="digits", version="v1-b")))
    assert generation_record(10) == ledger.latest_generation(DIGITS)


def test_a_generation_does_not_make_a_version_of_its_own(ledger: Ledger) -> None:
    """Versions are those with a claimed split."""
    ledger.add_generation(generation_record())
    assert [] == list(ledger.versions())


def test_the_run_of_a_closing_is_named_once(ledger: Ledger) -> None:
    """A later claim returns the first name, even with a stale generation."""
    generation = generation_record()
    ledger.add_generation(generation)
    names = [ledger.claim_auto_run(generation, run_id) for run_id in ("run-a", "run-b")]
    assert (["run-a"] * 2, replace(generation, auto_run_id="run-a")) == (names, ledger.latest_generation(DIGITS))


def test_each_generation_has_its_own_run(ledger: Ledger) -> None:
    """Another closing may start another run."""
    for number in (1, 2):
        ledger.add_generation(generation_record(number))
    assert ["run-1", "run-2"] == [ledger.claim_auto_run(generation_record(n), f"run-{n}") for n in (1, 2)]


def test_a_run_cannot_be_named_for_a_closing_that_is_not_on_record(ledger: Ledger) -> None:
    """That would start a training without a closing."""
    with pytest.raises(NotFoundError, match="generation 7 of digits/v1"):
        ledger.claim_auto_run(generation_record(7), "run-a")


def test_of_twenty_closings_one_wins(ledger: Ledger) -> None:
    """Twenty threads close the version at once; one call returns that it succeeded."""
    closings = [generation_record(fingerprint=f"{number:064x}") for number in range(20)]
    won = at_once([partial(ledger.add_generation, closing) for closing in closings])
    winners = [closing for closing, mine in zip(closings, won, strict=True) if mine]
    assert winners == [ledger.latest_generation(DIGITS)]


def test_of_twenty_names_for_a_run_one_wins(ledger: Ledger) -> None:
    """Twenty threads name the closing's run at once; all calls return the recorded name."""
    ledger.add_generation(generation_record())
    names = at_once([partial(ledger.claim_auto_run, generation_record(), f"run-{n}") for n in range(20)])
    stored = ledger.latest_generation(DIGITS)
    assert stored is not None
    assert {stored.auto_run_id} == set(names)


def test_all_generations_are_returned_latest_first(ledger: Ledger) -> None:
    """Only the first one of the list is not superseded."""
    for number in (1, 2, 3):
        ledger.add_generation(generation_record(number))
    assert ([3, 2, 1], []) == (
        [generation.number for generation in ledger.generations(DIGITS)],
        ledger.generations(DatasetVersion(dataset="digits", version="v2")),
    )


def test_the_latest_generations_of_a_dataset_are_those_of_its_versions(ledger: Ledger) -> None:
    """Each closed version has one; a dataset with the same prefix does not count."""
    versions = [DatasetVersion(dataset="digits", version=name) for name in ("v1", "v1-b", "v2")]
    for version in [*versions, DatasetVersion(dataset="digits-2", version="v1")]:
        for number in (1, 2, 10):
            ledger.add_generation(generation_record(number, dataset_version=version))
    found = sorted(ledger.latest_generations("digits"), key=lambda each: each.dataset_version)
    assert [generation_record(10, dataset_version=version) for version in versions] == found
    assert [] == list(ledger.latest_generations("digit"))


def test_only_a_caller_that_knows_the_claimed_size_can_change_it(ledger: Ledger) -> None:
    """No other caller can; each call returns the recorded size."""
    ledger.claim_split_size(DIGITS, "train", 4)
    ledger.claim_split_size(DIGITS, "test", 4)
    sizes = [ledger.move_split_size(DIGITS, "train", held=held, num_shards=n) for held, n in ((5, 6), (4, 8), (4, 9))]
    assert ([4, 8, 8], {"train": 8, "test": 4}) == (sizes, dict(ledger.split_sizes(DIGITS)))
    assert 8 == ledger.claim_split_size(DIGITS, "train", 2)


def test_of_twenty_who_move_a_size_at_once_one_wins(ledger: Ledger) -> None:
    """The other calls return the winner's size."""
    ledger.claim_split_size(DIGITS, "train", 100)
    sizes = at_once([partial(ledger.move_split_size, DIGITS, "train", held=100, num_shards=n) for n in range(1, 21)])
    assert {ledger.split_sizes(DIGITS)["train"]} == set(sizes)
