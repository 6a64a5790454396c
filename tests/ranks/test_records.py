"""Which records ranks read and what their metrics are, compared with numbers computed outside of the training."""

from __future__ import annotations

import shutil
from collections import Counter
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from shared.manifest import FeatureSpec
from tests.ranks.ranks import Observed, Outcome, end_all, observed, program, start
from tests.ranks.versions import ClosedVersion, job_arguments, write_digits, write_version
from tests.support.example_bytes import example_bytes

pytestmark = pytest.mark.distributed

NUM_RECORDS = 47
NUM_EVALUATED = 23
FEATURES = (FeatureSpec(name="image", kind="float", shape=(2, 2, 1)), FeatureSpec(name="label", kind="int64"))
PIXELS = np.random.default_rng(3).normal(size=(NUM_RECORDS, 4)).astype(np.float32)


def payload(number: int) -> bytes:
    """Return a record that its label identifies."""
    return example_bytes({"image": PIXELS[number].tolist(), "label": number})


@pytest.fixture(scope="session")
def version(tmp_path_factory: pytest.TempPathFactory) -> ClosedVersion:
    """47 training records in shards of 5 and 42; the first 23 are also for validation, in shards of 22 and 1."""
    payloads = [payload(number) for number in range(NUM_RECORDS)]
    shards = {
        "train": [payloads[:5], payloads[5:]],
        "validation": [payloads[:22], payloads[22:NUM_EVALUATED]],
    }
    return write_version(tmp_path_factory.mktemp("versions") / "numbered", shards, FEATURES)


def three_ranks(version: ClosedVersion, folder: Path, **options: Any) -> Observed:
    """Train one epoch of a linear model, with more ranks than shards and a rate that changes no weight."""
    arguments = job_arguments(
        version,
        folder,
        epochs=1,
        per_process_batch_size=4,
        num_classes=NUM_RECORDS,
        model_module=program("linear"),
        optimizer="sgd",
        learning_rate=1e-30,
        **options,
    )
    return observed(3, arguments)


def labels(seen: Observed) -> list[list[list[int]]]:
    """Return the records of each rank, step by step."""
    return [notes["labels"] for notes in seen.notes]


def records(seen: Observed) -> list[int]:
    """Return the records of all ranks."""
    return list(chain.from_iterable(chain.from_iterable(labels(seen))))


@pytest.fixture(scope="session")
def padded(version: ClosedVersion, tmp_path_factory: pytest.TempPathFactory) -> Observed:
    """The training that pads the last step."""
    return three_ranks(version, tmp_path_factory.mktemp("padded"), remainder="pad")


def test_padded_all_ranks_take_the_same_steps_and_leave_no_record_out(padded: Observed) -> None:
    """There are four steps of twelve; one record is seen a second time."""
    assert [[4] * 4] * 3 == [[len(batch) for batch in steps] for steps in labels(padded)]
    assert (set(range(NUM_RECORDS)), 1) == (
        set(records(padded)),
        sum(n - 1 for n in Counter(records(padded)).values()),
    )
    plan = padded.outcome.report.rank_plan["training"]
    assert (4, 0, 1) == (plan["steps"], plan["dropped_records"], plan["padded_records"])


@pytest.mark.slow
def test_dropped_all_ranks_take_the_same_steps_and_see_no_record_twice(
    version: ClosedVersion, tmp_path: Path
) -> None:
    """There are three steps of twelve; eleven records are left for another epoch."""
    seen = three_ranks(version, tmp_path, remainder="drop")
    assert [[4] * 3] * 3 == [[len(batch) for batch in steps] for steps in labels(seen)]
    assert 36 == len(set(records(seen)))
    plan = seen.outcome.report.rank_plan["training"]
    assert (3, 11, 0) == (plan["steps"], plan["dropped_records"], plan["padded_records"])


def test_metrics_are_averages_over_examples_however_they_are_spread(padded: Observed) -> None:
    """Ranks evaluate 7, 8 and 8 examples in two batches; loss, accuracy and top-5 equal a calculation in float64."""
    metrics = padded.outcome.report.metrics
    expected = {
        **by_hand(padded.outcome, records(padded)),
        **{f"val_{name}": value for name, value in by_hand(padded.outcome, range(NUM_EVALUATED)).items()},
    }
    assert expected == pytest.approx(dict(metrics), rel=1e-5)


def by_hand(outcome: Outcome, records: Any) -> dict[str, float]:
    """Evaluate the linear model on records, in numpy."""
    kernel, bias = (named(outcome, part) for part in ("kernel", "bias"))
    numbers = np.array(list(records))
    logits = PIXELS[numbers].astype(np.float64) @ kernel + bias
    log_sums = np.log(np.exp(logits).sum(axis=1))
    own = logits[np.arange(len(numbers)), numbers]
    better = (logits > own[:, np.newaxis]).sum(axis=1)
    return {
        "loss": float((log_sums - own).mean()),
        "accuracy": float((better == 0).mean()),
        "top5_accuracy": float((better < 5).mean()),
    }


def named(outcome: Outcome, part: str) -> NDArray[Any]:
    """Return the dense layer's kernel or bias, not the optimizer's copies."""
    found = [v for name, v in outcome.variables.items() if name.endswith(f"dense/{part}")]
    assert 1 == len(found), list(outcome.variables)
    return found[0].astype(np.float64)


@pytest.mark.slow
def test_after_the_first_epoch_a_cache_is_all_that_is_read(tmp_path: Path) -> None:
    """The shards are removed during the training: the later epochs and the last evaluation do not need them."""
    version = write_digits(tmp_path / "versions")
    running = start(2, job_arguments(version, tmp_path / "out", epochs=8, cache_folder=str(tmp_path / "cache")))
    try:
        running.wait_for_epoch(1)
        shutil.rmtree(version.folder)
        outcome = running.ended()
    finally:
        end_all(running)
    assert 0 == outcome.exit_code, outcome.log
    assert 10 == len(list((tmp_path / "cache").iterdir()))
