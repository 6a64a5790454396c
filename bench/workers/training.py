"""One rank of a measured training: the training job's own loop, whose batches wait at a gate.

Everything else is as in `python -m training_job.train` with the same arguments: the process environment, the data,
the model, the compiled step, progress, metrics and checkpoints.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench.workers.gate import Gate, Gated, open_gate
from training_job import process_environment
from training_job.job import prepare
from training_job.liveness.interruptions import StopRequest


@dataclass(frozen=True, kw_only=True)
class GatedData:
    """A rank's data, with a gate before its training batches."""

    data: Any
    gate: Gate

    def training_epoch(self, epoch: int, skip_steps: int = 0) -> Any:
        """Return an epoch's batches, behind the gate."""
        return Gated(iter(self.data.training_epoch(epoch, skip_steps)), self.gate)

    def evaluation(self) -> Any:
        """Return the split's batches, without the gate."""
        return self.data.evaluation()


def main() -> None:
    """Train as long as the benchmark requests steps."""
    gate, arguments = open_gate()
    job = prepare(arguments, process_environment.launched_world_size())
    process_environment.set_for(arguments, Path(arguments.report))
    from training_job.session import open_session
    from training_job.training_loop import train

    session = open_session(job, StopRequest())
    session.inputs = replace(session.inputs, training=GatedData(data=session.inputs.training, gate=gate))
    gate.introduce(world_size=session.world.size)
    train(session)


if __name__ == "__main__":
    main()
