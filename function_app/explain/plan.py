"""The plan of a run: what would be submitted, what it would take and cost, and what else one could choose."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from function_app.config.pipelines import Pipeline, is_own_script, processes_under
from function_app.domain.capacity import Capacity
from function_app.domain.records import DatasetVersion, Generation, RunRecord
from function_app.domain.run_states import SETTLED
from function_app.ingest.closing import described
from function_app.ingest.stored_shards import read_manifest
from function_app.planning.estimates import (
    Estimate,
    OneNode,
    Site,
    Work,
    estimate,
    node_counts,
    one_node,
    recommended,
)
from function_app.planning.job_body import job_body
from function_app.planning.planner import earlier_runs, sites, work_of
from function_app.planning.predictions import kind_of, observations, outcome_of
from function_app.runs.admission import last_attempt, refuse_held
from function_app.runs.mistakes import ScriptCheck, check_script, refuse_bad_script, refuse_misfit, with_script_errors
from function_app.runs.requests import closing_of, overridden
from function_app.runs.submission import unspent_plan
from function_app.services import Services
from shared.errors import LandfallError
from shared.job_arguments import TrainingOptions
from shared.manifest import SYNTHETIC, Manifest, ManifestError, fingerprint
from shared.safe_text import counted, one_line
from shared.vm_sizes import retirement, vm_size

MAX_OUTCOMES = 5
MAX_REFUSAL_CHARS = 500
DRY_RUN = "dry-run"
"""Stands for the key of a forced request that is not made; its run gets another name than this one says."""


@dataclass(frozen=True, kw_only=True)
class ClusterPlan:
    """One cluster, and what a job on it would meet."""

    site: Site
    is_own: bool
    """Whether it is the one that the pipeline names."""
    network: str
    life_cycle: str
    quota: str
    """The region's quota for its size, or why that is not known."""
    now: str
    """Its nodes now, or why they are not known."""

    @property
    def name(self) -> str:
        """Its name in clusters.yaml."""
        return self.site.machines.cluster


@dataclass(frozen=True, kw_only=True)
class RunPlan:
    """What a request for a run would lead to."""

    dataset_version: DatasetVersion
    pipeline: Pipeline
    generation: Generation
    run_id: str
    met: RunRecord | None
    """The run that the same request has led to before; None if a new one would start."""
    reason: str
    """Why a new run would start, or none."""
    problems: tuple[str, ...]
    """Why the request would be refused; empty if it would be accepted."""
    validation: tuple[str, ...]
    """What is known of the data."""
    work: Work
    clusters: tuple[ClusterPlan, ...]
    estimates: tuple[Estimate, ...]
    """By cluster and number of nodes."""
    own: Estimate | None
    """As the pipeline's file says; None if its cluster is not known."""
    recommended: Estimate | None
    one_node: OneNode | None
    throughput: str
    """Where the figures come from."""
    outcomes: tuple[RunRecord, ...]
    """Earlier runs that completed and had a prediction, the newest first."""
    as_of: str | None
    """Date of prices and figures; None without ``prices.yaml``."""
    currency: str
    price_problems: tuple[str, ...]
    """What is wrong with ``prices.yaml``, or that it is old."""
    body: Mapping[str, Any]
    """The body of the request to Azure ML."""


def plan_request(
    version: DatasetVersion,
    services: Services,
    *,
    overrides: Mapping[str, Any] | None = None,
    force: bool = False,
) -> RunPlan:
    """Return the plan of a request, which changes nothing; a request that would be refused has ``problems``.

    Raises NotFoundError, PipelineOutOfServiceError, VersionNotWholeError, OverrideError.
    """
    pipeline = services.pipeline_of(version.dataset)
    options = overridden(pipeline, overrides or {})
    generation = _closing(pipeline, version, services)
    manifest = None if pipeline.data.is_synthetic else _manifest(generation, services)
    check = check_script(pipeline, services.read_script, services.read_modules)
    problems = tuple(_problems(pipeline, options, generation, services, None if force else check))
    plan = unspent_plan(pipeline, generation, services, options=options, forced_by=DRY_RUN if force else None)
    plan = with_script_errors(plan, check)
    met = None if force else last_attempt(plan.run_id, services.ledger)
    work = work_of(pipeline, options, manifest)
    return RunPlan(
        dataset_version=version,
        pipeline=pipeline,
        generation=generation,
        run_id=plan.run_id,
        met=met,
        reason=_reason(met, generation, force=force),
        problems=problems,
        validation=tuple(_validation(generation, manifest)),
        work=work,
        body=job_body(plan.spec, services.workspace),
        **_sizes(work, kind_of(plan.spec.command), services),
    )


