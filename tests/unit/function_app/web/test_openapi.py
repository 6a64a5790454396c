"""The OpenAPI document, against what the API does: schemathesis with all of its checks, on a world with a run."""

from __future__ import annotations

from dataclasses import replace

import pytest
import schemathesis
from schemathesis.config import SchemathesisConfig
from schemathesis.engine import Status, from_schema
from schemathesis.engine.events import EngineFinished, NonFatalError, ScenarioFinished

from function_app.web.app import build_web_app
from tests.unit.function_app.web.test_routes import world_with_letter

CONFIGURATION = {
    "seed": 1,
    # 422 also refuses what a schema cannot state: options and limits are those of a dataset's pipeline.
    "checks": {
        "positive_data_acceptance": {"expected-statuses": ["2XX", "304", "404", "409", "412", "422"]},
        # If-Match is looked at first: 412 refuses a malformed request too.
        "negative_data_rejection": {"expected-statuses": ["400", "404", "405", "412", "413", "422"]},
    },
}


@pytest.mark.parametrize("examples", [8, pytest.param(25, marks=pytest.mark.slow)])
def test_the_api_does_what_its_document_says(examples: int) -> None:
    """Statuses, bodies, headers, refused input, wrong methods, and requests on what earlier ones made."""
    world, _ = world_with_letter()
    world.upload_version()
    world.services = replace(world.services, requests_per_minute=100_000)
    app = build_web_app(lambda: world.services)
    generation = {"max-examples": examples, "deterministic": True, "database": "none"}
    config = SchemathesisConfig.from_dict(CONFIGURATION | {"generation": generation})
    schema = schemathesis.openapi.from_asgi("/api/openapi.json", app, config=config)
    failures, finished = [], []
    for event in from_schema(schema).execute():
        assert not isinstance(event, NonFatalError), event
        if isinstance(event, EngineFinished):
            finished.append(event)
        if isinstance(event, ScenarioFinished):
            checks = [check for found in event.recorder.checks.values() for check in found]
            failures += [
                f"{check.name}: {check.failure_info.failure}\n{check.failure_info.code_sample}"
                for check in checks
                if check.status is Status.FAILURE and check.failure_info
            ]
    assert [] == failures
    assert 1 == len(finished)
