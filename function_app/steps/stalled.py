"""Versions that stay open: people are told which shards are missing, once for each time that nothing moved."""

from __future__ import annotations

from function_app.ledger import DatasetVersion
from function_app.pipelines import Pipeline
from function_app.steps.description import missing_shards
from function_app.steps.inventory import Look
from function_app.steps.services import Services
from function_app.steps.warnings import in_words, warn_once

MAX_NAMED = 20


def tell_if_stalled(pipeline: Pipeline, version: DatasetVersion, look: Look, services: Services) -> None:
    """Warn where nothing has come for longer than the pipeline allows, and the version is not whole."""
    if look.last_verdict_at is None:
        return  # nothing has been judged: whoever began has not come as far as a shard
    idle_s = (services.clock() - look.last_verdict_at).total_seconds()
    if idle_s < pipeline.watch.stalled_after_s:
        return
    missing = missing_shards(pipeline, version, services)
    if not missing:
        return  # refused as a set: its owners were told why
    named = ", ".join(missing[:MAX_NAMED])
    more = f" and {len(missing) - MAX_NAMED} more" if len(missing) > MAX_NAMED else ""
    content = {
        "text": f"{version} is not whole, and nothing has come for {in_words(idle_s)}. Missing: {named}{more}.",
        "dataset": version.dataset,
        "version": version.version,
        "num_missing": len(missing),
        "missing": missing[:MAX_NAMED],
        "num_rejected": look.num_rejected,
        "last_shard_at": look.last_verdict_at.isoformat(timespec="seconds"),
    }
    warn_once(
        pipeline,
        subject=str(version),
        outcome="version_stalled",
        occasion=look.last_verdict_at.isoformat(),
        content=content,
        services=services,
    )
