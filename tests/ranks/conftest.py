"""Fixtures that all trainings of a test session share."""

from __future__ import annotations

import pytest

from tests.ranks.versions import ClosedVersion, write_digits


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> ClosedVersion:
    """A dataset version with all of scikit-learn's digits."""
    return write_digits(tmp_path_factory.mktemp("versions") / "digits")


@pytest.fixture(scope="session")
def digits_in_two_uneven_shards(tmp_path_factory: pytest.TempPathFactory) -> ClosedVersion:
    """A version with 1,437 training digits in shards of 130 and 1,307."""
    return write_digits(tmp_path_factory.mktemp("versions") / "uneven", uneven_at=130)
