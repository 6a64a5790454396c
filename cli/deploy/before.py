"""Checks before the templates are deployed: region, quota, providers, versions.

The results are kept in azd's environment, from which the templates build the app settings. Nothing else sets these
values, so a later deployment writes the same settings again.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from cli.deploy.assets import DIGEST_CHARS, code_version, collect_code
from cli.deploy.clusters import (
    QUOTA_PAGE,
    OfferedSize,
    Region,
    WantedCluster,
    choose_size,
    quota_to_request,
    wanted_clusters,
)
from cli.deploy.programs import AzdEnvironment, az, reading
from cli.errors import CliError
from function_app.config.clusters import CLUSTER_SIZES
from function_app.config.environments import IMAGE
from shared.vm_sizes import retirement

AZ_VERSION = (2, 60)
"""The first with commands for Flex Consumption."""
API_VERSION = "2025-09-01"
PROVIDERS = (
    "Microsoft.App",  # the functions' subnet is delegated to it
    "Microsoft.ContainerRegistry",
    "Microsoft.EventGrid",
    "Microsoft.Insights",
    "Microsoft.KeyVault",
    "Microsoft.MachineLearningServices",
    "Microsoft.ManagedIdentity",
    "Microsoft.Network",
    "Microsoft.OperationalInsights",
    "Microsoft.Storage",
    "Microsoft.Web",
)
BUDGET_START, NO_BUDGET = "LANDFALL_BUDGET_START", "none"
SIGN_IN = "sign in with `az login`, and select the subscription with `azd env set AZURE_SUBSCRIPTION_ID ID`"


def prepare(root: Path, pipelines: Path, environment: AzdEnvironment) -> None:
    """Check tools, region and quota, and set what the templates need. Raises CliError before anything costs money."""
    subscription, location = environment.required("AZURE_SUBSCRIPTION_ID"), environment.required("AZURE_LOCATION")
    base_image = _base_image(environment)
    _check_az()
    az("account", "show", "--subscription", subscription, fix=SIGN_IN)
    _register_providers(subscription)
    _check_flex(subscription, location)
    region = functools.cache(lambda: read_region(subscription, location))
    sizes = cluster_sizes(wanted_clusters(pipelines), environment, region)
    environment.set(CLUSTER_SIZES, sizes)
    environment.set("LANDFALL_CODE_VERSION", code_version(collect_code(root, pipelines)))
    environment.set("LANDFALL_ENVIRONMENT_VERSION", image_version(root, base_image))
    _set_budget_start(environment)


def _set_budget_start(environment: AzdEnvironment) -> None:
    """Set the month in which the budget begins: the current one for a new budget, because a past one is refused.

    A budget keeps its month. Without addresses for alerts there is no budget, but azd asks for a missing variable.
    """
    has_budget = environment.values.get("LANDFALL_ALERT_EMAILS", "").strip() not in ("", "[]")
    start = environment.values.get(BUDGET_START) or NO_BUDGET
    if has_budget and start == NO_BUDGET:
        start = datetime.now(UTC).strftime("%Y-%m-01")
    environment.set(BUDGET_START, start)


def image_version(root: Path, base_image: str) -> str:
    """Return a digest of what the training's image is built from."""
    sha = hashlib.sha256(base_image.encode())
    folder = root / "training_job" / "environment"
    for path in sorted(path for path in folder.iterdir() if path.is_file()):
        content = path.read_bytes()
        sha.update(f"{path.name}\0{len(content)}\0".encode() + content)
    return sha.hexdigest()[:DIGEST_CHARS]


def cluster_sizes(wanted: Iterable[WantedCluster], environment: AzdEnvironment, region: Callable[[], Region]) -> str:
    """Return NAME=SIZE for each cluster: its present size, or the first available size of its list.

    Raises CliError, with the quota to request, if no size of a cluster is available.
    """
    known = dict(pair.split("=", 1) for pair in environment.values.get(CLUSTER_SIZES, "").split(",") if "=" in pair)
    found: dict[str, str] = {}
    for cluster in wanted:
        size = cluster.cluster.size(known.get(cluster.name, ""))
        if size is None or retirement(size.vm_size, environment.required("AZURE_LOCATION")):
            found[cluster.name] = _chosen(cluster, region())
        else:
            found[cluster.name] = size.vm_size
    return ",".join(f"{name}={size}" for name, size in found.items())


