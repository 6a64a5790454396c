"""``landfall import-batchai``. It imports no Azure SDK."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import click

from cli.files import read_at_most, write_new
from cli.importing.batchai_job import MAX_JOB_BYTES, ImportedJob, read_job
from cli.init.command import EXISTS, dataset_name, dataset_option, machines_of, new_pipeline_file, target_option
from shared.safe_text import counted, one_line

_MAX_NODES = 100


@click.command(name="import-batchai", epilog="Example: landfall import-batchai job.json --dataset photos")
@click.argument("job", type=click.Path(path_type=Path), metavar="JOB")
@dataset_option
@target_option
@click.option("--cluster", metavar="NAME", help="Cluster of clusters.yaml to train on (default: the first one).")
@click.option(
    "--json",
    "is_json",
    is_flag=True,
    help="Print one JSON object with the file and the settings that were not mapped.",
)
def import_batchai(
    job: Path, dataset: str | None, target: Path | None, cluster: str | None, *, is_json: bool
) -> None:
    """Write a pipeline file for a job of Azure Batch AI, and list the settings that it cannot express.

    JOB is the JSON file that created the job: a Horovod job, or a job that runs a Python script under MPI. Each
    setting without a counterpart is listed with what to do instead. Values that the job does not state are marked
    with CHECK. Secrets and passwords are not read. An existing file is not overwritten.

    Exit status: 0 the file is written; 1 the job cannot be converted; 2 wrong usage.
    """
    name = one_line(str(job))
    imported = read_job(read_at_most(job, MAX_JOB_BYTES + 1, wanted="the JSON file that created the job"), name)
    dataset = dataset or dataset_name(job.stem) or "batchai"
    file = new_pipeline_file(target, dataset)
    machines = machines_of(file.parent, cluster)
    text = "\n".join([*_lines(imported, dataset, machines, name), ""])
    write_new(file, text, otherwise=EXISTS)
    click.echo(_as_json(file, imported) if is_json else "\n".join(_report(file, imported)))


def _script_of(job: ImportedJob) -> str:
    """Return the script's path next to the pipeline, with a valid name."""
    stem = re.sub(r"[^A-Za-z0-9_-]+", "_", PurePosixPath(job.script).stem).lstrip("-")[:100] or "train"
    return f"scripts/{stem}.py"


def _lines(job: ImportedJob, dataset: str, machines: dict[str, object], name: str) -> Iterator[str]:
    yield f"# Made from the Batch AI job {json.dumps(name)} by landfall import-batchai. Fields: docs/pipelines.md."
    yield f"pipeline: {json.dumps(dataset)}"
    yield f"dataset: {json.dumps(dataset)}"
    yield ""
    yield "data:"
    yield "  format: tfrecord   # CHECK: Batch AI mounted folders; `landfall pack` makes shards of them"
    yield "  splits: [train]    # CHECK: each upload must have these"
    yield ""
    yield "train:"
    yield f"  script: {_script_of(job)}   # {json.dumps(job.script)} on Batch AI"
    if job.distribution != "mpi":
        yield f"  distribution: {job.distribution}"
    if job.image:
        yield f"  environment: {{image: {json.dumps(job.image)}}}"
    yield f"  cluster: {json.dumps(machines.get('cluster') or 'my-gpu')}   # {_processes(job, machines)}"
    nodes = min(job.num_nodes, _MAX_NODES)
    yield f"  num_nodes: {nodes}" + (f"   # CHECK: the job had {job.num_nodes}" if nodes != job.num_nodes else "")
    yield f"  timeout_s: {job.timeout_s}"
    if job.shm_size:
        yield f"  shm_size: {json.dumps(job.shm_size)}"
    yield "  pass_paths: false   # the script finds its folders in LANDFALL_DATA, LANDFALL_OUTPUT and so on"
    if job.arguments:
        yield "  arguments:"
        yield from (f"    - {json.dumps(argument)}" for argument in job.arguments)
    if job.environment:
        yield "  environment_variables:"
        yield from (f"    {json.dumps(key)}: {json.dumps(value)}" for key, value in job.environment.items())
    yield ""
    yield "register: null   # CHECK: the model to register, and the metrics that it needs"


def _processes(job: ImportedJob, machines: dict[str, object]) -> str:
    """Return a comment on the choice of the cluster."""
    wanted = -(-job.num_processes // job.num_nodes)
    offered = machines.get("processes_per_node")
    text = f"the job had {_size(job)}"
    if job.num_processes % job.num_nodes:
        return f"CHECK: {text}, which is not the same number on each; here each GPU gets one"
    if offered is None or offered != wanted:
        has = f"; this cluster has {offered} on each node" if offered is not None else ""
        return f"CHECK: {text}{has}"
    return text


def _size(job: ImportedJob) -> str:
    return f"{counted(job.num_processes, 'process', 'processes')} on {counted(job.num_nodes, 'node')}"


def _report(file: Path, job: ImportedJob) -> Iterator[str]:
    place = one_line(str(file))
    yield f"Wrote {place}: {_size(job)}"
    for each in job.not_mapped:
        yield f"  not mapped: {one_line(each.member)}: {one_line(each.what)}"
        yield f"    instead: {one_line(each.instead)}"
    script = one_line(str(file.parent / _script_of(job)))
    from cli.check import as_text, checked_files

    yield from (as_text(checked) for checked in checked_files(file))
    yield f"Next: copy {one_line(job.script)} to {script}"
    yield f"      landfall lint {script} --pipeline {place}"
    yield f"      landfall check {place}"


def _as_json(file: Path, job: ImportedJob) -> str:
    members = {
        "file": str(file),
        "script": {"batchai": job.script, "copy_to": str(file.parent / _script_of(job))},
        "num_nodes": job.num_nodes,
        "num_processes": job.num_processes,
        "not_mapped": [vars(each) for each in job.not_mapped],
    }
    return json.dumps(members)
