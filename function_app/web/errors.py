"""Error responses of the API: one shape, stable codes, and no stack traces."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.routing import Match
from starlette.status import HTTP_405_METHOD_NOT_ALLOWED

from function_app.domain.errors import (
    ConfigurationError,
    IdempotencyKeyError,
    LedgerConflictError,
    NotFoundError,
    OptionSweepError,
    OverrideError,
    PipelineOutOfServiceError,
    ProblemsError,
    ReplayRefusedError,
    RunEndedError,
    ScriptRefusedError,
    ServiceUnavailableError,
    VersionNameError,
    VersionNotWholeError,
    VersionQuarantinedError,
)
from function_app.web.bodies import NOT_UNICODE
from function_app.web.routes import router
from shared.errors import LandfallError
from shared.safe_text import mask_secrets, one_line

logger = logging.getLogger(__name__)

MAX_DETAILS = 1000
MALFORMED = "malformed_request"
"""Code of requests that cannot even be read."""

STATUSES: dict[type[LandfallError], tuple[int, str]] = {
    NotFoundError: (404, "not_found"),
    PipelineOutOfServiceError: (503, "pipeline_out_of_service"),
    VersionNameError: (422, "version_name"),
    VersionNotWholeError: (409, "version_not_whole"),
    VersionQuarantinedError: (409, "version_quarantined"),
    OptionSweepError: (422, "option_sweep_refused"),
    OverrideError: (422, "override_not_allowed"),
    IdempotencyKeyError: (422, "idempotency_key_reused"),
    RunEndedError: (409, "run_has_ended"),
    ScriptRefusedError: (422, "script_refused"),
    ConfigurationError: (422, "configuration"),
    LedgerConflictError: (409, "conflict"),
    ReplayRefusedError: (409, "replay_refused"),
    ServiceUnavailableError: (503, "service_unavailable"),
}


def error_answer(
    status: int, code: str, message: str, details: Sequence[str] = (), headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """Return an error response. Its texts repeat requests, so they are shown without secrets and on one line."""
    shown = [one_line(mask_secrets(detail)) for detail in details[:MAX_DETAILS]]
    body = {"error": {"code": code, "message": one_line(mask_secrets(message)), "details": shown}}
    return JSONResponse(body, status_code=status, headers=headers)


def add_error_handlers(app: FastAPI) -> None:
    """Register handlers so that every error gets a response of the same shape."""
    app.add_exception_handler(LandfallError, _landfall_error)
    app.add_exception_handler(RequestValidationError, _invalid_request)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _unexpected)


def internal_error(error: Exception) -> JSONResponse:
    """Return the response to an unexpected error, which only the log describes."""
    logger.error(f"unexpected error in the HTTP API: {error}", exc_info=error, extra={"action": "internal_error"})
    return error_answer(500, "internal", "internal error; see the log of the function app")


async def _unexpected(_: Request, error: Exception) -> JSONResponse:
    return internal_error(error)


async def _landfall_error(_: Request, error: Exception) -> JSONResponse:
    if isinstance(error, ProblemsError):
        logger.error(f"the app is misconfigured:\n{error}", extra={"action": "misconfigured"})
        return error_answer(503, "misconfigured", f"{len(error.problems)} settings are missing or wrong; see the log")
    status, code = next((value for kind, value in STATUSES.items() if isinstance(error, kind)), (0, ""))
    if not status:
        return internal_error(error)
    return error_answer(status, code, str(error), _details(error))


def _details(error: Exception) -> Sequence[str]:
    if isinstance(error, ScriptRefusedError):
        return error.findings
    if isinstance(error, ConfigurationError):
        return error.problems
    return error.missing if isinstance(error, VersionNotWholeError) else ()


async def _invalid_request(_: Request, error: Exception) -> JSONResponse:
    found = error.errors() if isinstance(error, RequestValidationError) else []
    details = [f"{'.'.join(str(part) for part in one['loc'])}: {one['msg']}" for one in found]
    if any(one["type"] == NOT_UNICODE for one in found):
        return error_answer(400, MALFORMED, "the body contains text that is not valid Unicode", details)
    return error_answer(422, "invalid_request", "the request is not valid; see the details", details)


async def _http_error(request: Request, error: Exception) -> JSONResponse:
    status = error.status_code if isinstance(error, HTTPException) else 500
    codes = {400: MALFORMED, 404: "not_found", 405: "method_not_allowed"}
    message = str(getattr(error, "detail", "")) or "the request failed"
    headers = {"Allow": _allowed_methods(request)} if status == HTTP_405_METHOD_NOT_ALLOWED else None
    return error_answer(status, codes.get(status, "http_error"), message, headers=headers)


def _allowed_methods(request: Request) -> str:
    """Return the methods of all routes with this path; Starlette's own header lists those of the first."""
    routes = (route for route in router.routes if isinstance(route, APIRoute))
    matching = [route for route in routes if route.matches(request.scope)[0] is not Match.NONE]
    return ", ".join(sorted({method for route in matching for method in route.methods or ()})) or "GET"
