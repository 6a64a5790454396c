"""A worker that reads, decodes and augments the input of one rank for one epoch, without a model."""

from __future__ import annotations

import os
import shlex
import time
from functools import cache

from bench.workers.timed import serve
from shared.job_arguments import JobArguments
from training_job.data.content_check import ContentCheck
from training_job.data.damage import check_shard
from training_job.data.inputs import Inputs, open_inputs
from training_job.job import Job, prepare


@cache
def opened(arguments: str) -> tuple[Job, Inputs]:
    """Open the job of a command line, and wait for its check of the contents, which would disturb measurements."""
    job = prepare(JobArguments.from_argv(shlex.split(arguments)), 1)
    inputs = open_inputs(job, 0, 1)
    if inputs.check is not None:
        inputs.check.wait()
    return job, inputs


def epoch(arguments: str, *, checked: bool) -> int:
    """Read an epoch; return the processor time of all threads in microseconds."""
    job, inputs = opened(arguments)
    began = time.process_time_ns()
    paths = dict(inputs.suspects(0)[:1])  # the training split's only shard
    check = (
        ContentCheck(list(paths), lambda shard: check_shard(shard, paths[shard], job.manifest.data_format))
        if checked
        else None
    )
    for _ in inputs.training.training_epoch(0):
        pass
    if check is not None:
        check.wait()
    return (time.process_time_ns() - began) // 1000


if __name__ == "__main__":
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    serve({"epoch": epoch})
