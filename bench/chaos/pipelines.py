"""The pipelines of the chaos: one for each dataset, with a stub for a training."""

from __future__ import annotations

import shutil
from pathlib import Path

from bench.chaos.plan import ChaosPlan

STUB = Path(__file__).with_name("stub_job.py")
PIPELINE = """pipeline: {dataset}
dataset: {dataset}
data:
  format: tfrecord
  splits: [train, validation]
  features:
    label: {{kind: int64, minimum: 0, maximum: 9}}
    number: {{kind: int64, minimum: 0}}
  small_shard_ratio: 0.0
train:
  script: scripts/stub_job.py
  compute: chaos
  vm_size: Standard_NC6s_v3
  num_nodes: 1
  processes_per_node: 1
  timeout_s: 600
  environment_variables: {{PYTHONPATH: "."}}
register:
  model: {dataset}-model
  require:
    - {{metric: val_accuracy, at_least: 0.95}}
notify:
  - topic
  - webhook: LANDFALL_WEBHOOK_PEOPLE
"""


def write_pipelines(folder: Path, plan: ChaosPlan) -> Path:
    """Write all of them, with their script, and return the folder."""
    (folder / "scripts").mkdir(parents=True)
    shutil.copy(STUB, folder / "scripts" / STUB.name)
    for dataset in plan.datasets:
        (folder / f"{dataset}.yaml").write_text(PIPELINE.format(dataset=dataset), encoding="utf-8")
    return folder
