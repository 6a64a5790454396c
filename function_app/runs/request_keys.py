"""Idempotency keys: a key belongs to the first request that used it, and always leads to that request's run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from function_app.domain.errors import IdempotencyKeyError
from function_app.domain.jobs import digest
from function_app.domain.records import RunRecord
from function_app.services import RunServices

MAX_CLAIM_BYTES = 4096


@dataclass(frozen=True, kw_only=True)
class KeyedRequest:
    """A request with its Idempotency-Key."""

    key: str
    content: Mapping[str, Any]
    """Everything that was asked for; another content under the same key is an error."""

    @property
    def path(self) -> str:
        """Path of the claim in the state container; a digest, because a key may contain dots and colons."""
        return f"idempotency-keys/{hashlib.sha256(self.key.encode()).hexdigest()}.json"

    def first_run(self, services: RunServices) -> RunRecord | None:
        """Return the run to which this key led, None if there is none (yet). Raises IdempotencyKeyError."""
        found = services.documents.read(self.path, max_bytes=MAX_CLAIM_BYTES)
        if found is None:
            return None
        claim = json.loads(found)
        if claim["request"] != digest(self.content):
            raise IdempotencyKeyError(
                f"Idempotency-Key {self.key} was used for another request, which led to run {claim['run_id']}; "
                "use a new key for each request"
            )
        return services.ledger.run(claim["run_id"])

    def claim(self, run_id: str, services: RunServices) -> RunRecord | None:
        """Claim the key for the run that is about to be added; return the run of a caller that was faster.

        A claim without a run is that of a caller that died: then this caller's run is added.
        """
        content = json.dumps({"key": self.key, "request": digest(self.content), "run_id": run_id}).encode()
        return None if services.documents.write_once(self.path, content) else self.first_run(services)
