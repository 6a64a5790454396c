"""Stories of failures that are tried again, and of what the timer watches: silence, waiting, clusters, strangers."""

from __future__ import annotations

from function_app.domain.events import TrainingRequest
from function_app.domain.jobs import JobStatus
from function_app.domain.run_states import RunState
from function_app.runs.submission import handle_request
from tests.crash.process import Step
from tests.crash.scenario import BAD_DATA, PREEMPTED, Scenario, Serve, swept, trained, uploads
from tests.support.world import ALL_SHARDS, VERSION, World

NO_CAPACITY = "The requested number of nodes exceeds the quota"
STRANGER = "landfall-digits-v1-0123456789ab-a1"


def submitted(serve: Serve) -> list[Step]:
    """A version lands and its job is submitted."""
    return [*uploads(*ALL_SHARDS), serve]


def become(status: str) -> Step:
    """Make the step after which every job has a status."""

    def step(world: World) -> None:
        for name in world.jobs.statuses:
            world.jobs.become(name, status)

    return step


def after(**duration: float) -> list[Step]:
    """Time goes by, and the timer comes."""
    return [lambda world: world.clock.move(**duration), swept]


def told_early(world: World) -> None:
    """A message asks for attempts whose time has not come."""
    for run in world.services.ledger.runs():
        if run.state is RunState.PLANNED:
            request = TrainingRequest(
                dataset_version=run.dataset_version, generation=run.generation, trigger="retry", run_id=run.run_id
            )
            handle_request(request, world.services)


def without_capacity(serve: Serve) -> list[Step]:
    """A job fails for want of nodes: it is tried again, but not at once."""
    return [*trained(NO_CAPACITY)(serve), told_early]


def waiting_long(_: Serve) -> list[Step]:
    """A job waits for nodes, then does not respond, then does."""
    silent = [become("Running"), *after(minutes=5), become("NotResponding"), *after(minutes=5), *after(hours=3)]
    return [become("Queued"), *after(hours=3), *silent, become("Running"), *after(minutes=5)]


def lose_cluster(world: World) -> None:
    """Somebody deletes the cluster."""
    world.jobs.deleted_computes.add("landfall-gpu")


def without_cluster(_: Serve) -> list[Step]:
    """The cluster goes while a job waits for it."""
    return [become("Queued"), lose_cluster, *after(minutes=5), *after(minutes=15)]


def meet_strangers(world: World) -> None:
    """Jobs with our tags that nobody here has planned: one that goes, one that has ended."""
    tags = {"landfall.run_id": "x", "landfall.dataset_version": str(VERSION), "landfall.fingerprint": "f" * 64}
    for name, status in ((STRANGER, "Running"), (f"{STRANGER}1", "Completed")):
        world.jobs.statuses[name] = JobStatus(name=name, status=status, tags=tags)


def strangers(_: Serve) -> list[Step]:
    """The timer finds jobs that are not on record."""
    return [meet_strangers, *after(minutes=5)]


def adopted(_: Serve) -> list[Step]:
    """The timer finds the job of a run whose row is gone."""
    return after(minutes=5)


def with_forgotten_rows(serve: Serve) -> list[Step]:
    """A job goes, and its row is gone."""
    return [*submitted(serve), lambda world: world.forget_runs()]


def stalled(_: Serve) -> list[Step]:
    """A version stays open for longer than a day."""
    return [*uploads(ALL_SHARDS[0]), *after(hours=25)]


def not_measured(serve: Serve) -> list[Step]:
    """The next version cannot be compared with what the current model was trained on."""
    return [lambda world: world.overwrite_manifests(b"{}"), *uploads(*ALL_SHARDS, version="v2"), serve]


WATCHED = (
    Scenario(name="preempted", steps=trained(PREEMPTED), job_end=PREEMPTED),
    Scenario(name="no capacity", steps=without_capacity, job_end=NO_CAPACITY),
    Scenario(name="bad data", steps=trained(BAD_DATA), job_end=BAD_DATA),
    Scenario(name="waiting long", steps=waiting_long, prelude=submitted, survives_loss=False),
    Scenario(name="without a cluster", steps=without_cluster, prelude=submitted, survives_loss=False),
    Scenario(name="strangers", steps=strangers, prelude=trained()),
    Scenario(name="adopted", steps=adopted, prelude=with_forgotten_rows),
    Scenario(name="stalled", steps=stalled),
    Scenario(name="drift not measured", steps=not_measured, prelude=trained(), survives_loss=False),
)
