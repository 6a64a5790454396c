"""Execution of runs from their first state to their last, each in its own thread."""

from __future__ import annotations

import contextlib
import logging
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from local_azure.azure_ml.cluster import ClusterPool
from local_azure.azure_ml.faults import JobFaults, LaunchFault, LifeFault
from local_azure.azure_ml.launch import Images, launch_of, process_failure, start
from local_azure.azure_ml.mounts import MountRules, mount_variables
from local_azure.azure_ml.nodes import Nodes, nodes_of
from local_azure.azure_ml.runs import IllegalTransitionError, Run, RunBook, RunState
from local_azure.azure_ml.service import Clock, JobFailure, RunCanceled
from local_azure.azure_ml.settings import Settings
from local_azure.azure_ml.spec import JobSpec, job_spec
from local_azure.azure_ml.staging import RunDirectory, Staged, Stager
from local_azure.azure_ml.storage import LogMirror, Storage, catalogue
from local_azure.azure_ml.workspace import COMPUTES, Store

_POLL_S = 0.05

logger = logging.getLogger(__name__)

_BUILD_S = 3600.0
"""Seconds that a slow build takes, by the emulator's clock."""
_HIDDEN_S = 1800.0
"""Seconds for which a job is shown in another state."""
_SHOWN = {LifeFault.NOT_RESPONDING: "NotResponding", LifeFault.UNKNOWN_STATE: "Hibernating"}
_FAILURES = {
    LifeFault.IMAGE_BUILD: JobFailure(
        "Image build failed. For more details, check log file azureml-logs/20_image_build_log.txt.",
        inner="ImageBuildFailure",
    ),
    LifeFault.PACKAGES: JobFailure(
        "Image build failed. Pip subprocess error: ERROR: No matching distribution found for nosuch==1.0",
        inner="ImageBuildFailure",
    ),
    LifeFault.CAPACITY: JobFailure(
        "Allocation failed. We do not have sufficient capacity for the requested VM size in this region. Read more "
        "about improving likelihood of allocation success at https://aka.ms/allocation-guidance",
        inner="AllocationFailed",
    ),
    LifeFault.PREEMPTED: JobFailure(
        "The low-priority nodes of the job were preempted.", code="ServiceError", inner="NodePreempted"
    ),
}

_GUARD_S = 3.0  # time that the guard needs in addition to the grace period


@dataclass(frozen=True, kw_only=True)
class Workbench:
    """The objects that all executions share."""

    settings: Settings
    store: Store
    runs: RunBook
    storage: Storage
    pool: ClusterPool
    images: Images
    faults: JobFaults
    clock: Clock
    mount_library: Path | None
    """The mount library; None if it cannot be built, and outputs are plain folders."""
    tracking: Callable[[Run], Mapping[str, str]]
    """Returns the variables with which a job finds its MLflow run. They override the job's own, as in Azure."""
    simulated_because: str | None
    """Why nodes are simulated; None if each is a host."""

    def run_root(self, run_name: str) -> Path:
        """Directory of a run."""
        return self.settings.state / "runs" / run_name


