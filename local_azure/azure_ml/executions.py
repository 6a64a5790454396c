"""The runs that are under way, and what happens to those that a former life of the emulator left."""

from __future__ import annotations

import threading

from local_azure.azure_ml.errors import JobFailure
from local_azure.azure_ml.execution import Execution, Workbench
from local_azure.azure_ml.runs import Run
from local_azure.azure_ml.staging import RunDirectory
from local_azure.azure_ml.states import RunState

_GUARD_S = 3.0  # what a guard takes beyond the grace


class Executions:
    """Live executions by job id; safe between threads."""

    def __init__(self, bench: Workbench) -> None:
        self._bench = bench
        self._lock = threading.Lock()
        self._live: dict[str, Execution] = {}

    def start(self, run: Run) -> None:
        """Begin to execute a new run."""
        execution = Execution(self._bench, run, self._forget)
        with self._lock:
            self._live[run.job_id.lower()] = execution
        execution.start()

    def cancel(self, job_id: str) -> None:
        """Pass a cancel request on; nothing happens where the run has ended meanwhile."""
        with self._lock:
            execution = self._live.get(job_id.lower())
        if execution is not None:
            execution.cancel()

    def stop(self) -> None:
        """End all processes at once; the runs are settled at the next start."""
        with self._lock:
            live = list(self._live.values())
        for execution in live:
            execution.abandon()
        for execution in live:
            execution.join(self._bench.settings.cancel_grace_s + _GUARD_S)

    def _forget(self, job_id: str) -> None:
        with self._lock:
            self._live.pop(job_id.lower(), None)


def settle_interrupted(bench: Workbench) -> None:
    """Fail every run that was open when the emulator ended: its processes are gone."""
    for run in bench.runs.below("/"):
        if not run.ended:
            failure = JobFailure(
                f"The Azure ML emulator was stopped while this run was {run.status}; its processes ended with it.",
                code="ServiceError",
                inner="EmulatorStopped",
            )
            bench.runs.move(run.job_id, RunState.FAILED, error=failure.error())
            directory = RunDirectory.reopen(bench.run_root(run.name))
            if directory is not None:
                directory.remove_data()
