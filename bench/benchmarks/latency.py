"""From a version's last shard to its submission, on the twin: how long people wait before Azure ML is asked.

What is measured is a sum of pauses that the twin shares with Azure (Event Grid's delivery, the queue trigger's
polling) and of our own work, on a machine that also runs storage, emulators and stub trainings. It has no bound: it
describes.
"""

from __future__ import annotations

import statistics
import time

from bench.chaos.plan import ChaosPlan
from bench.chaos.run import chaos_twin
from bench.figures import BenchmarkError, Context, Figure
from local_azure.processes import wait_until
from tests.support.twin import TwinUnderTest

PLAN = ChaosPlan(versions=12, shards=3)
WITHIN_S = 120.0


def run(context: Context) -> list[Figure]:
    """Upload a dozen versions, one after the other: about two minutes."""
    with chaos_twin(PLAN, context.scratch) as twin:
        latencies_s = [latency_s(twin, dataset, context) for dataset in PLAN.datasets][1:]  # the first one warms up
    return [
        Figure(name="last shard to submission, p50", value=statistics.median(latencies_s), unit="s on the twin"),
        Figure(name="last shard to submission, p95", value=p95(latencies_s), unit="s on the twin"),
    ]


def latency_s(twin: TwinUnderTest, dataset: str, context: Context) -> float:
    """Upload a version; return the time from its last shard's write to the call that submits its job."""
    shards = [(path, content) for path, content in PLAN.uploads() if path.startswith(f"{dataset}/")]
    for path, content in shards:
        twin.upload(f"{dataset}/v1", {path.rpartition("/")[2]: content})
    landed = time.time()  # the emulator's log of calls has this clock
    try:
        submitted = wait_until(
            lambda: submission(twin, dataset), what=f"{dataset} to be submitted", timeout_s=WITHIN_S, poll_s=0.2
        )
    except TimeoutError as error:
        raise BenchmarkError(str(error)) from error
    context.say(f"{dataset}: {submitted - landed:.2f} s")
    return submitted - landed


def submission(twin: TwinUnderTest, dataset: str) -> float | None:
    """Return when the dataset's job was submitted, None while it was not."""
    jobs = f"/jobs/landfall-{dataset}-"
    times = (call["t"] for call in twin.client.calls() if call["method"] == "PUT" and jobs in call["path"])
    return next(times, None)


def p95(samples: list[float]) -> float:
    """Return the value that one sample of twenty exceeds."""
    return statistics.quantiles(samples, n=20, method="inclusive")[-1]