def _chosen(cluster: WantedCluster, region: Region) -> str:
    try:
        choice = choose_size(cluster, region)
    except CliError as error:
        requests = [f"  {line}" for line in quota_to_request(cluster, region)]
        ask = f"\nAsk for quota at {QUOTA_PAGE}:\n" + "\n".join(requests) if requests else ""
        rest = f"\nOr remove the pipelines that name {cluster.name} from the folder of pipelines."
        raise CliError(error.message + ask + rest) from error
    click.echo(f"cluster {cluster.name}: {choice.words}", err=True)
    return choice.vm_size


def read_region(subscription: str, location: str) -> Region:
    """Return what a region offers a subscription, before there is a workspace."""
    place = f"/subscriptions/{subscription}/providers/Microsoft.MachineLearningServices/locations/{location}"
    fix = f"check that Azure ML is available in {location}"
    answers = {
        kind: az("rest", "--method", "get", "--url", f"{place}/{kind}?api-version={API_VERSION}", fix=fix)
        for kind in ("vmSizes", "usages")
    }
    with reading("az rest"):
        sizes = {
            size["name"].lower(): OfferedSize(
                vcpus=int(size.get("vCPUs") or 0),
                family=size.get("family") or size["name"],
                low_priority=bool(size.get("lowPriorityCapable")),
            )
            for size in _values(answers["vmSizes"])
        }
        quotas = {usage["name"]["value"]: int(usage.get("limit") or 0) for usage in _values(answers["usages"])}
    return Region(name=location, sizes=sizes, quotas=quotas)


def _values(answer: Any) -> list[Mapping[str, Any]]:
    return list((answer or {}).get("value") or [])


def _base_image(environment: AzdEnvironment) -> str:
    base_image = environment.values.get("LANDFALL_BASE_IMAGE", "").strip()
    if IMAGE.fullmatch(base_image) is None:
        raise CliError(
            "LANDFALL_BASE_IMAGE must name the base image by digest: `docker buildx imagetools inspect "
            "mcr.microsoft.com/azureml/openmpi5.0-cuda12.5-ubuntu22.04:TAG` prints the digest, then `azd env set "
            "LANDFALL_BASE_IMAGE mcr.microsoft.com/azureml/openmpi5.0-cuda12.5-ubuntu22.04@sha256:DIGEST`"
        )
    return base_image


def _check_az() -> None:
    answer = az("version", fix="install it again")
    with reading("az version"):
        version = str((answer or {}).get("azure-cli", ""))
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if numbers < AZ_VERSION:
        least = ".".join(map(str, AZ_VERSION))
        raise CliError(f"az is version {version or 'unknown'}; at least {least} is needed: az upgrade")


def _register_providers(subscription: str) -> None:
    """Register the providers that the subscription has not used yet."""
    listed = az("provider", "list", "--subscription", subscription, fix=SIGN_IN) or []
    with reading("az provider list"):
        registered = {one["namespace"].lower() for one in listed if one.get("registrationState") == "Registered"}
    for name in PROVIDERS:
        if name.lower() not in registered:
            click.echo(f"registering {name}; this may take minutes", err=True)
            fix = "registering a provider needs the role Contributor on the subscription"
            az("provider", "register", "--namespace", name, "--subscription", subscription, "--wait", fix=fix)


def _check_flex(subscription: str, location: str) -> None:
    fix = "az upgrade"
    regions = az("functionapp", "list-flexconsumption-locations", "--subscription", subscription, fix=fix) or []
    with reading("az functionapp list-flexconsumption-locations"):
        names = sorted(str(region["name"]).lower().replace(" ", "") for region in regions)
    if location.lower().replace(" ", "") not in names:
        raise CliError(
            f"{location} has no Flex Consumption, which the function app needs: `azd env set AZURE_LOCATION REGION` "
            f"with one of {', '.join(names)}"
        )