class Execution:
    """Takes a run through its states. `cancel` and `abandon` may be called from any thread."""

    def __init__(self, bench: Workbench, run: Run, ended: Callable[[str], None]) -> None:
        self._bench = bench
        self._run = run
        self._spec: JobSpec = job_spec(run.properties)
        self._fault = bench.faults.next_for(run.name, LifeFault)
        self._has_met = self._fault is None
        self._canceled = threading.Event()
        self._abandoned = threading.Event()
        self._ended = ended
        self._thread = threading.Thread(target=self._work, name=f"run {run.name}", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def cancel(self) -> None:
        """End the processes after the grace period, and the run as Canceled."""
        self._canceled.set()

    def abandon(self) -> None:
        """End the processes at once and leave the run as it is, because the emulator stops."""
        self._abandoned.set()
        self._canceled.set()

    def join(self, timeout_s: float) -> None:
        """Wait for the thread."""
        self._thread.join(timeout_s)

    def _work(self) -> None:
        try:
            self._walk()
        except RunCanceled:
            self._end(RunState.CANCELED, None)
        except IllegalTransitionError as error:
            logger.info("%s", error)  # A cancel request came in between.
            self._end(RunState.CANCELED, None)
        except JobFailure as failure:
            self._end(RunState.FAILED, failure)
        except Exception as error:
            logger.exception("run %s broke the emulator", self._run.name)
            message = f"The emulator failed while it ran the job: {error!r}."
            self._end(RunState.FAILED, JobFailure(message, code="ServiceError"))
        finally:
            self._ended(self._run.job_id)

    def _end(self, state: RunState, failure: JobFailure | None) -> None:
        if self._abandoned.is_set():
            return
        if self._fault is not None and not self._has_met:  # before publishing the end, which starts other jobs
            self._bench.faults.give_back(self._run.name, self._fault)
        if self._bench.runs.current(self._run.job_id).status is RunState.CANCEL_REQUESTED:
            state, failure = RunState.CANCELED, None
        self._move(state, failure)

    def _move(self, state: RunState, failure: JobFailure | None = None) -> None:
        error = failure.error() if failure else None
        self._run = self._bench.runs.move(self._run.job_id, state, error=error)

    def _walk(self) -> None:
        if self._meets(LifeFault.NO_END_EVENT):
            self._bench.runs.update(self._run.job_id, silent=True)
        self._move(RunState.STARTING)
        self._move(RunState.PREPARING)
        if self._meets(LifeFault.SLOW_BUILD):
            self._pause(_BUILD_S)
        self._fail_of(LifeFault.IMAGE_BUILD)
        self._fail_of(LifeFault.PACKAGES)
        virtual_environment = self._prepare_environment()
        self._move(RunState.QUEUED)
        self._fail_of(LifeFault.CAPACITY)
        spec = self._spec
        if self._meets(LifeFault.COMPUTE_GONE):
            self._bench.store.delete(COMPUTES, spec.compute_id)
            self._pause(float("inf"))
        with self._bench.pool.nodes(spec.compute_id, self._run.name, spec.instance_count, self._canceled):
            self._move(RunState.RUNNING)
            self._run_on_nodes(virtual_environment)
        self._move(RunState.COMPLETED)

    def _prepare_environment(self) -> Path:
        images, environment_id = self._bench.images, self._spec.environment_id
        virtual_environment = images.virtual_environment(environment_id)
        images.build(environment_id, self._pause)
        return virtual_environment

    def _meets(self, *faults: LifeFault) -> bool:
        """Return whether the job has one of these faults, which is then in effect."""
        meets = self._fault in faults
        self._has_met |= meets
        return meets

    def _fail_of(self, fault: LifeFault) -> None:
        """Fail the job if it has this fault."""
        if self._meets(fault):
            raise _FAILURES[fault]

    def _hide(self) -> None:
        """Show the running job in another state for a while, if it has that fault."""
        if self._fault is not None and self._meets(*_SHOWN):
            self._bench.runs.update(self._run.job_id, shown_as=_SHOWN[self._fault])
            self._pause(_HIDDEN_S)
            self._bench.runs.update(self._run.job_id, shown_as=None)

    def _pause(self, seconds: float) -> None:
        self._bench.clock.sleep(seconds, self._canceled)

    def _run_on_nodes(self, virtual_environment: Path) -> None:
        directory = RunDirectory.create(self._bench.run_root(self._run.name))
        try:
            staged = self._stage(directory)
            self._pause(0)  # A cancel request may have come during the download of inputs.
            self._hide()
            self._fail_of(LifeFault.PREEMPTED)
            fault = self._bench.faults.next_for(self._run.name, LaunchFault)
            nodes = nodes_of(self._spec, self._bench.store, fault, self._bench.simulated_because)
            directory.launcher_log.write_text(f"{nodes.in_words()}\n")
            launch = launch_of(self._run, self._spec, staged, virtual_environment, nodes)
            more = {**self._mount(directory, nodes, fault), **self._bench.tracking(self._run)}
            launch = replace(launch, environment={**launch.environment, **more})
            with self._written_through(staged):
                self._supervise(start(launch, self._bench.settings.cancel_grace_s), staged)
                self._move(RunState.FINALIZING)
        finally:
            directory.remove_data()

    def _mount(self, directory: RunDirectory, nodes: Nodes, fault: LaunchFault | None) -> Mapping[str, str]:
        if self._bench.mount_library is None:
            return {}
        fails = fault is LaunchFault.NO_OUTPUTS
        return mount_variables(
            self._bench.mount_library,
            [directory.root / "outputs", directory.alias / "outputs"],
            directory.root / "mount",
            MountRules(seed=self._bench.settings.mount_seed, always_fails=fails),
            inputs=[directory.root / "inputs", directory.alias / "inputs"],
            ranks_per_node=nodes.local_size,
        )

    def _stage(self, directory: RunDirectory) -> Staged:
        bench, run = self._bench, self._run
        compute = bench.store.get(COMPUTES, self._spec.compute_id) or {}
        identities = {one.lower() for one in (compute.get("identity") or {}).get("userAssignedIdentities") or {}}
        names = catalogue(
            bench.store,
            bench.runs,
            run.workspace_id,
            bench.storage.workspace_account,
            may_mount=not identities.isdisjoint(bench.settings.storage_identities),
        )
        stager = Stager(run_name=run.name, directory=directory, storage=bench.storage, catalogue=names)
        return stager.stage(self._spec, self._code_uri())

    def _code_uri(self) -> str | None:
        if self._spec.code_id is None:
            return None
        code = self._bench.store.get("codes", self._spec.code_id)
        if code is None:
            raise JobFailure(f"Could not find code asset {self._spec.code_id}.", inner="SnapshotNotFound")
        return str(code["properties"]["codeUri"])

    def _supervise(self, guard: subprocess.Popen[bytes], staged: Staged) -> None:
        """Wait until the processes end by themselves, by a cancel request or by a time-out."""
        deadline_s = self._bench.clock.now_s() + (self._spec.timeout_s or float("inf"))
        with guard:
            while guard.poll() is None:
                if self._bench.clock.now_s() > deadline_s and not self._canceled.is_set():
                    self._time_out()
                if self._canceled.wait(_POLL_S):
                    self._end_processes(guard)
                    raise RunCanceled
        if guard.returncode != 0:
            logs = staged.directory
            raise process_failure(guard.returncode, self._spec.command, logs.launcher_log, logs.user_logs)

    def _time_out(self) -> None:
        message = f"The job exceeded its time limit of {self._spec.timeout_s:g} seconds and was canceled."
        self._bench.runs.update(self._run.job_id, warnings=[message])
        with contextlib.suppress(IllegalTransitionError):  # The run was canceled at the same time.
            self._move(RunState.CANCEL_REQUESTED)
        self._canceled.set()

    def _end_processes(self, guard: subprocess.Popen[bytes]) -> None:
        """Make the guard end everything, within the grace period plus two seconds."""
        guard.terminate()
        guard.wait()

    @contextlib.contextmanager
    def _written_through(self, staged: Staged) -> Iterator[None]:
        """Upload logs and outputs every interval while the body runs, and once more after it."""
        mirror = LogMirror(storage=self._bench.storage, run_name=self._run.name, root=staged.directory.root / "logs")
        stopping = threading.Event()
        thread = threading.Thread(target=self._keep_uploading, args=(staged, mirror, stopping), daemon=True)
        thread.start()
        try:
            yield
        finally:
            stopping.set()
            thread.join()
            if not self._abandoned.is_set():
                self._upload(staged, mirror)

    def _keep_uploading(self, staged: Staged, mirror: LogMirror, stopping: threading.Event) -> None:
        while not stopping.wait(self._bench.settings.sync_interval_s):
            try:
                self._upload(staged, mirror)
            except Exception:
                logger.exception("uploads of run %s failed; the next interval tries again", self._run.name)

    def _upload(self, staged: Staged, mirror: LogMirror) -> None:
        mirror.send_new()
        if mirror.names() != self._bench.runs.current(self._run.job_id).log_files:
            self._bench.runs.update(self._run.job_id, log_files=mirror.names())
        for mount in staged.mounts:
            mount.write_through(self._bench.storage)


class Executions:
    """Live executions by job id; thread-safe."""

    def __init__(self, bench: Workbench) -> None:
        self._bench = bench
        self._lock = threading.Lock()
        self._live: dict[str, Execution] = {}

    def start(self, run: Run) -> None:
        """Start the execution of a new run."""
        execution = Execution(self._bench, run, self._forget)
        with self._lock:
            self._live[run.job_id.lower()] = execution
        execution.start()

    def cancel(self, job_id: str) -> None:
        """Cancel a run; a run that has already ended stays as it is."""
        with self._lock:
            execution = self._live.get(job_id.lower())
        if execution is not None:
            execution.cancel()

    def stop(self) -> None:
        """End all processes at once. The next start of the emulator settles the runs."""
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
    """Fail every run that was open when the emulator ended, because its processes no longer exist."""
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
