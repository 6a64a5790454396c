"""Time and cost of a training on each number of nodes of a cluster, and the recommended number. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf
from statistics import median

from function_app.config.clusters import Cluster, Machines
from function_app.config.pipelines import Pipeline, is_own_script, processes_under
from function_app.config.prices import Prices
from function_app.planning.cost_model import CostModel, Place
from function_app.planning.throughput import Observation, Throughput, pace
from shared.job_arguments import TrainingOptions
from shared.vm_sizes import vm_size

HOUR_S = 3600
WORTH = 1.25
"""The recommended size is the fastest among the sizes that cost at most this many times the cheapest one."""
EVALUATION = 1 / 3
"""An evaluated record takes this share of a trained record's time, of which the backward pass takes two thirds."""
ASSUMED = 2.0
"""Factor by which the assumed time of a job outside its epochs may be wrong."""
MAX_SIZES = 12
"""How many numbers of nodes are computed for one cluster."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """The training whose time is estimated."""

    pipeline: Pipeline
    options: TrainingOptions
    """The pipeline's options with the request's overrides, without options for single GPUs."""
    train_records: int
    validation_records: int
    pixels: int
    """Height times width of the network's input image; 0 if unknown."""

    @property
    def is_own(self) -> bool:
        """Whether the user's own script trains; its epochs and batches are unknown."""
        return is_own_script(self.pipeline.train.script)

    @property
    def epochs(self) -> int:
        """Passes over the data; 1 for the user's own script, whose run counts as a whole."""
        return 1 if self.is_own else self.options.epochs

    def options_on(self, machines: Machines) -> TrainingOptions:
        """Return the options on some machines; options for their GPU take precedence if it is another GPU."""
        if machines.gpu == self.pipeline.machines.gpu:
            return self.options
        own = self.pipeline.train.options_by_gpu.get(machines.gpu or "")
        return own.instead_of(self.options) if own else self.options


@dataclass(frozen=True, kw_only=True)
class Site:
    """A cluster with its machines and their price."""

    cluster: Cluster
    machines: Machines
    price: float | None
    """Price of one node for an hour; None if neither clusters.yaml nor prices.yaml states it."""
    retired: str | None = None
    enough_for: int | None = None
    """Nodes that the region's quota allows; None if unknown."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """Time and cost of one training on a number of nodes of a cluster."""

    cluster: str
    vm_size: str
    num_nodes: int
    num_ranks: int
    global_batch: int | None = None
    """Records of one step; None for the user's own script, like ``steps``."""
    steps: int | None = None
    """Steps of one epoch."""
    pace: Throughput | None = None
    start_s: float = 0.0
    """Time from the submission to the start of the job, while nodes start and load the image."""
    run_s: float | None = None
    """Time of the job; None if unknown."""
    run_low_s: float | None = None
    run_high_s: float | None = None
    idle_s: float = 0.0
    """Time after the job for which the nodes are still paid."""
    price: float | None = None
    cost: float | None = None
    """Cost of all nodes for node start, job and idle time."""
    cost_low: float | None = None
    cost_high: float | None = None
    problem: str | None = None
    """Why this size cannot or should not be used."""

    @property
    def total_s(self) -> float | None:
        """Time from the submission to the end of the job."""
        return None if self.run_s is None else self.start_s + self.run_s


def node_counts(cluster: Cluster, wanted: int) -> list[int]:
    """Return the numbers of nodes to compute: from 1 to the maximum, with ``wanted``; a selection if many."""
    most = max(cluster.max_nodes, wanted)
    if most <= MAX_SIZES:
        return list(range(1, most + 1))
    steps = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96]
    kept = [number for number in steps if number < most][: MAX_SIZES - 1]
    return sorted({*kept, min(wanted, most), most})


def estimate(
    work: Work, site: Site, num_nodes: int, prices: Prices | None, observations: Sequence[Observation]
) -> Estimate:
    """Return the time and cost on a number of nodes."""
    machines, options = site.machines, work.options_on(site.machines)
    ranks = num_nodes * processes_under(work.pipeline.train.distribution, machines)
    found = Estimate(
        cluster=machines.cluster,
        vm_size=machines.vm_size,
        num_nodes=num_nodes,
        num_ranks=ranks,
        price=site.price,
        problem=site.retired,
    )
    images = work.train_records
    if not work.is_own:
        batch = ranks * options.per_process_batch_size * options.gradient_accumulation
        steps = work.train_records // batch if options.remainder == "drop" else -(-work.train_records // batch)
        found = replace(found, global_batch=batch, steps=steps, problem=found.problem or _misfit(work, batch, ranks))
        images = steps * batch
    if images and found.problem in (None, site.retired):
        found = _timed(found, work, options, images=images, prices=prices, observations=observations)
    if found.problem is None and site.enough_for is not None and num_nodes > site.enough_for:
        enough = f"the quota is enough for {site.enough_for} {'node' if site.enough_for == 1 else 'nodes'}"
        return replace(found, problem=enough)
    return found


def _misfit(work: Work, batch: int, ranks: int) -> str | None:
    """Return why the data cannot be divided among so many processes."""
    if work.train_records < batch:
        return f"{ranks} processes need {batch:,} records for one step, and there are {work.train_records:,}"
    lanes = work.options.num_lanes
    if lanes and lanes % ranks:
        return f"num_lanes {lanes} cannot be shared equally by {ranks} processes"
    return None


