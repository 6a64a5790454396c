"""What a chaos run uploads, disturbs and how often. All random choices follow from the seed."""

from __future__ import annotations

import itertools
import random
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from crc32c import crc32c

from local_azure.azure_ml.faults import LifeFault
from shard_validation import encode_example
from shared.manifest import ManifestShard, fingerprint
from shared.record_framing import frame_record
from tests.chaos.changes import Change, draw_changes, last_contents
from tests.chaos.faults import NEED_SEVERAL_NODES, PlannedFault, deal_faults
from tests.chaos.layouts import layout_of, split_of
from tests.chaos.report import ChaosError
from tests.chaos.tables import table_file

RECORDS_PER_SHARD = 3
NUM_LABELS = 10
UPLOADS_AT_ONCE = 10
SPLITS = ("train", "validation")
FIRST, LAST = "chaos-000", "chaos-~"
"""A dataset whose files have the names of `-of-N`."""
STUB = Path(__file__).with_name("stub_job.py")
PIPELINE = """pipeline: {dataset}
dataset: {dataset}
data:
  format: {format}
  splits: [train, validation]
  layout: {layout}
  features:
    label: {{kind: int64, minimum: 0, maximum: 9}}
    number: {{kind: int64, minimum: 0}}
  small_shard_ratio: 0.0
on_change: {on_change}
train:
  script: scripts/stub_job.py
  cluster: {cluster}
  num_nodes: {num_nodes}
  timeout_s: {timeout_s}
  environment_variables: {{PYTHONPATH: ".", READS: {reads}}}
attempts: {{max: 10, wait_s: 1}}
register:
  model: {dataset}-model
  require:
    - {{metric: val_accuracy, at_least: 0.95}}
notify:
  - topic
  - webhook: LANDFALL_WEBHOOK_PEOPLE
"""
TIMEOUT_S = 14 * 24 * 3600
"""Longer than Azure ML's clock moves in a storm, in which jobs wait up to an hour by it."""
CLUSTER, VANISHING = "chaos", "chaos-vanishing"
"""Where jobs run; the second one has those of the version whose cluster is deleted."""
CLUSTERS = "".join(f"{name}:\n  sizes:\n    - vm_size: Standard_NC24ads_A100_v4\n" for name in (CLUSTER, VANISHING))


@dataclass(frozen=True, kw_only=True)
class ChaosPlan:
    """One chaos run. Each dataset has its own pipeline, because a pipeline has at most one active run."""

    versions: int = 50
    shards: int = 20
    """Shards per version; one of them is for validation."""
    seed: int = 1
    duplicate_fraction: float = 0.20
    drop_fraction: float = 0.05
    late_fraction: float = 0.02
    """Share of events that are held back until every run has ended."""
    changed_fraction: float = 0.5
    """Share of versions whose shards are overwritten, replaced or deleted after their upload."""
    storage_fault_share: float = 0.03
    """Share of the app's storage requests at which a fault begins; it may last for several requests."""
    window: int = 10
    """Number of events that are held and then delivered in random order."""
    kill_after_s: tuple[float, float] = (4.0, 12.0)
    """Shortest and longest time from the dev host's first answer to its SIGKILL."""
    live_longer_every_s: float = 30.0
    """In each such span of the storm hosts live one lifetime longer: runs get through, and meet what is planned."""
    calm_after_s: float = 300.0
    """Longest duration of the storm; it ends earlier if every run has ended and every named fault was met."""
    give_up_after_sweeps: int = 90
    """Sweeps in which all runs must end once the storm is over."""

    def __post_init__(self) -> None:
        if self.versions < 1 or self.shards < 2:
            raise ChaosError(
                f"chaos: {self.versions} versions of {self.shards} shards are too few; "
                "use at least 1 version of 2 shards"
            )
        if not 0.0 <= self.changed_fraction <= 1.0:
            raise ChaosError(f"chaos: --changed {self.changed_fraction:g} is no share; use a number from 0 to 1")

    @property
    def datasets(self) -> list[str]:
        """One dataset name per version."""
        return [f"chaos-{number:03d}" for number in range(self.versions)]

    def uploads(self) -> list[tuple[str, str, bytes]]:
        """Return dataset, shard and content of every blob of every version, in upload order."""
        blobs = [
            (dataset, name, self.content(name, 0, dataset))
            for dataset in self.datasets
            for name in self.shard_names(dataset)
        ]
        self.dice("uploads").shuffle(blobs)
        # Files that nothing ends come without a pause, which would be taken for their end.
        return sorted(blobs, key=lambda blob: blob[0] if layout_of(blob[0]).sealer is None else LAST)

    def changes(self) -> dict[str, list[Change]]:
        """Return what happens to the uploaded shards of each disturbed dataset, in order."""
        dice = self.dice("changes")
        disturbed = sorted(dice.sample(self.datasets, round(self.changed_fraction * self.versions)))
        return {
            dataset: draw_changes(dice, self.shard_names(dataset), partial(self.content, dataset=dataset))
            for dataset in disturbed
        }

    def last_contents(self) -> dict[str, dict[str, bytes]]:
        """Return the shards that each dataset has in the end; those that stay deleted are missing."""
        changes = self.changes()
        return {
            dataset: layout_of(dataset).stored(
                last_contents(
                    {name: self.content(name, 0, dataset) for name in self.shard_names(dataset)},
                    changes.get(dataset, ()),
                )
            )
            for dataset in self.datasets
        }

    def last_fingerprints(self) -> dict[str, str | None]:
        """Return the fingerprint of each dataset's last shards; None where one is missing that keeps it open."""
        last = self.last_contents()
        return {name: fingerprint_of(last[name]) if self._is_whole(name, last[name]) else None for name in last}

    def _is_whole(self, dataset: str, last: Mapping[str, bytes]) -> bool:
        has_all_splits = len({split_of(name) for name in last}) == len(SPLITS)
        return len(last) == self.shards or (layout_of(dataset).may_lose_files and has_all_splits)

    def content(self, name: str, shift: int, dataset: str = FIRST) -> bytes:
        """Return a shard's content; another ``shift`` gives other labels and, in a TFRecord, the same size."""
        number = self.shard_names(dataset).index(name)
        return table_file(labels_of(number, shift), number) if layout_of(dataset).is_table else content(number, shift)

    def shard_names(self, dataset: str = FIRST) -> list[str]:
        """Return the shard names of a version."""
        return layout_of(dataset).shard_names(self.shards)

    def event_faults(self, topic: str) -> Mapping[str, Any]:
        """Return the faults that the Event Grid emulator applies to a topic."""
        return {
            "topic": topic,
            "seed": self.dice(topic).randrange(1 << 30),
            "duplicate_fraction": self.duplicate_fraction,
            "drop_fraction": self.drop_fraction,
            "late_fraction": self.late_fraction,
            "order": "shuffle",
            "hold_until": self.window,
        }

    def job_faults(self) -> list[PlannedFault]:
        """Return the named faults of Azure ML that jobs of a dataset meet, in this order for each kind of fault."""
        whole = [dataset for dataset, content in self.last_fingerprints().items() if content is not None]
        changed = self.changes()
        return deal_faults(self.dice("jobs"), whole, [dataset for dataset in whole if dataset not in changed])

    def dice(self, purpose: str) -> random.Random:
        """Return a generator for one purpose, so that drawing more for one purpose changes no other."""
        return random.Random(f"{self.seed}/{purpose}")  # noqa: S311 (chaos, not secrets)


