"""Who averages gradients: Horovod, on one node too."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.ranks.landed import Landed
from tests.ranks.ranks import job_arguments, program, train, variables

pytestmark = pytest.mark.distributed


@pytest.mark.parametrize("options", [{}, {"gradient_accumulation": 2}])
def test_every_gradient_goes_through_horovod(digits: Landed, tmp_path: Path, options: dict[str, object]) -> None:
    """On each rank the step gives Horovod one tensor of each trained variable's shape; the report says so."""
    outcome = train(
        2,
        job_arguments(digits, tmp_path, epochs=1, **options),
        instead=[program("noted_allreduces")],
        launcher=variables(NOTES_FOLDER=tmp_path),
    )
    assert 0 == outcome.exit_code, outcome.log
    assert "horovod" == outcome.report.details["exchange"]
    for rank in range(2):
        notes = json.loads((tmp_path / f"allreduces-{rank}.json").read_text())
        assert sorted(notes["trained"]) == sorted(notes["averaged"])
