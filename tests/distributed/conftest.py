"""What the trainings of a test session share."""

from __future__ import annotations

import pytest

from tests.distributed.landed import Landed, land_digits


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Landed:
    """All of scikit-learn's digits, landed."""
    return land_digits(tmp_path_factory.mktemp("landed") / "digits")
