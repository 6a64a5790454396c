"""Fair turns between datasets: one that uploads many shards at once continues in a queue of its own.

A queue has no order but that of arrival, so a single shard behind thousands of another dataset would wait for all of
them. To pass a message on takes a fraction of the time that a verdict takes, so the queue of uploads stays short.
"""

from __future__ import annotations

from collections import Counter

from function_app.domain.events import SHARD_UPLOADED_BULK, Upload, read_uploads
from function_app.ingest.uploads import handle_upload
from function_app.services import IngestServices


def handle_message(body: bytes, services: IngestServices, *, num_deliveries: int = 1) -> None:
    """Handle a message of the queue of uploads, or pass it on where its dataset has had its turn.

    Raises InvalidEventError. A repeated delivery is not passed on: another queue would count its deliveries anew.
    """
    uploads = read_uploads(body, num_deliveries=num_deliveries)
    if num_deliveries == 1 and _had_its_turn(uploads, services):
        services.queues[SHARD_UPLOADED_BULK].send_text(body.decode())
        return
    for upload in uploads:
        handle_upload(upload, services)


def _had_its_turn(uploads: list[Upload], services: IngestServices) -> bool:
    """Whether all of a message belongs to datasets that have had their turn. Counts it."""
    found = Counter(upload.path.partition("/")[0] for upload in uploads)
    counted = [
        services.turns.has_had(dataset, num) for dataset, num in found.items() if dataset in services.pipelines
    ]
    return len(counted) == len(found) and all(counted)
