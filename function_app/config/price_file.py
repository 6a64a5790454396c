"""Read ``prices.yaml``: a mistake in it stops no pipeline; plans then have no prices."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from pydantic import ValidationError

from function_app.config.clusters import Clusters
from function_app.config.pipeline_files import content_of, with_lines, worded
from function_app.config.prices import PRICES_FILE, PlanFacts, Prices
from function_app.config.yaml_text import yaml_as_json
from function_app.domain.errors import PipelineError

ZONES = timedelta(days=1)
"""East of UTC, the local date may already be tomorrow's."""


def plan_facts(folder: Path, clusters: Clusters | PipelineError) -> PlanFacts:
    """Return what plans compute with. A mistake in prices.yaml stops no pipeline; plans then have no prices."""
    known = Clusters(clusters={}) if isinstance(clusters, PipelineError) else clusters
    try:
        return PlanFacts(clusters=known, prices=load_prices(folder))
    except PipelineError as error:
        return PlanFacts(clusters=known, problems=error.problems)


def load_prices(folder: Path, today: date | None = None) -> Prices | None:
    """Return what ``prices.yaml`` says; None if there is no such file. Raises PipelineError with its problems.

    ``today``: in place of today's date in UTC, after which no price can be known.
    """
    path = folder / PRICES_FILE
    if not path.is_file():
        return None
    document = yaml_as_json(content_of(path), path.name)
    try:
        prices = Prices.model_validate_json(document)
    except ValidationError as error:
        problems = [f"{path.name}: {problem}" for problem in worded(error, Prices)]
        raise PipelineError(*with_lines(problems, path)) from error
    if prices.as_of > (today or datetime.now(UTC).date()) + ZONES:
        problem = f"as_of: {prices.as_of} is in the future; write the day on which you read the prices"
        raise PipelineError(*with_lines([f"{path.name}: {problem}"], path))
    return prices
