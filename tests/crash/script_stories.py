"""Stories of a user's own script: one with errors is refused at every try, and goes where somebody insists."""

from __future__ import annotations

from dataclasses import replace

from function_app.runs.requests import request_run
from tests.crash.stages import Step
from tests.crash.stories import Serve, Story, end_jobs, run_jobs, tell_of_runs, uploads
from tests.support.world import ALL_SHARDS, VERSION, World, pipeline

BAD = b"""import horovod.tensorflow as hvd
import os
print(hvd.rank())
os.environ["NCCL_IB_DISABLE"] = "1"
"""


def bad_script(_: str) -> bytes:
    """Return a script with an error, and a warning on a size with InfiniBand."""
    return BAD


def with_bad_script(world: World) -> None:
    """Deploy a pipeline with it."""
    own = {"script": "scripts/mine.py", "vm_size": "Standard_ND96asr_v4"}
    world.change_pipeline(train=pipeline().train.model_copy(update=own))
    world.services = replace(world.services, read_script=bad_script)


def insist(world: World) -> None:
    """Ask with force, as a repeated call does: under the same key."""
    if world.services.ledger.latest_generation(VERSION) is not None:
        request_run(VERSION, {}, trigger="http", services=world.services, forced_by="key-1")


def refused(serve: Serve) -> list[Step]:
    """A version lands, and its pipeline's script has errors."""
    return [*uploads(*ALL_SHARDS), serve]


def forced(serve: Serve) -> list[Step]:
    """Somebody insists."""
    return [insist, serve, run_jobs, lambda world: end_jobs(world, "Completed"), tell_of_runs]


SCRIPTS = (
    Story(name="a script with errors", steps=refused, prepare=with_bad_script),
    Story(
        name="a script with errors, forced",
        steps=forced,
        prepare=with_bad_script,
        prelude=refused,
        survives_loss=False,
    ),
)