def _timed(
    found: Estimate,
    work: Work,
    options: TrainingOptions,
    *,
    images: int,
    prices: Prices | None,
    observations: Sequence[Observation],
) -> Estimate:
    place = Place(vm_size=found.vm_size, num_nodes=found.num_nodes, num_ranks=found.num_ranks)
    here = [one for one in observations if one.place.vm_size.lower() == place.vm_size.lower()]
    model = _model(work, options, prices)
    seen_s, job_s = _median([one.start_s for one in here]), _besides([one.job_s for one in here])
    start_s = seen_s if seen_s is not None else prices.start_s if prices else 0.0
    idle_s = prices.idle_s if prices else 0.0
    found = replace(found, start_s=start_s, idle_s=idle_s)
    known = pace(
        place,
        observations,
        model.record_s if model else lambda _: None,
        is_reference=model is not None and model.is_of_reference,
    )
    if known is None:
        return found
    if job_s is None:  # No run has shown the time for starting, evaluating and exporting.
        images += round(work.validation_records * EVALUATION)
        assumed_s = prices.job_s if prices and not work.is_own else 0.0
        job_s = (assumed_s / ASSUMED, assumed_s, assumed_s * ASSUMED)
    paces = (known.low_s, known.record_s, known.high_s)
    low, value, high = (besides_s + images * work.epochs * each for besides_s, each in zip(job_s, paces, strict=True))
    found = replace(found, pace=known, run_s=value, run_low_s=low, run_high_s=high)
    limit = work.pipeline.train.timeout_s
    if value > limit and found.problem is None:
        found = replace(found, problem=f"it would exceed train.timeout_s, {limit:,} s")
    if found.price is None:
        return found
    hourly, paid = found.num_nodes * found.price / HOUR_S, start_s + idle_s
    cost, cheap, dear = (hourly * (paid + each) for each in (value, low, high))
    return replace(found, cost=cost, cost_low=cheap, cost_high=dear)


def _model(work: Work, options: TrainingOptions, prices: Prices | None) -> CostModel | None:
    if prices is None or work.is_own:
        return None
    return CostModel(prices=prices, options=options, pixels=work.pixels)


def _median(values: Sequence[float | None]) -> float | None:
    known = [each for each in values if each is not None]
    return median(known) if known else None


def _besides(values: Sequence[float | None]) -> tuple[float, float, float] | None:
    """Return minimum, median and maximum of the jobs' time outside their epochs, at least a tenth apart."""
    known = [each for each in values if each is not None]
    return (min(known) * 0.9, median(known), max(known) * 1.1) if known else None


def recommended(estimates: Sequence[Estimate]) -> Estimate | None:
    """Return the fastest size that costs at most a quarter more than the cheapest one; None if there is none.

    Sizes that cannot be used, or are too slow for the time limit, are left out.
    """
    usable = [one for one in estimates if one.problem is None and one.cost is not None and one.total_s is not None]
    if not usable:
        return None
    least = min(one.cost or 0.0 for one in usable)
    worth = [one for one in usable if (one.cost or 0.0) <= least * WORTH]
    return min(worth, key=lambda one: (one.total_s or 0.0, one.cost or 0.0, one.num_nodes))


@dataclass(frozen=True, kw_only=True)
class OneNode:
    """A comparison of several nodes with one node that has as many GPUs, or the most GPUs."""

    several: Estimate
    one: Estimate

    def in_words(self, currency: str) -> str:
        """Return the comparison in words."""
        several, one = self.several, self.one
        texts = [
            f"{each.num_nodes} {'node' if each.num_nodes == 1 else 'nodes'} of {each.vm_size} ({each.num_ranks} "
            f"processes) {_time(each.total_s or 0)}" + _money(each.cost, currency)
            for each in (one, several)
        ]
        faster = (one.total_s or 0) <= (several.total_s or 0)
        cheaper = None if one.cost is None or several.cost is None else one.cost <= several.cost
        verdict = {
            (True, True): "one node with more GPUs is faster and costs no more",
            (True, False): "one node with more GPUs is faster but costs more",
            (True, None): "one node with more GPUs is faster",
            (False, True): "one node with more GPUs is slower but costs no more",
            (False, False): "more nodes are faster and cost less",
            (False, None): "more nodes are faster",
        }[faster, cheaper]
        return f"{verdict}: {texts[0]}, against {texts[1]}"


def _time(seconds: float) -> str:
    return f"{seconds / 60:.1f} min" if seconds < 2 * HOUR_S else f"{seconds / HOUR_S:.2f} h"


def _money(cost: float | None, currency: str) -> str:
    return "" if cost is None else f" and {cost:,.2f} {currency}"


def one_node(several: Estimate, estimates: Sequence[Estimate]) -> OneNode | None:
    """Return the single node with which to compare: the cheapest with as many processes, or the largest one.

    An unknown cost counts as the highest one. Return None if no single node has more processes than one of these
    nodes, or if the time is unknown.
    """
    if several.num_nodes == 1 or several.total_s is None:
        return None
    single = [one for one in _single(estimates) if one.num_ranks > several.num_ranks // several.num_nodes]
    if not single:
        return None
    enough = [one for one in single if one.num_ranks >= several.num_ranks]
    if enough:
        return OneNode(several=several, one=min(enough, key=lambda one: (_cost(one), one.total_s or 0.0)))
    return OneNode(several=several, one=max(single, key=lambda one: (one.num_ranks, -_cost(one))))


def _cost(one: Estimate) -> float:
    return inf if one.cost is None else one.cost


def _single(estimates: Sequence[Estimate]) -> Iterator[Estimate]:
    for one in estimates:
        if (
            one.num_nodes == 1
            and one.total_s is not None
            and one.problem is None
            and vm_size(one.vm_size) is not None
        ):
            yield one