def _sizes(work: Work, kind: str, services: Services) -> dict[str, Any]:
    """Return the members of a plan that say what the sizes take and cost."""
    pipeline, facts = work.pipeline, services.plan_facts
    runs = earlier_runs(pipeline.dataset, services)
    known = observations(runs, kind)
    capacity = _capacity(services)
    clusters = tuple(_cluster(site, pipeline, capacity) for site in sites(pipeline, facts))
    estimates = tuple(
        estimate(work, one.site, number, facts.prices, known)
        for one in clusters
        for number in node_counts(one.site.cluster, pipeline.train.num_nodes if one.is_own else 1)
    )
    own = next((one for one in estimates if _is_own(one, pipeline)), None)
    best = recommended(estimates)
    several = next((one for one in (own, best) if one is not None and one.num_nodes > 1), None)
    ended = [run for run in runs if outcome_of(run) is not None]
    age = facts.prices.age(services.clock().date()) if facts.prices else None
    return {
        "clusters": clusters,
        "estimates": estimates,
        "own": own,
        "recommended": best,
        "one_node": one_node(several, estimates) if several else None,
        "throughput": _throughput(own, pipeline, has_prices=facts.prices is not None),
        "outcomes": tuple(ended[:MAX_OUTCOMES]),
        "as_of": facts.prices.as_of.isoformat() if facts.prices else None,
        "currency": facts.currency,
        "price_problems": (*facts.problems, *([age] if age else [])),
    }


def _closing(pipeline: Pipeline, version: DatasetVersion, services: Services) -> Generation:
    """Return what would be trained on. Synthetic data have no closing before their first run: nothing is written."""
    if not pipeline.data.is_synthetic:
        return closing_of(pipeline, version, services)
    known = services.ledger.latest_generation(version)
    if known is not None:
        return known
    manifest = Manifest(
        dataset=version.dataset,
        version=SYNTHETIC,
        generation=1,
        fingerprint=fingerprint(()),
        data_format=pipeline.data.format,
        features=(),
        shards=(),
    )
    return described(manifest, services.clock())


def _manifest(generation: Generation, services: Services) -> Manifest | None:
    try:
        return read_manifest(generation.manifest_path, services.documents)
    except ManifestError:
        return None


def _problems(
    pipeline: Pipeline,
    options: TrainingOptions,
    generation: Generation,
    services: Services,
    check: ScriptCheck | None,
) -> Iterator[str]:
    """Yield why the request would be refused, as it would be; without ``check`` it is forced."""
    checks: list[Callable[[], object]] = [lambda: refuse_misfit(pipeline, options, generation, services.documents)]
    if check is not None:
        checks += [
            lambda: refuse_held(generation, services.ledger),
            lambda: refuse_bad_script(pipeline, check),
        ]
    for each in checks:
        try:
            each()
        except LandfallError as error:
            yield str(error)


def _reason(met: RunRecord | None, generation: Generation, *, force: bool) -> str:
    what = f"generation {generation.number}, fingerprint {generation.fingerprint[:12]}"
    if met is not None:
        end = "has ended" if met.state in SETTLED else "is"
        return (
            f"the same training on the same data ({what}) was requested before: {met.run_id} {end} {met.state}; no "
            "new run would start without force"
        )
    if force:
        return f"a new run on {what}, because it is forced"
    return f"a new run: no run has trained {what} with these options, this code and these machines"


def _validation(generation: Generation, manifest: Manifest | None) -> Iterator[str]:
    if manifest is not None and manifest.shards:
        splits = dict.fromkeys(shard.split for shard in manifest.shards)
        for split in splits:
            num_shards, num_records = len(manifest.split(split)), manifest.num_records(split)
            yield f"{split}: {counted(num_shards, 'shard')}, {counted(num_records, 'record')} accepted"
    elif generation.num_shards:
        yield "the manifest cannot be read, so the records are not known"
    else:
        yield "synthetic data: the training generates its records, and there is nothing to validate"
    if generation.guess:
        yield f"that the version is complete is a guess: {generation.guess}"


