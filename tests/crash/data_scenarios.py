"""Scenarios of bad input: data that drift or are rejected, sets with wrong numbers, and scripts with errors."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from function_app.adapters.storage_errors import StorageRefusedError
from function_app.config.layouts import Layout
from function_app.domain.records import BlobFacts
from function_app.runs.requests import request_run
from function_app.testing.stores import MemoryRejectedCopies
from shard_validation import DriftPolicy
from tests.crash.process import Step
from tests.crash.scenario import (
    Scenario,
    Serve,
    changed,
    deliver_run_events,
    end_jobs,
    run_jobs,
    settle,
    trained,
    upload,
    uploads,
)
from tests.support.world import ALL_SHARDS, TRAIN_SHARDS, VERSION, World, pipeline, shard_content

DRIFTED = shard_content(*[9] * 500)
WRONG = "train-00000-of-00004.tfrecord"


class ClosedRejectedCopies(MemoryRejectedCopies):
    """Refuses every copy."""

    def copy(self, facts: BlobFacts, container: str, path: str) -> bool:
        """See RejectedCopies."""
        raise StorageRefusedError(f"{container} may not be written: {facts.path} to {path}")


def registered(serve: Serve) -> list[Step]:
    """A version is trained on, and its model is registered."""
    return [*trained()(serve), lambda world: settle(world, "Completed", serve)]


def drifted(serve: Serve) -> list[Step]:
    """A shard changes after its version's model was registered, and its labels change with it."""
    return [*upload(TRAIN_SHARDS[0], DRIFTED), serve]


def watch_drift(action: str) -> Step:
    """Return a preparation: changed data are trained on, with this action if they drift."""

    def prepare(world: World) -> None:
        policy = DriftPolicy(action=action)  # type: ignore[arg-type]  # a plain string from the caller
        world.change_pipeline(
            on_change="train", data=pipeline().data.model_copy(update={"drift": policy, "small_shard_ratio": 0.0})
        )

    return prepare


def unreadable_manifest(serve: Serve) -> list[Step]:
    """The manifest of the registered model can no longer be read."""
    return [lambda world: world.overwrite_manifests(b"?"), *changed(serve)]


def quarantined(serve: Serve) -> list[Step]:
    """A shard is rejected, and then replaced by a valid one."""
    return [*upload(ALL_SHARDS[0], b"no records"), *uploads(*ALL_SHARDS), serve]


def ask_for_copies(world: World) -> None:
    """Have rejected shards copied to a container."""
    world.change_pipeline(quarantine="quarantine")


def close_quarantine(world: World) -> None:
    """Deny write access to the container of rejected copies."""
    ask_for_copies(world)
    world.rejected_copies = ClosedRejectedCopies(world.shards)
    world.services = replace(world.services, rejected_copies=world.rejected_copies)


def begun_wrongly(serve: Serve) -> list[Step]:
    """The first shard's name has a wrong number of shards; it is deleted, and correct ones follow."""
    return [*upload(WRONG), lambda world: world.remove(f"{VERSION}/{WRONG}"), *uploads(*ALL_SHARDS), serve]


def deleted_before_closing(serve: Serve) -> list[Step]:
    """An accepted shard is deleted before the last one is uploaded; it is uploaded again."""
    gone: Step = lambda world: world.remove(f"{VERSION}/{ALL_SHARDS[0]}")  # noqa: E731 (one step of several)
    return [*uploads(*ALL_SHARDS[:-1]), gone, *uploads(ALL_SHARDS[-1], ALL_SHARDS[0]), serve]


def deleted_before_submission(serve: Serve) -> list[Step]:
    """A shard is deleted while the run waits to be submitted; it is uploaded again."""
    gone: Step = lambda world: world.remove(f"{VERSION}/{ALL_SHARDS[0]}")  # noqa: E731 (one step of several)
    return [*uploads(*ALL_SHARDS), gone, serve, *uploads(ALL_SHARDS[0]), serve]


def submitted(serve: Serve) -> list[Step]:
    """A version is uploaded, and its run submitted."""
    return [*uploads(*ALL_SHARDS), serve]


def replace_shard(world: World) -> None:
    """Replace the content of a shard; no event reports it."""
    world.put(ALL_SHARDS[0], shard_content(*[3] * len(ALL_SHARDS[0])))


def replaced_before_start(_: Serve) -> list[Step]:
    """A shard is replaced after its run was submitted and before the job starts."""
    return [replace_shard, run_jobs, deliver_run_events, deliver_run_events]


