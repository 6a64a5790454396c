"""The schema of ``prices.yaml``: dated prices of VM sizes and published figures of GPUs, for plans."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date
from typing import Annotated

from pydantic import Field, field_validator

from function_app.config.clusters import Clusters, Machines
from function_app.config.fields import GpuName, Section, VmSizeName

PRICES_FILE = "prices.yaml"
MAX_SIZES = 200
MAX_S = 86_400.0
OLD_DAYS = 180
"""Plans warn about older prices."""

Rate = Annotated[float, Field(gt=0, le=1e6)]
Share = Annotated[float, Field(gt=0, le=1)]
Seconds = Annotated[float, Field(ge=0, le=MAX_S)]
Text = Annotated[str, Field(min_length=1, max_length=300)]


class SizePrice(Section):
    """Price of one VM size."""

    price_per_node_hour: float = Field(gt=0, le=1e5)
    """Price of one node for one hour."""
    low_priority_price_per_node_hour: float | None = Field(default=None, gt=0, le=1e5)
    """Price on a low-priority cluster. Null: unknown; plans then have no cost for such a cluster."""


class GpuFigures(Section):
    """Published throughput of one GPU: ResNet-50 in training, on images of 224 x 224."""

    float32: Rate
    """Images/s with float32, or TF32 if the GPU supports it."""
    mixed: Rate
    """Images/s with mixed precision."""
    source: Text
    """Where the figures are from."""


class Scaling(Section):
    """Published share of a linear speed-up."""

    eight_gpus: Share = 0.915
    """Share of a linear speed-up on eight GPUs of one node."""
    servers_128: Share = 0.90
    """Share of a linear speed-up on 128 servers."""
    without_rdma: Share = 0.96
    """Throughput on several nodes without InfiniBand, as a share of that with it."""


class Prices(Section):
    """The prices and figures of plans."""

    as_of: date
    """Date of the prices and figures; each plan states it."""
    currency: Annotated[str, Field(min_length=1, max_length=10)] = "USD"
    """Currency of all prices, also of those in `clusters.yaml`."""
    source: Text
    """Where the prices are from."""
    sizes: dict[VmSizeName, SizePrice] = Field(default_factory=dict, max_length=MAX_SIZES)
    """VM size → price."""
    gpus: dict[GpuName, GpuFigures] = Field(default_factory=dict, max_length=50)
    """GPU → published throughput."""
    scaling: Scaling = Scaling()
    """How throughput grows with GPUs and nodes."""
    start_s: Seconds = 300.0
    """Seconds from submission to start of a job on a cluster without nodes; used until a run has been measured."""
    job_s: Seconds = 120.0
    """Seconds of a job outside its epochs; used until a run has been measured."""
    idle_s: Seconds = 120.0
    """Seconds for which idle nodes are paid after a job: `LANDFALL_IDLE_TIME`."""

    @field_validator("sizes")
    @classmethod
    def _named_once(cls, sizes: dict[str, SizePrice]) -> dict[str, SizePrice]:
        seen: dict[str, str] = {}
        for name in sizes:
            if (other := seen.setdefault(name.lower(), name)) != name:
                raise ValueError(f"{other} and {name} are the same size; remove one of them")
        return sizes

    def age(self, today: date) -> str | None:
        """Return a warning if the prices are old, otherwise None."""
        days = (today - self.as_of).days
        if days <= OLD_DAYS:
            return None
        return (
            f"{PRICES_FILE} is {days:,} days old (as_of: {self.as_of}): compare it with the prices of your region "
            "and contract, and write them with their date"
        )

    def price(self, vm_size: str, priority: str) -> float | None:
        """Return the price of one node for one hour; None if the file has none."""
        found = next((one for name, one in self.sizes.items() if name.lower() == vm_size.lower()), None)
        if found is None:
            return None
        return found.price_per_node_hour if priority == "dedicated" else found.low_priority_price_per_node_hour


@dataclass(frozen=True, kw_only=True)
class PlanFacts:
    """The data of a deployment's files that plans need."""

    clusters: Clusters = field(default_factory=lambda: Clusters(clusters={}))
    prices: Prices | None = None
    problems: tuple[str, ...] = ()
    """Problem with ``prices.yaml``; plans then have neither prices nor figures."""

    @property
    def currency(self) -> str:
        """Currency of all prices; empty where no file says."""
        return self.prices.currency if self.prices else ""

    def price(self, machines: Machines) -> float | None:
        """Return what a node costs for an hour: the price in clusters.yaml, otherwise that in prices.yaml."""
        cluster = self.clusters.clusters.get(machines.cluster)
        if machines.price_per_node_hour is not None or cluster is None or self.prices is None:
            return machines.price_per_node_hour
        return self.prices.price(machines.vm_size, cluster.priority)
