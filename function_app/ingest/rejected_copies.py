"""Quarantine: a copy of what was rejected, with the reasons beside it, where the pipeline names a container for it.

Never a move: the shard stays where its owner put it. A file that was refused for its name alone (another file has its
position, or its ``-of-N`` contradicts the others) was not looked at, and is not copied.
"""

from __future__ import annotations

import json

from function_app.domain.records import BlobFacts
from function_app.domain.shard_paths import ShardPlace
from function_app.services import Services
from shard_validation import ShardVerdict, SourceError
from shared.errors import LandfallError


def keep_rejected(place: ShardPlace, facts: BlobFacts, verdict: ShardVerdict, services: Services) -> None:
    """Copy a rejected shard, and write its reasons beside the copy; doing it again changes nothing.

    Where the copy cannot be made the story says so: the verdict does not wait for it. Raises SourceError where the
    shard is not what was judged any more.
    """
    container = place.pipeline.quarantine
    if container is None:
        return
    path = f"{place.path}@{facts.etag}"
    try:
        services.quarantine.copy(facts, container, path)
        services.quarantine.note(container, f"{path}.reasons.json", _reasons(place, facts, verdict))
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