def started(serve: Serve) -> list[Step]:
    """A version is uploaded, and its job runs."""
    return [*submitted(serve), run_jobs, deliver_run_events]


def replaced_while_trained(job_end: str) -> Callable[[Serve], list[Step]]:
    """Return the steps in which a shard is replaced while the job runs, which then ends."""
    return lambda _: [replace_shard, lambda world: end_jobs(world, job_end), deliver_run_events]


def with_layout(**members: Any) -> Step:
    """Return a preparation: a layout with any file names, whose splits follow from patterns."""
    layout = Layout(**members, patterns={"train": "train-*", "validation": "validation-*"})
    return lambda world: world.change_pipeline(data=pipeline().data.model_copy(update={"layout": layout}))


def marked(serve: Serve) -> list[Step]:
    """The marker's event overtakes that of the last shard; the writer's other files also cause events."""
    last, marker = ALL_SHARDS[-1], "_SUCCESS"
    puts: list[Step] = [lambda world, name=name: world.put(name) for name in (last, "_started_1")]  # type: ignore[misc]
    events: list[Step] = [
        lambda world, name=name: world.deliver(f"{VERSION}/{name}")  # type: ignore[misc]
        for name in ("_started_1", marker, last)
    ]
    return [*uploads(*ALL_SHARDS[:-1]), *puts, lambda world: world.put(marker, b""), *events, serve]


CONTENT = {name: shard_content(*range(number + 1)) for number, name in enumerate(ALL_SHARDS)}


def listed(serve: Serve) -> list[Step]:
    """A shard differs from the list and is rejected; then it is uploaded as the list states."""
    lines = (f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in CONTENT.items())
    first, *others = CONTENT
    return [
        *(step for name in others for step in upload(name, CONTENT[name])),
        *upload("SHA256SUMS", "".join(lines).encode()),
        *upload(first, shard_content(7, 7, 7)),
        *upload(first, CONTENT[first]),
        serve,
    ]


def listed_wrongly(serve: Serve) -> list[Step]:
    """The first list differs from all shards; the next one matches."""
    wrong = "".join(f"{'0' * 64}  {name}\n" for name in CONTENT)
    return [
        *(step for name, content in CONTENT.items() for step in upload(name, content)),
        *upload("SHA256SUMS", wrong.encode()),
        *listed(serve),
    ]


