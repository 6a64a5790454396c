"""Access to the workspace's storage with an identity, because Azurite without a certificate accepts only keys."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import quote

import httpx

from local_azure.azure_ml.api.call import Answer, Call
from local_azure.azure_ml.api.emulator import Emulator
from local_azure.azure_ml.service import ServiceError
from local_azure.azure_ml.storage import BlobLocation

AUDIENCE = "https://storage.azure.com"
_TIMEOUT_S = 30.0
_NOT_PASSED_ON = frozenset({"authorization", "host", "connection", "content-length", "transfer-encoding", "date"})


def get_blob(emulator: Emulator, call: Call) -> Answer:
    """Answer a read of the workspace's account like storage, for an identity that may read it."""
    return _pass_on(emulator, call, emulator.settings.log_readers, emulator.storage.reader_url)


def put_blob(emulator: Emulator, call: Call) -> Answer:
    """Answer a write to the workspace's account, for an identity that may write."""
    return _pass_on(emulator, call, emulator.settings.storage_writers, emulator.storage.upload_url)


def _pass_on(
    emulator: Emulator, call: Call, allowed: frozenset[str], signed: Callable[[BlobLocation], str]
) -> Answer:
    caller = emulator.tokens.caller(call.headers.get("Authorization"), AUDIENCE)
    account, container, path = call.parts["account"], call.parts["container"], call.parts["path"] or ""
    if account != emulator.storage.workspace_account:
        raise ServiceError(404, "ResourceNotFound", "The specified resource does not exist.")
    if caller not in allowed:
        denied = {"x-ms-error-code": "AuthorizationPermissionMismatch"}
        message = "This request is not authorized to perform this operation using this permission."
        raise ServiceError(403, "AuthorizationPermissionMismatch", message, headers=denied)
    url = signed(BlobLocation(account=account, container=container, path=""))
    place, _, signature = url.partition("?")
    answer = httpx.request(
        call.method,
        f"{place}/{quote(path)}" if path else place,
        content=call.body,
        params={**dict(httpx.QueryParams(signature)), **call.query},
        headers={name: value for name, value in call.headers.items() if name.lower() not in _NOT_PASSED_ON},
        timeout=_TIMEOUT_S,
    )
    headers = {name: value for name, value in answer.headers.items() if name.lower() not in _NOT_PASSED_ON}
    if call.method == "HEAD":
        headers["Content-Length"] = answer.headers.get("Content-Length", "0")
    return Answer(status=answer.status_code, content=answer.content, headers=headers)
