"""What the trainings of a test session share."""

from __future__ import annotations

import pytest

from tests.ranks.landed import Landed, land_digits


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Landed:
    """All of scikit-learn's digits, landed."""
    return land_digits(tmp_path_factory.mktemp("landed") / "digits")


@pytest.fixture(scope="session")
def digits_in_two_uneven_shards(tmp_path_factory: pytest.TempPathFactory) -> Landed:
    """1,437 digits in shards of 130 and 1,307."""
    return land_digits(tmp_path_factory.mktemp("landed") / "uneven", uneven_at=130)