def content(number: int, shift: int) -> bytes:
    """Return a valid shard whose content depends on ``number`` and ``shift``, and its size only on ``number``."""
    numbered = [encode_example({"label": [label], "number": [number]}) for label in labels_of(number, shift)]
    return b"".join(frame_record(example) for example in numbered)


def labels_of(number: int, shift: int) -> list[int]:
    """Return the labels of a shard's records."""
    return [(number + record + shift) % NUM_LABELS for record in range(RECORDS_PER_SHARD)]


def crcs_of(contents: Mapping[str, bytes]) -> dict[str, str]:
    """Return the CRC32C of each shard, as manifests have it."""
    return {name: f"{crc32c(content):08x}" for name, content in contents.items()}


def fingerprint_of(contents: Mapping[str, bytes]) -> str:
    """Return what a closing of these shards would have."""
    unused = {"index": 0, "num_shards": 0, "num_records": 0}
    crcs = crcs_of(contents)
    return fingerprint(
        ManifestShard(name=name, split=split_of(name), size_bytes=len(content), crc32c=crcs[name], **unused)
        for name, content in contents.items()
    )


def write_pipelines(folder: Path, plan: ChaosPlan) -> Path:
    """Write one pipeline per dataset, all with the stub training, and return the folder."""
    (folder / "scripts").mkdir(parents=True)
    shutil.copy(STUB, folder / "scripts" / STUB.name)
    (folder / "clusters.yaml").write_text(CLUSTERS, encoding="utf-8")
    kinds = itertools.cycle(itertools.product(("train", "cancel_and_train"), ("manifest", "folder")))
    faults = {
        dataset: {one.fault for one in plan.job_faults() if one.dataset == dataset} for dataset in plan.datasets
    }
    for dataset, (on_change, reads) in zip(plan.datasets, kinds, strict=False):
        text = PIPELINE.format(
            dataset=dataset,
            layout=layout_of(dataset).section,
            format="parquet" if layout_of(dataset).is_table else "tfrecord",
            on_change=on_change,
            reads="manifest" if layout_of(dataset).is_table else reads,  # the folder has files of older commits
            timeout_s=TIMEOUT_S,
            num_nodes=1 if NEED_SEVERAL_NODES.isdisjoint(faults[dataset]) else 2,
            cluster=VANISHING if LifeFault.COMPUTE_GONE in faults[dataset] else CLUSTER,
        )
        (folder / f"{dataset}.yaml").write_text(text, encoding="utf-8")
    return folder
