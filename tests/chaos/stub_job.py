"""A stand-in for a user's own training: reads all shards, and writes checksums of what it read into its model.

Copied beside the pipelines. READS decides, as users' scripts do, whether it reads the shards that the manifest names,
and fails without one of them, or with whatever else is in the folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from crc32c import crc32c

from shared.manifest import Manifest
from shared.training_report import TrainingReport

PAUSE_S = 0.5
"""After each shard: a training takes its time, in which data may change."""


def main() -> int:
    """Read every shard, and write what the root rank of a training writes; the other ranks do nothing."""
    if os.environ["OMPI_COMM_WORLD_RANK"] != "0":
        return 0
    manifest = Manifest.from_json(Path(os.environ["LANDFALL_MANIFEST"]).read_text(encoding="utf-8"))
    folder = Path(os.environ["LANDFALL_DATA"])
    lying = [path.relative_to(folder).as_posix() for path in folder.rglob("*.tfrecord")]
    model = checksums(folder, [one.name for one in manifest.shards] if os.environ["READS"] == "manifest" else lying)
    (Path(os.environ["LANDFALL_OUTPUT"]) / "model.keras").write_text(json.dumps(model), encoding="utf-8")
    Path(os.environ["LANDFALL_REPORT"]).write_text(report(manifest).to_json(), encoding="utf-8")
    return 0


def checksums(folder: Path, names: list[str]) -> dict[str, object]:
    """Read shards; return the CRC32C of each by name, and the SHA-256 of all bytes in order of the names."""
    crcs, whole = dict[str, str](), hashlib.sha256()
    for name in sorted(names):
        content = (folder / name).read_bytes()
        crcs[name] = f"{crc32c(content):08x}"
        whole.update(content)
        time.sleep(PAUSE_S)
    return {"shards": crcs, "sha256": whole.hexdigest()}


def report(manifest: Manifest) -> TrainingReport:
    """Return a report that matches the manifest and meets the requirement for registration."""
    now = datetime.now(UTC).isoformat()
    return TrainingReport(
        run_id=os.environ["AZUREML_RUN_ID"],
        fingerprint=manifest.fingerprint,
        metrics={"val_accuracy": 1.0},
        epochs=(),
        world_size=int(os.environ["OMPI_COMM_WORLD_SIZE"]),
        num_nodes=int(os.environ["AZUREML_NODE_COUNT"]),
        images_per_s=None,
        rank_plan={},
        seed=0,
        versions={},
        started_at=now,
        ended_at=now,
    )


if __name__ == "__main__":
    sys.exit(main())
