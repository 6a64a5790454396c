"""Error responses of the API: problem details (RFC 9457) with stable codes and no stack traces."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.routing import Match
from starlette.status import HTTP_405_METHOD_NOT_ALLOWED

from function_app.domain.errors import (
    ChangedMeanwhileError,
    ConfigurationError,
    IdempotencyKeyError,
    LedgerConflictError,
    NotFoundError,
    NotRegistrableError,
    OptionSweepError,
    OverrideError,
    PipelineOutOfServiceError,
    ProblemsError,
    ReplayRefusedError,
    RunEndedError,
    ScriptRefusedError,
    ServiceUnavailableError,
    TooSoonError,
    VersionNameError,
    VersionNotWholeError,
    VersionQuarantinedError,
)
from function_app.domain.passports import PassportError
from function_app.web.bodies import NOT_UNICODE, Problem, ProblemPart
from function_app.web.routes import router
from shared.errors import LandfallError
from shared.safe_text import mask_secrets, one_line

logger = logging.getLogger(__name__)

MAX_ERRORS = 1000
MAX_IN_MESSAGE = 3
PROBLEM_JSON = "application/problem+json"
MALFORMED = "malformed_request"
"""Code of requests that cannot be parsed."""

STATUSES: dict[type[LandfallError], tuple[int, str]] = {
    NotFoundError: (404, "not_found"),
    PipelineOutOfServiceError: (503, "pipeline_out_of_service"),
    VersionNameError: (422, "version_name"),
    VersionNotWholeError: (409, "version_not_whole"),
    VersionQuarantinedError: (409, "version_quarantined"),
    OptionSweepError: (422, "option_sweep_refused"),
    OverrideError: (422, "override_not_allowed"),
    IdempotencyKeyError: (422, "idempotency_key_reused"),
    ChangedMeanwhileError: (412, "changed_meanwhile"),
    RunEndedError: (409, "run_has_ended"),
    NotRegistrableError: (409, "not_registrable"),
    TooSoonError: (409, "too_soon"),
    ScriptRefusedError: (422, "script_refused"),
    ConfigurationError: (422, "configuration"),
    LedgerConflictError: (409, "conflict"),
    PassportError: (409, "passport_unreadable"),
    ReplayRefusedError: (409, "replay_refused"),
    ServiceUnavailableError: (503, "service_unavailable"),
}
OTHER_CODES = {
    MALFORMED: 400,
    "not_found": 404,
    "method_not_allowed": 405,
    "body_too_large": 413,
    "invalid_request": 422,
    "too_many_requests": 429,
    "internal": 500,
    "misconfigured": 503,
}
"""Code → status of errors that are not errors of the domain."""
_IN_WORDS = {
    400: "the body cannot be read as JSON: it is no UTF-8, nested too deeply, or has a number of too many digits",
    404: "the API has no such path; /api/docs lists those that it has",
    405: "this path has other methods, which the header Allow lists",
}
"""What Starlette and FastAPI say in two words, or not at all."""
PATTERNS_IN_WORDS = {
    r"^[A-Za-z0-9][A-Za-z0-9_.-]*$": "must be letters, digits, - . and _, beginning with a letter or digit",
    r"^[a-zA-Z0-9][a-zA-Z0-9_-]*$": "must be letters, digits, - and _, beginning with a letter or digit",
    r"^sweep-[a-zA-Z0-9_-]+$": "must be sweep- followed by letters, digits, - and _",
    r"^[A-Za-z0-9._:-]+$": "must be letters, digits, . _ : and -",
    r"^[A-Za-z0-9:_]+$": "must be letters, digits, : and _",
    r"^[0-9a-f]+$": "must be digits and the letters a to f",
    r"^.+/[0-9]{1,19}$": "must be a split and an index, such as train/3",
    r"\S": "must not be blank",
}
"""Pattern of a text in a request → what it requires. Pydantic's own message shows the pattern."""


def error_answer(
    status: int, code: str, message: str, errors: Sequence[ProblemPart] = (), headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """Return an error response. Its texts may quote the request, so secrets and line breaks are removed."""
    problem = Problem(
        type=f"/api/docs#{code}",
        title=code.replace("_", " ").capitalize(),
        status=status,
        detail=_shown(message),
        code=code,
        errors=[part.model_copy(update={"detail": _shown(part.detail)}) for part in errors[:MAX_ERRORS]],
    )
    body = problem.model_dump(exclude_none=True)
    return JSONResponse(body, status_code=status, headers=headers, media_type=PROBLEM_JSON)


def too_many(message: str, headers: Mapping[str, str]) -> JSONResponse:
    """Return the response to a caller who sends too many requests."""
    return error_answer(429, "too_many_requests", message, headers=headers)


def _shown(text: str) -> str:
    return one_line(mask_secrets(text))


def codes() -> dict[str, int]:
    """Return every code with its status."""
    return OTHER_CODES | {code: status for status, code in STATUSES.values()}


def document_problems(document: dict[str, Any]) -> dict[str, Any]:
    """Set the media type of error responses in an OpenAPI document; FastAPI uses one type for all responses."""
    for operations in document["paths"].values():
        for operation in operations.values():
            for status, response in operation["responses"].items():
                if status >= "400" and "content" in response:
                    response["content"] = {PROBLEM_JSON: response["content"]["application/json"]}
    return document


def add_error_handlers(app: FastAPI) -> None:
    """Register handlers so that every error gets a response of the same shape."""
    app.add_exception_handler(LandfallError, _landfall_error)
    app.add_exception_handler(RequestValidationError, _invalid_request)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _unexpected)


