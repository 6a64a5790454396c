"""``GET /api/health``: whether the settings and pipelines can be read. Open to all, so it says no more than that."""

from __future__ import annotations

import json
import logging

from azure.functions import AuthLevel, Blueprint, HttpRequest, HttpResponse

from function_app.bootstrap import services
from function_app.errors import ProblemsError

blueprint = Blueprint()
logger = logging.getLogger(__name__)


@blueprint.function_name("health")
@blueprint.route("api/health", methods=["GET"], auth_level=AuthLevel.ANONYMOUS)
def health(req: HttpRequest) -> HttpResponse:
    """Answer 200 where the app could do its work, 503 where it is misconfigured."""
    del req
    try:
        pipelines = sorted(pipeline.pipeline for pipeline in services().pipelines.values())
    except ProblemsError as error:
        logger.error(f"the app is misconfigured:\n{error}", extra={"action": "misconfigured"})  # noqa: TRY400
        problems = len(error.problems)
        return _answer(503, {"status": "misconfigured", "problems": problems, "see": "the log of function health"})
    return _answer(200, {"status": "ok", "pipelines": pipelines})


def _answer(status: int, members: dict[str, object]) -> HttpResponse:
    return HttpResponse(json.dumps(members), status_code=status, mimetype="application/json")
