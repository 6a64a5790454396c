"""Scenarios of retried failures, and of what the timer watches: silent jobs, long waits, clusters, unknown jobs."""

from __future__ import annotations

from function_app.domain.events import TrainingRequest
from function_app.domain.jobs import JobStatus
from function_app.domain.run_states import RunState
from function_app.runs.admission import release_data
from function_app.runs.submission import handle_request
from tests.crash.process import Step
from tests.crash.scenario import BAD_DATA, PREEMPTED, Scenario, Serve, swept, trained, uploads
from tests.support.world import ALL_SHARDS, VERSION, World

NO_CAPACITY = "The requested number of nodes exceeds the quota"
UNKNOWN_JOB = "landfall-digits-v1-0123456789ab-a1"


def submitted(serve: Serve) -> list[Step]:
    """A version is uploaded, and its job submitted."""
    return [*uploads(*ALL_SHARDS), serve]


def become(status: str) -> Step:
    """Return a step that sets the status of every job."""

    def step(world: World) -> None:
        for name in world.jobs.statuses:
            world.jobs.become(name, status)

    return step


def after(**duration: float) -> list[Step]:
    """Let time pass, and fire the timer."""
    return [lambda world: world.clock.move(**duration), swept]


def requested_early(world: World) -> None:
    """Messages request attempts before their time."""
    for run in world.services.ledger.runs():
        if run.state is RunState.PLANNED:
            request = TrainingRequest(
                dataset_version=run.dataset_version, generation=run.generation, trigger="retry", run_id=run.run_id
            )
            handle_request(request, world.services)


def released(_: Serve) -> list[Step]:
    """A person lifts the hold on data that made a run fail."""
    return [lambda world: release_data(VERSION, world.services)]


def without_capacity(serve: Serve) -> list[Step]:
    """A job fails because no nodes are free; it is retried, but not at once."""
    return [*trained(NO_CAPACITY)(serve), requested_early]


def waiting_long(_: Serve) -> list[Step]:
    """A job waits for nodes, then stops responding, then responds again."""
    silent = [become("Running"), *after(minutes=5), become("NotResponding"), *after(minutes=5), *after(hours=3)]
    return [become("Queued"), *after(hours=3), *silent, become("Running"), *after(minutes=5)]


def lose_cluster(world: World) -> None:
    """Delete the cluster."""
    world.jobs.deleted_computes.add("landfall-gpu")


def without_cluster(_: Serve) -> list[Step]:
    """The cluster is deleted while a job waits for it."""
    return [become("Queued"), lose_cluster, *after(minutes=5), *after(minutes=15)]


def add_unknown_jobs(world: World) -> None:
    """Add jobs that have our tags but that no run planned: one active, one that has ended."""
    tags = {"landfall.run_id": "x", "landfall.dataset_version": str(VERSION), "landfall.fingerprint": "f" * 64}
    for name, status in ((UNKNOWN_JOB, "Running"), (f"{UNKNOWN_JOB}1", "Completed")):
        world.jobs.statuses[name] = JobStatus(name=name, status=status, tags=tags)


def unknown_jobs(_: Serve) -> list[Step]:
    """The timer finds jobs without a run in the ledger."""
    return [add_unknown_jobs, *after(minutes=5)]


def adopted(_: Serve) -> list[Step]:
    """The timer finds the job of a run whose row was lost."""
    return after(minutes=5)


def with_forgotten_rows(serve: Serve) -> list[Step]:
    """A job is active, and its row is lost."""
    return [*submitted(serve), lambda world: world.forget_runs()]


def stalled(_: Serve) -> list[Step]:
    """A version stays incomplete for longer than a day."""
    return [*uploads(ALL_SHARDS[0]), *after(hours=25)]


def not_measured(serve: Serve) -> list[Step]:
    """The next version cannot be compared with the data of the current model."""
    return [lambda world: world.overwrite_manifests(b"{}"), *uploads(*ALL_SHARDS, version="v2"), serve]


WATCHED = (
    Scenario(name="preempted", steps=trained(PREEMPTED), job_end=PREEMPTED),
    Scenario(name="no capacity", steps=without_capacity, job_end=NO_CAPACITY),
    Scenario(name="bad data", steps=trained(BAD_DATA), job_end=BAD_DATA),
    Scenario(name="released", steps=released, prelude=trained(BAD_DATA), survives_loss=False),
    Scenario(name="waiting long", steps=waiting_long, prelude=submitted, survives_loss=False),
    Scenario(name="without a cluster", steps=without_cluster, prelude=submitted, survives_loss=False),
    Scenario(name="unknown jobs", steps=unknown_jobs, prelude=trained()),
    Scenario(name="adopted", steps=adopted, prelude=with_forgotten_rows),
    Scenario(name="stalled", steps=stalled),
    Scenario(name="drift not measured", steps=not_measured, prelude=trained(), survives_loss=False),
)
