"""Execute a POST with an Idempotency-Key once: a repeated request gets the stored response, others are refused."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Awaitable, Callable

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import Response

from function_app.domain.errors import ServiceUnavailableError
from function_app.ports import DocumentStore
from function_app.runs.requests import KeyedRequest
from shared.errors import LandfallError

MAX_ANSWER_BYTES = 1 << 20
"""Larger responses are not stored; the request is executed again, which is safe for every action."""
_KEY = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_REFUSED = 400


async def answered_once(request: Request, act: Callable[[Request], Awaitable[Response]]) -> Response:
    """Answer a POST, from the stored response of its key if there is one.

    The key is claimed before the work, and the response is stored after it. A request that is repeated in between,
    because its caller or this process died, is executed again: every action may be repeated. A refused request frees
    its key.

    Raises IdempotencyKeyError.
    """
    key = request.headers.get("idempotency-key")
    if key is None or not _KEY.fullmatch(key):  # a malformed key is refused with the other headers
        return await act(request)
    services = await run_in_threadpool(request.state.services)
    body = await request.body()
    keyed = KeyedRequest(
        key=key,
        content={
            "method": request.method,
            "path": request.url.path,
            "query": request.url.query,
            "body": hashlib.sha256(body).hexdigest(),
        },
    )
    is_claimed = await run_in_threadpool(keyed.claim_for_answer, services.documents)
    if not is_claimed and (kept := await run_in_threadpool(_kept, keyed, services.documents)):
        return kept
    try:
        answer = await act(request)
    except ServiceUnavailableError:
        raise
    except (LandfallError, RequestValidationError, HTTPException):
        if is_claimed:
            await run_in_threadpool(services.documents.delete, keyed.path)
        raise
    await run_in_threadpool(_keep, keyed, answer, services.documents, is_claimed=is_claimed)
    return answer


def _kept(keyed: KeyedRequest, documents: DocumentStore) -> Response | None:
    found = documents.read(keyed.answer_path, max_bytes=MAX_ANSWER_BYTES)
    if found is None:
        return None
    kept = json.loads(found)
    return Response(kept["body"], status_code=kept["status"], headers=kept["headers"], media_type="application/json")


def _keep(keyed: KeyedRequest, answer: Response, documents: DocumentStore, *, is_claimed: bool) -> None:
    """Store a response. If the key was new, overwrite a response whose key storage has already deleted."""
    headers = {"Location": answer.headers["Location"]} if "Location" in answer.headers else {}
    body = bytes(answer.body).decode()
    content = json.dumps({"status": answer.status_code, "headers": headers, "body": body}).encode()
    if answer.status_code < _REFUSED and len(content) <= MAX_ANSWER_BYTES:
        is_kept = documents.write_once(keyed.answer_path, content)
        if is_claimed and not is_kept:
            documents.write(keyed.answer_path, content)