def commit(version: int, added: Mapping[str, bytes], *removed: str) -> bytes:
    """Write a commit of a Delta table. The files of these tests have one record for each label."""
    size = len(shard_content(0))
    actions: list[dict[str, Any]] = [{"commitInfo": {"version": version}}]
    actions += [{"remove": {"path": name, "dataChange": True}} for name in removed]
    actions += [
        {
            "add": {
                "path": name,
                "size": len(content),
                "dataChange": True,
                "stats": json.dumps({"numRecords": len(content) // size}),
            }
        }
        for name, content in added.items()
    ]
    return "\n".join(map(json.dumps, actions)).encode()


def log_of(version: int) -> str:
    """Return the path of a commit in the table."""
    return f"_delta_log/{version:020}.json"


def committed(serve: Serve) -> list[Step]:
    """A table's first commit overtakes the events of two files, one of which differs from the commit at first."""
    first, second, last = CONTENT
    wrong = shard_content(7, 7, 7)
    return [
        *upload(second, CONTENT[second]),
        lambda world: world.put(last, CONTENT[last]),
        *upload(first, wrong),
        *upload(log_of(0), commit(0, CONTENT)),
        lambda world: world.deliver(f"{VERSION}/{last}"),
        *upload(first, CONTENT[first]),
        serve,
    ]


def committed_again(serve: Serve) -> list[Step]:
    """A part of the table is overwritten, and then its files are reorganised."""
    first, second, _ = CONTENT
    more, joined = {"train-more": shard_content(3, 4)}, {"train-joined": shard_content(0, 1, 3, 4)}
    return [
        *(step for name, content in more.items() for step in upload(name, content)),
        *upload(log_of(1), commit(1, more, first)),
        *(step for name, content in joined.items() for step in upload(name, content)),
        *upload(log_of(2), commit(2, joined, second, *more).replace(b'"dataChange": true', b'"dataChange": false')),
        serve,
    ]


def counted_wrongly(serve: Serve) -> list[Step]:
    """The Hub's metadata name the splits of files, at first with another number of records than the files have."""
    metadata = (
        "---\ndataset_info: {splits: [{name: train, num_examples: %d}, {name: validation, num_examples: 1}]}\n---\n"
    )
    files = {"a-train.tfrecord": (1, 2), "b-train.tfrecord": (3,), "c-val.tfrecord": (4,)}
    return [
        *(step for name, labels in files.items() for step in upload(name, shard_content(*labels))),
        *(step for number in (4, 3) for step in upload("README.md", (metadata % number).encode())),
        serve,
    ]


def uploaded_unserved(_: Serve) -> list[Step]:
    """A version is uploaded while its pipeline file cannot be used."""
    return uploads(*ALL_SHARDS)


DATA = (
    Scenario(name="a shard is deleted before the closing", steps=deleted_before_closing),
    # the timer that replaces a lost step also submits the run, before the shard is deleted
    Scenario(name="a shard is deleted before the submission", steps=deleted_before_submission, survives_loss=False),
    # after the end of the job, the run is too late to cancel and is not registered
    Scenario(
        name="replaced before the job starts",
        steps=replaced_before_start,
        prelude=submitted,
        survives_loss=False,
    ),
    Scenario(name="replaced while the job trains", steps=replaced_while_trained("Completed"), prelude=started),
    Scenario(
        name="replaced while the job fails",
        steps=replaced_while_trained("Failed"),
        prelude=started,
        job_end="Failed",
    ),
    Scenario(name="pipeline out of service", steps=uploaded_unserved, prepare=World.break_pipeline),
    Scenario(name="drift blocks", steps=drifted, prelude=registered, prepare=watch_drift("block")),
    Scenario(name="drift warns", steps=drifted, prelude=registered, prepare=watch_drift("warn")),
    Scenario(name="drift unmeasured", steps=unreadable_manifest, prelude=registered, prepare=watch_drift("block")),
    Scenario(name="quarantined", steps=quarantined, prepare=ask_for_copies),
    Scenario(name="quarantine closed", steps=quarantined, prepare=close_quarantine),
    Scenario(name="begun wrongly", steps=begun_wrongly),
    Scenario(name="marked", steps=marked, prepare=with_layout(kind="marker")),
    Scenario(name="marked again", steps=marked, prelude=marked, prepare=with_layout(kind="marker")),
    Scenario(name="listed", steps=listed, prepare=with_layout(kind="manifest")),
    # the timer that replaces a lost step also summarises the rejections
    Scenario(name="listed wrongly", steps=listed_wrongly, prepare=with_layout(kind="manifest"), survives_loss=False),
    Scenario(name="committed", steps=committed, prepare=with_layout(kind="delta")),
    Scenario(name="committed again", steps=committed_again, prelude=committed, prepare=with_layout(kind="delta")),
    Scenario(
        name="counted wrongly", steps=counted_wrongly, prepare=with_layout(kind="manifest", manifest="README.md")
    ),
    Scenario(name="quiet", steps=uploaded_unserved, prepare=with_layout(kind="quiet", quiet_s=600)),
)


BAD = b"""import horovod.tensorflow as hvd
import os
print(hvd.rank())
os.environ["NCCL_IB_DISABLE"] = "1"
"""


def bad_script(_: str) -> bytes:
    """Return a script with an error, and with a warning on a size with InfiniBand."""
    return BAD


def with_bad_script(world: World) -> None:
    """Deploy a pipeline with such a script."""
    own = {"script": "scripts/mine.py"}
    world.change_pipeline(train=pipeline().train.model_copy(update=own))
    world.change_machines(vm_size="Standard_ND96asr_v4")
    world.services = replace(world.services, read_script=bad_script)


def force(world: World) -> None:
    """Request a forced run, with the same key each time."""
    if world.services.ledger.latest_generation(VERSION) is not None:
        request_run(VERSION, {}, trigger="http", services=world.services, forced_by="key-1")


def refused(serve: Serve) -> list[Step]:
    """A version is uploaded whose pipeline's script has errors."""
    return [*uploads(*ALL_SHARDS), serve]


def forced(serve: Serve) -> list[Step]:
    """A person forces the run."""
    return [force, serve, run_jobs, lambda world: end_jobs(world, "Completed"), deliver_run_events]


SCRIPTS = (
    Scenario(name="a script with errors", steps=refused, prepare=with_bad_script),
    Scenario(
        name="a script with errors, forced",
        steps=forced,
        prepare=with_bad_script,
        prelude=refused,
        survives_loss=False,
    ),
)