def _capacity(services: Services) -> Capacity | str:
    """Return what Azure ML says of clusters and quotas, or why it says nothing: a plan does not need it."""
    try:
        return services.jobs.capacity()
    except LandfallError as error:
        return one_line(str(error))[:MAX_REFUSAL_CHARS]


def _cluster(site: Site, pipeline: Pipeline, capacity: Capacity | str) -> ClusterPlan:
    cluster, machines = site.cluster, site.machines
    known = vm_size(machines.vm_size)
    processes = processes_under(pipeline.train.distribution, machines)
    if known is None:
        network = f"{counted(processes, 'process', 'processes')} a node; no GPU is known of"
    else:
        between = "InfiniBand" if known.infiniband else "Ethernet"
        network = f"{known.num_gpus} x {known.gpu} {known.gpu_memory_gb} GB a node; {between} between nodes"
    stay = f"{counted(cluster.min_nodes, 'node') if cluster.min_nodes else 'no nodes'} without a job"
    kind = "low priority: nodes may be preempted" if cluster.priority == "low" else "dedicated"
    retired = retirement(machines.vm_size) or (f"{known.retired}" if known and known.retired else "")
    quota, enough_for = _quota(site, capacity)
    return ClusterPlan(
        site=replace(site, enough_for=enough_for),
        is_own=machines.cluster == pipeline.train.cluster,
        network=network,
        life_cycle=f"{kind}; {stay}, at most {cluster.max_nodes}" + (f"; {retired}" if retired else ""),
        quota=quota,
        now=_now(machines.cluster, capacity),
    )


def _quota(site: Site, capacity: Capacity | str) -> tuple[str, int | None]:
    """Return the quota of a cluster's size in words, and for how many nodes it is enough, if that is known."""
    if isinstance(capacity, str) or capacity.refusal is not None:
        return f"unknown: {capacity if isinstance(capacity, str) else capacity.refusal}", None
    known = capacity.quota_of(site.machines.vm_size, site.cluster.priority)
    if known is None:
        return f"unknown: the region has no quota for {site.machines.vm_size}, or does not offer it", None
    quota, vcpus = known
    enough, more = quota.limit // vcpus, max(0, quota.limit - quota.used) // vcpus
    text = (
        f"{quota.name}: {quota.used:,} of {quota.limit:,} vCPUs in use; a node takes {vcpus}, so that it is enough "
        f"for {_nodes(enough)}, and for {more} more now"
    )
    return text, enough


def _now(cluster: str, capacity: Capacity | str) -> str:
    """Return what a cluster has now, in words."""
    if isinstance(capacity, str):
        return f"unknown: {capacity}"
    found = capacity.clusters.get(cluster)
    if found is None:
        return "the workspace has no such cluster: `landfall publish` creates it"
    return f"{_nodes(found.num_nodes)} of at most {found.max_nodes}"


def _nodes(number: int) -> str:
    return f"{number:,} {'node' if number == 1 else 'nodes'}"


def _is_own(one: Estimate, pipeline: Pipeline) -> bool:
    return (one.cluster, one.num_nodes) == (pipeline.train.cluster, pipeline.train.num_nodes)


def _throughput(own: Estimate | None, pipeline: Pipeline, *, has_prices: bool) -> str:
    if own is None or own.pace is None:
        if is_own_script(pipeline.train.script):
            return "unknown until its first run: there are no published figures for your own script"
        if not has_prices:
            return "unknown: no run has been measured, and prices.yaml is missing"
        return "unknown: no run has been measured, and prices.yaml has no figure for this GPU and network"
    runs = f"{own.pace.num_runs} earlier {'run' if own.pace.num_runs == 1 else 'runs'}"
    return {
        "fitted": f"fitted to {runs} of the pipeline on several numbers of processes",
        "scaled": f"measured in {runs} of the pipeline, scaled to other sizes",
        "published": "the cost model with published figures, because no run of the pipeline has been measured",
    }[own.pace.source]
