"""A stand-in for a training: writes a report and a model and ends. Copied beside the pipelines."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from pathlib import Path

from shared.job_arguments import JobArguments
from shared.manifest import Manifest
from shared.training_report import FILE_NAME, TrainingReport


def main() -> int:
    """Check that every shard of the manifest exists, and write what the root rank of a training writes."""
    arguments = JobArguments.from_argv(sys.argv[1:])
    manifest = Manifest.from_json(Path(arguments.manifest).read_text(encoding="utf-8"))
    missing = [shard.name for shard in manifest.shards if not (Path(arguments.data) / shard.name).is_file()]
    if missing:
        raise FileNotFoundError(f"{arguments.manifest} names {missing}, which {arguments.data} does not contain")
    (Path(arguments.model) / "model.keras").write_text("a model", encoding="utf-8")
    (Path(arguments.report) / FILE_NAME).write_text(report(manifest).to_json(), encoding="utf-8")
    return 0


def report(manifest: Manifest) -> TrainingReport:
    """Return a report that matches the manifest and meets the requirement for registration."""
    now = datetime.now(UTC).isoformat()
    return TrainingReport(
        run_id=os.environ["AZUREML_RUN_ID"],
        fingerprint=manifest.fingerprint,
        metrics={"val_accuracy": 1.0},
        epochs=(),
        world_size=1,
        num_nodes=1,
        images_per_s=None,
        rank_plan={},
        seed=0,
        versions={},
        started_at=now,
        ended_at=now,
    )


if __name__ == "__main__":
    sys.exit(main())