def internal_error(error: Exception) -> JSONResponse:
    """Return the response to an unexpected error; only the log has its details."""
    logger.error(f"unexpected error in the HTTP API: {error}", exc_info=error, extra={"action": "internal_error"})
    return error_answer(500, "internal", "internal error; see the log of the function app")


async def _unexpected(_: Request, error: Exception) -> JSONResponse:
    return internal_error(error)


def misconfigured(error: ProblemsError) -> str:
    """Return how many settings are wrong; only the log has them."""
    number = len(error.problems)
    return "1 setting is missing or wrong" if number == 1 else f"{number:,} settings are missing or wrong"


async def _landfall_error(_: Request, error: Exception) -> JSONResponse:
    if isinstance(error, ProblemsError):
        logger.error(f"the app is misconfigured:\n{error}", extra={"action": "misconfigured"})
        return error_answer(503, "misconfigured", f"{misconfigured(error)}; see the log")
    status, code = next((value for kind, value in STATUSES.items() if isinstance(error, kind)), (0, ""))
    if not status:
        return internal_error(error)
    return error_answer(status, code, str(error), _parts(error))


def _parts(error: Exception) -> list[ProblemPart]:
    if isinstance(error, OverrideError):
        return [ProblemPart(detail=str(error), pointer=_pointer((error.member, error.name)))]
    if isinstance(error, IdempotencyKeyError):
        return [ProblemPart(detail=str(error), parameter="Idempotency-Key")]
    if isinstance(error, ScriptRefusedError):
        return [ProblemPart(detail=finding) for finding in error.findings]
    if isinstance(error, ConfigurationError):
        return [ProblemPart(detail=problem) for problem in error.problems]
    return [ProblemPart(detail=shard) for shard in error.missing] if isinstance(error, VersionNotWholeError) else []


async def _invalid_request(_: Request, error: Exception) -> JSONResponse:
    found = error.errors() if isinstance(error, RequestValidationError) else []
    parts = []
    for one in found:
        words = PATTERNS_IN_WORDS.get(one.get("ctx", {}).get("pattern", ""))
        part = _invalid_part(one["loc"], words or one["msg"])
        if part not in parts:  # a header that a route and the class of routes both read
            parts.append(part)
    if any(one["type"] == NOT_UNICODE for one in found):
        return error_answer(400, MALFORMED, "the body contains text that is not valid Unicode", parts)
    message = "; ".join(part.detail for part in parts[:MAX_IN_MESSAGE]) or "the request is not valid"
    return error_answer(422, "invalid_request", message, parts)


def _invalid_part(place: Sequence[str | int], message: str) -> ProblemPart:
    """Convert a pydantic error, whose place begins with the part of the request: `("body", "dataset")`."""
    source, *path = place
    if source != "body":
        name = ".".join(map(str, path))
        return ProblemPart(detail=f"{source} {name}: {message}", parameter=name)
    if path and isinstance(path[0], int):  # the position at which the body is not JSON
        return ProblemPart(detail=f"body, character {path[0]}: {message}")
    return ProblemPart(detail=f"{'.'.join(map(str, path)) or 'body'}: {message}", pointer=_pointer(path))


def _pointer(path: Sequence[str | int]) -> str:
    """Return a JSON Pointer as the fragment of a URI."""
    return "#" + "".join(f"/{quote(str(part).replace('~', '~0').replace('/', '~1'))}" for part in path)


async def _http_error(request: Request, error: Exception) -> JSONResponse:
    status = error.status_code if isinstance(error, HTTPException) else 500
    message = _IN_WORDS.get(status) or str(getattr(error, "detail", "")) or "the request failed"
    names = {status: code for code, status in OTHER_CODES.items()}
    headers = {"Allow": _allowed_methods(request)} if status == HTTP_405_METHOD_NOT_ALLOWED else None
    return error_answer(status, names.get(status, "http_error"), message, headers=headers)


def _allowed_methods(request: Request) -> str:
    """Return the methods of all routes with this path; Starlette's own header lists those of the first."""
    routes = (route for route in router.routes if isinstance(route, APIRoute))
    matching = [route for route in routes if route.matches(request.scope)[0] is not Match.NONE]
    return ", ".join(sorted({method for route in matching for method in route.methods or ()})) or "GET"
