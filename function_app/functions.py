"""The function app: every trigger, in the order of the flow. Each decodes one payload and makes one call.

The host indexes this module at every cold start, so each trigger imports what it needs when it is first called.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC
from functools import cache
from typing import TYPE_CHECKING

from azure.functions import (
    AuthLevel,
    Blueprint,
    Context,
    FunctionApp,
    HttpMethod,
    HttpRequest,
    HttpResponse,
    QueueMessage,
    TimerRequest,
)

from function_app.bootstrap import services
from function_app.domain.errors import ProblemsError
from function_app.domain.events import (
    RUN_CHANGED,
    SHARD_UPLOADED,
    SHARD_UPLOADED_BULK,
    SWEEP_REQUESTED,
    TRAINING_REQUESTED,
)

if TYPE_CHECKING:
    from azure.functions import AsgiMiddleware
    from starlette.responses import Response

    from function_app.services import Services

HOST_STORAGE = "AzureWebJobsStorage"
METHODS = (
    HttpMethod.GET,
    HttpMethod.POST,
    HttpMethod.PUT,
    HttpMethod.PATCH,
    HttpMethod.DELETE,
    HttpMethod.HEAD,
    HttpMethod.OPTIONS,
)
"""Every method, so that the API itself answers an unsupported one with its own error."""
MAX_PLACE_CHARS = 300

logger = logging.getLogger(__name__)
triggers = Blueprint()


def build_app() -> FunctionApp:
    """Return a new app. The host reads an app's functions once, so each test builds its own."""
    app = FunctionApp(http_auth_level=AuthLevel.FUNCTION)
    app.register_functions(triggers)
    return app


@contextmanager
def failures_on_record(queue: str, message: QueueMessage, services: Services) -> Iterator[None]:
    """Record a handler's error under its message, then let it through to the host, which delivers it five times.

    How long the message waited and how it ended is measured.
    """
    telemetry, inserted_at = services.telemetry, message.insertion_time
    if inserted_at is not None:
        age = services.clock() - (inserted_at if inserted_at.tzinfo else inserted_at.replace(tzinfo=UTC))
        telemetry.measure("landfall.queue.age", age.total_seconds(), queue=queue)
    try:
        yield
        telemetry.add("landfall.messages", queue=queue, result="handled")
    except Exception as error:
        from function_app.sweep.dead_letters import record_failure

        telemetry.add("landfall.messages", queue=queue, result="failed")
        record_failure(queue, message.get_body(), error, services)
        raise


@triggers.function_name("shard_uploaded")
@triggers.queue_trigger(arg_name="message", queue_name=SHARD_UPLOADED, connection=HOST_STORAGE)
def shard_uploaded(message: QueueMessage) -> None:
    """Validate the shards whose upload Event Grid reports."""
    from function_app.ingest.messages import handle_message

    with failures_on_record(SHARD_UPLOADED, message, services()):
        num_deliveries, inserted_at = message.dequeue_count or 1, message.insertion_time
        handle_message(message.get_body(), services(), num_deliveries=num_deliveries, inserted_at=inserted_at)


@triggers.function_name("shard_uploaded_bulk")
@triggers.queue_trigger(arg_name="message", queue_name=SHARD_UPLOADED_BULK, connection=HOST_STORAGE)
def shard_uploaded_bulk(message: QueueMessage) -> None:
    """Validate shards of a dataset that uploads many at once, in parallel with those of other datasets."""
    from function_app.ingest.messages import handle_passed_on

    with failures_on_record(SHARD_UPLOADED_BULK, message, services()):
        handle_passed_on(message.get_body(), services(), num_deliveries=message.dequeue_count or 1)


@triggers.function_name("training_requested")
@triggers.queue_trigger(arg_name="message", queue_name=TRAINING_REQUESTED, connection=HOST_STORAGE)
def training_requested(message: QueueMessage) -> None:
    """Submit the run that a closing or a caller asks for."""
    from function_app.domain.events import TrainingRequest
    from function_app.runs.submission import handle_request

    with failures_on_record(TRAINING_REQUESTED, message, services()):
        handle_request(TrainingRequest.from_json(message.get_body()), services())


@triggers.function_name("run_changed")
@triggers.queue_trigger(arg_name="message", queue_name=RUN_CHANGED, connection=HOST_STORAGE)
def run_changed(message: QueueMessage) -> None:
    """Check the runs that a message's events name; the status in an event is not trusted."""
    from function_app.domain.events import read_run_ids
    from function_app.runs.following import handle_run_event

    with failures_on_record(RUN_CHANGED, message, services()):
        for run_id in read_run_ids(message.get_body()):
            handle_run_event(run_id, services())


