"""`xray-effusion`, from NIH's table and folders to the end of the run."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from tests.examples.journeys import DEADLINE_S, Journey, counts, ended, landfall, upload_shards
from tests.ranks.ranks import PROGRAMS
from tests.support.nih_xrays import write_nih
from tests.support.pack_sources import records
from tests.support.processes import REPOSITORY, child_environment
from tests.support.twin import TwinUnderTest
from training_job.reporting.metrics import AUC_BUCKETS, AUC_LOGIT_SCALE

pytestmark = [pytest.mark.slow, pytest.mark.twin, pytest.mark.distributed]

CONFUSED = 0.3
"""Share of images that contradict the table: no model can classify them all, so there is something to compare."""
EDGE = 0.005
"""Tolerance of the AUC: another order of additions moves scores near a bucket's edge across it."""


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """NIH's layout, packed with the documented command line."""
    folder = tmp_path_factory.mktemp("xray")
    source = write_nih(folder / "nih", patients=90, confused=CONFUSED, side=64)
    shares = ["--validation-share", 0.3]
    landfall("pack", "xrays", source, "--to", folder / "shards", "--no-init", "--shards", 4, "--size", 256, *shares)
    return folder / "shards"


@pytest.fixture(scope="module")
def journey(twin: TwinUnderTest, shards: Path, tmp_path_factory: pytest.TempPathFactory) -> Journey:
    """A run on the images of about fifty patients."""
    upload_shards(twin, shards, "xray-effusion", "xray-effusion/nih")
    return ended(twin, "xray-effusion/nih", tmp_path_factory.mktemp("xray-outputs"))


def reference_auc(journey: Journey, shards: Path) -> tuple[float, float]:
    """Return scikit-learn's AUC of the exported model over the whole validation split, and what buckets may change.

    The training sorts logits into buckets, and pairs of scores of one bucket count half.
    """
    scored = subprocess.run(
        [
            str(PROGRAMS / "python"),
            str(Path(__file__).parent / "programs" / "scores.py"),
            str(journey.outputs / "model" / "model.keras"),
            *map(str, sorted(shards.glob("validation-*.tfrecord"))),
        ],
        env=child_environment(PYTHONPATH=str(REPOSITORY), TF_CPP_MIN_LOG_LEVEL="3"),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=True,
    )
    found = json.loads(scored.stdout.splitlines()[-1])
    assert counts(shards)["validation"] == len(found["labels"])
    labels = np.array(found["labels"], bool)
    chances = np.clip(found["scores"], 1e-7, 1 - 1e-7)
    logits = np.log(chances / (1 - chances))
    buckets = ((np.arctan(logits / AUC_LOGIT_SCALE) / np.pi + 0.5) * AUC_BUCKETS).astype(int)
    tied = np.equal.outer(buckets[labels], buckets[~labels]).mean()
    return float(roc_auc_score(labels, found["scores"])), float(tied) / 2


def test_the_splits_share_no_patient(shards: Path) -> None:
    """The packed shards are checked, after which nothing can be corrected."""
    patients = [{r["patient"] for s in shards.glob(f"{split}-*") for r in records(s)} for split in counts(shards)]
    assert 90 == len(set.union(*patients)) == sum(map(len, patients))


def test_the_auc_is_that_of_all_ranks_examples(journey: Journey, shards: Path) -> None:
    """What the gate decides on is what anybody can compute from the exported model."""
    assert (2, 2) == (journey.report.world_size, journey.report.rank_plan["validation"]["batch"]["num_lanes"])
    auc, half_of_tied = reference_auc(journey, shards)
    assert auc == pytest.approx(journey.report.metrics["val_auc"], abs=half_of_tied + EDGE)


def test_both_ranks_stop_early_and_together(journey: Journey) -> None:
    """Six epochs after the best one, long before the last; a rank that went on would have ended the job in error."""
    report = journey.report
    best = report.details["best"]["epoch"]
    assert (True, best + 6, best) == (
        report.details["stopped_early"],
        len(report.epochs),
        report.details["exported_epoch"],
    )
    assert len(report.epochs) < report.details["options"]["epochs"]


def test_the_gate_decides_on_the_auc(journey: Journey) -> None:
    """Registered where it is reached; otherwise the reason has what was required, and what was seen."""
    auc = journey.report.metrics["val_auc"]
    refused = ("not_registered", f"val_auc: expected at least 0.8, got {auc:.6g}")
    assert (("registered", None) if auc >= 0.8 else refused) == (journey.run["state"], journey.run["reason"])
