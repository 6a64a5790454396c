"""Copies of rejected shards with their reasons, in the container that the pipeline names (``quarantine``).

A shard is never moved. A file that was refused for its name alone (its position is taken, or its ``-of-N`` conflicts)
was not read, and is not copied.
"""

from __future__ import annotations

import json

from function_app.domain.records import BlobFacts
from function_app.domain.shard_paths import ShardPlace
from function_app.services import IngestServices
from shard_validation import ShardVerdict, SourceError
from shared.errors import LandfallError


def keep_rejected(place: ShardPlace, facts: BlobFacts, verdict: ShardVerdict, services: IngestServices) -> None:
    """Copy a rejected shard and write its reasons beside the copy. Safe to repeat.

    A copy that fails is recorded in the history and does not delay the verdict. Raises SourceError if the shard
    has changed since it was judged.
    """
    container = place.pipeline.quarantine
    if container is None:
        return
    path = f"{place.path}@{facts.etag}"
    try:
        services.rejected_copies.copy(facts, container, path)
        services.rejected_copies.note(container, f"{path}.reasons.json", _reasons(place, facts, verdict))
    except SourceError:
        raise
    except LandfallError as error:
        services.history.record(place.path, "quarantine_failed", f"no copy in {container}: {error}", etag=facts.etag)
        return
    services.history.record(place.path, "shard_quarantined", f"copied to {container}/{path}", etag=facts.etag)


def _reasons(place: ShardPlace, facts: BlobFacts, verdict: ShardVerdict) -> bytes:
    members = {
        "path": place.path,
        "etag": facts.etag,
        "size_bytes": facts.size_bytes,
        "crc32c": verdict.crc32c,
        "num_reasons": verdict.num_reasons,
        "reasons": [reason.to_json() for reason in verdict.reasons],
    }
    return json.dumps(members, indent=1).encode()
