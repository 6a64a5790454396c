"""A stand-in for a training: it accepts the arguments, writes a report and a model, and takes no time.

What it reports, or how it ends, comes from the pipeline's environment variables.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from shared.manifest import Manifest
from shared.progress import Progress
from shared.training_report import TrainingReport


def main() -> int:
    """Do what the pipeline's variables say; return the exit status."""
    parser = argparse.ArgumentParser()
    for name in ("data", "manifest", "output", "checkpoint", "report"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    if "STAND_IN_NEEDS" in os.environ:
        parser.add_argument(f"--{os.environ['STAND_IN_NEEDS']}", required=True)
    arguments = parser.parse_args()
    generation = Manifest.from_json(arguments.manifest.read_text()).generation
    first = "STAND_IN_SECONDS_OF_GENERATION_1" if generation == 1 else ""
    time.sleep(float(os.environ.get(first, os.environ.get("STAND_IN_SECONDS", "0"))))
    while not Path(os.environ.get("STAND_IN_WAITS_FOR", "/")).exists():
        time.sleep(0.2)
    if os.environ["OMPI_COMM_WORLD_RANK"] != "0":
        return 0
    if "STAND_IN_READS" in os.environ:
        Path(os.environ["STAND_IN_READS"]).read_bytes()
    if "STAND_IN_EXIT_OF_ATTEMPT_1" in os.environ and os.environ["AZUREML_RUN_ID"].endswith("-a1"):
        return int(os.environ["STAND_IN_EXIT_OF_ATTEMPT_1"])
    if "STAND_IN_EXIT" in os.environ:
        sys.stderr.write("about to fail: there is no column called colour\n")
        return int(os.environ["STAND_IN_EXIT"])
    leave_report(arguments, float(os.environ["STAND_IN_VAL_ACCURACY"]))
    return 0


def leave_report(arguments: argparse.Namespace, val_accuracy: float) -> None:
    """Write what a training's root writes; raise FileNotFoundError if a shard of the manifest is missing."""
    manifest = Manifest.from_json(arguments.manifest.read_text())
    missing = [shard.name for shard in manifest.shards if not (arguments.data / shard.name).is_file()]
    if missing:
        raise FileNotFoundError(f"the manifest names {missing}, which are not in {arguments.data}")
    progress = Progress(epoch=1, epochs=1, step=1, loss=0.1, accuracy=1.0, val_accuracy=val_accuracy)
    sys.stdout.write(progress.to_line() + "\n")
    (arguments.output / "model.keras").write_text("a model")
    arguments.report.write_text(report(manifest, val_accuracy).to_json())


def report(manifest: Manifest, val_accuracy: float) -> TrainingReport:
    """Return a report that matches the manifest and this job."""
    now = datetime.now(UTC).isoformat()
    return TrainingReport(
        run_id=os.environ["AZUREML_RUN_ID"],
        fingerprint=manifest.fingerprint,
        metrics={"val_accuracy": val_accuracy},
        epochs=(),
        world_size=int(os.environ["OMPI_COMM_WORLD_SIZE"]),
        num_nodes=int(os.environ["AZUREML_NODE_COUNT"]),
        images_per_s=None,
        rank_plan={},
        seed=0,
        versions={},
        started_at=now,
        ended_at=now,
        contents_checked=True,
        device="simulated",
    )


if __name__ == "__main__":
    sys.exit(main())