@triggers.function_name("reconcile")
@triggers.timer_trigger(arg_name="timer", schedule="%LANDFALL_RECONCILE_SCHEDULE%", run_on_startup=False)
def reconcile(timer: TimerRequest) -> None:
    """Run the sweep: compare the ledger with storage and Azure ML, and repair the difference."""
    from function_app.sweep.sweep import sweep

    del timer  # a late tick does the same as one in time
    sweep(services())


@triggers.function_name("sweep_requested")
@triggers.queue_trigger(arg_name="message", queue_name=SWEEP_REQUESTED, connection=HOST_STORAGE)
def sweep_requested(message: QueueMessage) -> None:
    """Run a requested sweep; its result can be read later."""
    from function_app.sweep.requested import handle_sweep_request

    with failures_on_record(SWEEP_REQUESTED, message, services()):
        handle_sweep_request(message.get_body(), services(), num_deliveries=message.dequeue_count or 1)


@triggers.function_name("health")
@triggers.route("api/health", methods=["GET"], auth_level=AuthLevel.ANONYMOUS)
def health(req: HttpRequest) -> HttpResponse:
    """Return 200 if the settings are valid, otherwise 503, and name the pipelines that are out of service.

    Anyone may call it, so it names at most the file and the field of a problem; the route api/pipelines and the log
    have the rest.
    """
    del req
    try:
        found = services()
    except ProblemsError as error:
        logger.error(f"the app is misconfigured:\n{error}", extra={"action": "misconfigured"})  # noqa: TRY400
        problems = len(error.problems)
        return _answer(503, {"status": "misconfigured", "problems": problems, "see": "the log of function health"})
    if not found.out_of_service:
        return _answer(200, {"status": "ok"})
    places = {dataset or "?": _places(problems) for dataset, problems in sorted(found.out_of_service.items())}
    return _answer(200, {"status": "degraded", "out_of_service": places})


def _places(problems: Sequence[str]) -> list[str]:
    """Return file and field of each problem, without the values that the rest of its text may quote."""
    return list(dict.fromkeys(": ".join(problem.split(": ")[:2])[:MAX_PLACE_CHARS] for problem in problems))


def _answer(status: int, members: dict[str, object]) -> HttpResponse:
    return HttpResponse(json.dumps(members), status_code=status, mimetype="application/json")


@triggers.function_name("api_docs")
@triggers.route("api/docs", methods=["GET"], auth_level=AuthLevel.ANONYMOUS)
async def api_docs(req: HttpRequest) -> HttpResponse:
    """Show the page that describes the API. It does not depend on the request."""
    from function_app.web.app import build_api_page

    del req
    return _passed_on(build_api_page())


@triggers.function_name("http_api")
@triggers.route("api/{*route}", methods=METHODS, auth_level=AuthLevel.FUNCTION)
async def http_api(req: HttpRequest, context: Context) -> HttpResponse:
    """Pass every other request to the API to the web app."""
    return await _handle(_middleware(), req, context)


@triggers.function_name("pages")
@triggers.route("{*page}", methods=[HttpMethod.GET, HttpMethod.POST], auth_level=AuthLevel.ANONYMOUS)
async def pages(req: HttpRequest, context: Context) -> HttpResponse:
    """Pass a browser's request, which has no key, to an app that has no API, however the path is written."""
    return await _handle(_pages_middleware(), req, context)


async def _handle(middleware: AsgiMiddleware, req: HttpRequest, context: Context) -> HttpResponse:
    try:
        answer: HttpResponse = await middleware.handle_async(req, context)
    except ValueError:
        # from the runtime, which decodes URL and headers; the web app itself raises no exception
        from function_app.web.errors import MALFORMED, error_answer

        refusal = error_answer(400, MALFORMED, "the address or a header is malformed; both must be valid UTF-8")
        return _passed_on(refusal)
    return answer


def _passed_on(answer: Response) -> HttpResponse:
    """Convert a response of the web app for the host."""
    headers = dict(answer.headers)
    return HttpResponse(
        bytes(answer.body), status_code=answer.status_code, headers=headers, mimetype=headers["content-type"]
    )


@cache
def _middleware() -> AsgiMiddleware:
    from azure.functions import AsgiMiddleware

    from function_app.web.app import build_web_app

    return AsgiMiddleware(build_web_app(services))


@cache
def _pages_middleware() -> AsgiMiddleware:
    from azure.functions import AsgiMiddleware

    from function_app.web.app import build_pages_app

    return AsgiMiddleware(build_pages_app(services))
