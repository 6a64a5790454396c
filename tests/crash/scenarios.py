"""All scenarios: common ones here, others in the files of their subject. Together they pass every effect."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from function_app.domain.errors import NotificationError
from function_app.domain.events import TrainingRequest
from function_app.domain.records import NotificationRecord
from function_app.runs.following import handle_run_event
from function_app.runs.late_registration import register_later
from function_app.runs.submission import handle_request
from function_app.testing.azure_ml import MemoryNotifier
from tests.crash.data_scenarios import DATA, SCRIPTS
from tests.crash.notified_scenarios import NOTIFIED
from tests.crash.process import Step
from tests.crash.rare_scenarios import RARE
from tests.crash.scenario import (
    Scenario,
    Serve,
    asked,
    changed,
    deliver_run_events,
    end_jobs,
    keyed,
    retrain,
    run_jobs,
    trained,
    upload,
    uploads,
)
from tests.crash.sweep_scenarios import SWEEPS
from tests.crash.watched_scenarios import WATCHED
from tests.support.world import ALL_SHARDS, VERSION, WEBHOOK, World


class RefusingNotifier(MemoryNotifier):
    """Refuses the first notification."""

    refused: bool = False

    def send(self, notification: NotificationRecord) -> None:
        """See Notifier."""
        if not self.refused:
            self.refused = True
            raise NotificationError("the recipient does not answer")
        super().send(notification)


def repaired(serve: Serve) -> list[Step]:
    """A shard is rejected, and then replaced by a valid one."""
    return [*upload(ALL_SHARDS[0], b"no records"), *uploads(*ALL_SHARDS), serve]


def rejected(_: Serve) -> list[Step]:
    """Several shards are rejected: one is reported at once, others by the timer, and one name is not valid."""
    bad = [step for name in ALL_SHARDS for step in upload(name, b"no records")]
    return [*bad, *upload("train-00000-of-00009.tfrecord")]


def irrelevant(_: Serve) -> list[Step]:
    """Events without an effect: of other folders, deleted blobs, and unknown runs."""
    return [
        lambda world: world.deliver("elsewhere/v1/train-00000-of-00001.tfrecord"),
        lambda world: world.deliver(f"{VERSION}/{ALL_SHARDS[0]}"),
        lambda world: world.deliver(f"{VERSION}/train-00001-of-00001.tfrecord"),
        lambda world: handle_run_event("landfall-unknown-a1", world.services),
        lambda world: handle_run_event("another-project", world.services),
        lambda world: ask_closing(world, generation=1),
        lambda world: ask_closing(world, generation=7),
    ]


def ask_closing(world: World, generation: int) -> None:
    """The message of a closing arrives, for a generation that may not exist."""
    if world.services.ledger.latest_generation(VERSION) is not None:
        handle_request(
            TrainingRequest(dataset_version=VERSION, generation=generation, trigger="closed"), world.services
        )


def start_at_once(world: World) -> None:
    """Let closings start their runs themselves, as the app does."""
    second = timedelta(seconds=1)
    world.services = replace(world.services, start=handle_request, start_patience=second)


def refuse_jobs(world: World) -> None:
    """Have Azure ML refuse every job."""
    world.jobs.refusal = "there is no such cluster"


def refuse_first_notification(world: World) -> None:
    """Have the webhook refuse the first notification."""
    world.people = RefusingNotifier()
    notifiers = {"topic": world.topic, WEBHOOK: world.people}
    world.services = replace(world.services, notifiers=notifiers)


def require_more(world: World) -> None:
    """Require a higher accuracy than the training reaches."""
    pipeline = world.services.pipelines["digits"]
    register = pipeline.register_
    if register is None:
        raise ValueError("the pipeline of the tests has no conditions for a registration")
    require = [one.model_copy(update={"at_least": 0.99}) for one in register.require]
    world.change_pipeline(register_=register.model_copy(update={"require": tuple(require)}))


def overridden(_: Serve) -> list[Step]:
    """A person registers the model of a run that the gate did not register."""

    def register(world: World) -> None:
        (run,) = world.services.ledger.runs()
        world.leave_model(run)
        register_later(run.run_id, world.services, by="Ada", why="it is good enough")

    return [register]


def contradicted(serve: Serve) -> list[Step]:
    """The `dataset.json` of a version cannot be read until it is corrected."""
    corrected = [
        lambda world: world.deliver(world.put("dataset.json", b"{}")),
        lambda world: world.deliver(f"{VERSION}/{ALL_SHARDS[0]}"),
    ]
    return [lambda world: world.put("dataset.json", b"no JSON"), *uploads(*ALL_SHARDS), *corrected, serve]


def unnoticed(_: Serve) -> list[Step]:
    """Shards are uploaded, and all their events are lost."""
    return [lambda world: [world.put(name) for name in ALL_SHARDS], lambda world: world.clock.move(hours=1)]


def unlistable(_: Serve) -> list[Step]:
    """Among shards whose events are lost is a blob with a name that storage cannot list."""
    names = (*ALL_SHARDS, "train-0\x1b")
    return [lambda world: [world.put(name) for name in names], lambda world: world.clock.move(hours=1)]


def retrain_uncompared(world: World) -> None:
    """Train on changed versions again, and make each registered model the current one."""
    retrain(world)
    pipeline = world.services.pipelines["digits"]
    if pipeline.register_ is None:
        raise ValueError("the pipeline of the tests registers no model")
    uncompared = pipeline.register_.model_copy(update={"compare": None})
    others = {"digits": pipeline.model_copy(update={"register_": uncompared})}
    world.services = replace(world.services, pipelines=others)


def replaced(serve: Serve) -> list[Step]:
    """A shard changes, and the new model becomes the current one instead of the first."""
    return [*changed(serve), run_jobs, lambda world: end_jobs(world, "Completed"), deliver_run_events]


BASIC = (
    Scenario(name="registered", steps=trained()),
    Scenario(name="started at once", steps=trained(), prepare=start_at_once),
    Scenario(name="not registered", steps=trained(), prepare=require_more),
    Scenario(name="failed", steps=trained("Failed"), job_end="Failed"),
    Scenario(name="canceled", steps=trained("Canceled"), job_end="Canceled"),
    Scenario(name="lost", steps=trained("forgotten"), job_end="forgotten"),
    Scenario(name="refused", steps=trained(), prepare=refuse_jobs),
    Scenario(name="recipient away", steps=trained(), prepare=refuse_first_notification),
    Scenario(name="changed", steps=changed, prelude=trained()),
    Scenario(name="retrained", steps=changed, prelude=trained(), prepare=retrain),
    Scenario(name="overridden", steps=overridden, prelude=trained(), prepare=require_more, survives_loss=False),
    Scenario(name="promoted", steps=replaced, prelude=trained(), prepare=retrain_uncompared),
    Scenario(name="repaired", steps=repaired),
    # the timer that replaces a lost step sends a summary of its own
    Scenario(name="rejected", steps=rejected, survives_loss=False),
    Scenario(name="contradicted", steps=contradicted),
    Scenario(name="irrelevant", steps=irrelevant, prelude=trained()),
    Scenario(name="asked", steps=asked, prelude=trained(), survives_loss=False),
    Scenario(name="asked with a key", steps=keyed, prelude=trained(), survives_loss=False),
    Scenario(name="swept", steps=unnoticed),
)

IN_MEMORY = (Scenario(name="a name that cannot be listed", steps=unlistable), *SCRIPTS, *NOTIFIED)
SCENARIOS = (*BASIC, *RARE, *SWEEPS, *WATCHED, *DATA, *IN_MEMORY)
SURVIVING_LOSS = [scenario for scenario in SCENARIOS if scenario.survives_loss]
IN_STORAGE = {scenario.name: scenario for scenario in SCENARIOS if scenario not in IN_MEMORY}
"""By name, those that are also run on real storage: a check of scripts makes no requests of its own, a listing
that fails is repeated for a long time, and some steps of notifications change the double's rows."""
