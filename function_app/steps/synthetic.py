"""Runs without data: a pipeline of synthetic records has one version that nobody uploads, closed when asked for.

So such a run is claimed, named, followed and told of as any other; its lineage says ``synthetic``, and has no shard.
"""

from __future__ import annotations

from function_app.errors import VersionNameError
from function_app.ledger import DatasetVersion, Generation
from function_app.pipelines import Pipeline
from function_app.steps.closing import described
from function_app.steps.services import Services
from shared.manifest import SYNTHETIC, Manifest, fingerprint

VERSION = SYNTHETIC
"""The name of the one version."""
FIRST = 1
"""Its only generation: there is nothing in it that could change."""


def version_meant(pipeline: Pipeline, dataset: str, version: str | None) -> DatasetVersion:
    """Return which version is asked for; that of synthetic data need not be named. Raises VersionNameError."""
    if pipeline.data.is_synthetic and version in (None, VERSION):
        return DatasetVersion(dataset=dataset, version=VERSION)
    if pipeline.data.is_synthetic:
        raise VersionNameError(f"{dataset} is synthetic and has no versions: ask for {dataset} alone, not {version}")
    if version is None:
        raise VersionNameError(
            f"which version of {dataset}? Only synthetic data have none: ask for {dataset}/VERSION"
        )
    return DatasetVersion(dataset=dataset, version=version)


def synthetic_closing(pipeline: Pipeline, version: DatasetVersion, services: Services) -> Generation:
    """Return the closing that every run of the pipeline is on; the first caller writes it down."""
    known = services.ledger.latest_generation(version)
    if known is not None:
        return known
    manifest = Manifest(
        dataset=version.dataset,
        version=version.version,
        generation=FIRST,
        fingerprint=fingerprint(()),
        data_format=pipeline.data.format,
        features=(),
        shards=(),
    )
    generation = described(manifest, services)
    services.documents.write_once(generation.manifest_path, manifest.to_json().encode())
    if services.ledger.add_generation(generation):
        reason = "synthetic: the training draws its records itself, and there is no shard to wait for"
        services.decide(str(version), "version_closed", reason, manifest=generation.manifest_path)
    return generation
