"""Handle the messages of the two queues of uploads: datasets take turns, and small shards are judged together."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from itertools import compress
from threading import Event

from function_app.domain.errors import InvalidEventError
from function_app.domain.events import (
    SHARD_UPLOADED,
    SHARD_UPLOADED_BULK,
    QueuedMessage,
    Upload,
    joined_messages,
    read_uploads,
    single_messages,
)
from function_app.domain.records import NUM_BUCKETS, DatasetVersion
from function_app.domain.shard_paths import NotAShardError, shard_place
from function_app.ingest.uploads import FirstVerdict, first_verdict, handle_upload, is_small, record_first
from function_app.services import IngestServices
from shared.errors import LandfallError

MAX_RECORDED_TOGETHER = 50
"""Verdicts of one transaction. Azure's tables take 100 rows and 4 MiB."""

logger = logging.getLogger(__name__)


def handle_message(
    body: bytes, services: IngestServices, *, num_deliveries: int = 1, inserted_at: datetime | None = None
) -> None:
    """Handle a message of the queue of uploads, or pass it on where messages wait and its dataset has had its turn.

    A queue has no order but that of arrival, so a single shard behind thousands of another dataset would wait for all
    of them. To pass messages on takes a fraction of the time that verdicts take. A repeated delivery is not passed
    on: in another queue it would count as the first. Raises InvalidEventError.
    """
    uploads = read_uploads(body, num_deliveries=num_deliveries)
    had_its_turn, is_queue_long = _had_its_turn(uploads, services), _has_waited(inserted_at, services)
    if num_deliveries == 1 and had_its_turn and is_queue_long:
        _pass_on(body, services)
    else:
        _handle_all(SHARD_UPLOADED, body, services, num_deliveries=num_deliveries)


def handle_passed_on(body: bytes, services: IngestServices, *, num_deliveries: int = 1) -> None:
    """Handle a message that was passed on, after those that are still to be passed on. Raises InvalidEventError."""
    _handle_all(SHARD_UPLOADED_BULK, body, services, num_deliveries=num_deliveries)


def _pass_on(body: bytes, services: IngestServices) -> None:
    """Pass a message on together with those behind it, up to the first that is not to be passed on: that is handled.

    Shards of one bucket come to share a message, so that their verdicts share a transaction. Each delete is a
    request, so messages are deleted once no more are taken; but before one is handled, which may take longer than the
    others are hidden.
    """
    turns, queue = services.turns, services.queues[SHARD_UPLOADED]
    passed_on, others = list[QueuedMessage](), list[QueuedMessage]()
    is_more = True
    while is_more:
        turns.passed_on_s = turns.seconds()
        taken = queue.take(turns.max_taken, hidden_for=turns.taken_for)
        followers = [message for message in taken if _follows(message, services)]
        passed_on += followers
        others = [message for message in taken if message not in followers]
        is_more = len(followers) == turns.max_taken and len(passed_on) < turns.max_passed_on
    bodies = [body.decode(), *(message.text for message in passed_on)]
    bodies.sort(key=lambda text: _bucket(text, services))
    for text in joined_messages(bodies):
        services.queues[SHARD_UPLOADED_BULK].send_text(text)
    _delete(passed_on, services)
    end_s = turns.seconds() + turns.together_s
    for message in others:
        if turns.seconds() < end_s:
            _handle_taken(message, services)


def _delete(messages: Sequence[QueuedMessage], services: IngestServices) -> None:
    """Delete messages that were passed on: several at once, as another dataset's shard waits behind them."""
    turns, queue = services.turns, services.queues[SHARD_UPLOADED]

    def delete(message: QueuedMessage) -> None:
        turns.passed_on_s = turns.seconds()
        queue.delete(message)

    with ThreadPoolExecutor(turns.small_at_once) as pool:
        list(pool.map(delete, messages))


def _bucket(text: str, services: IngestServices) -> tuple[str, str, int]:
    """Return version, split and bucket of a message's first shard.

    Verdicts on shards with the same three are recorded together.
    """
    path = read_uploads(text)[0].path
    try:
        place = shard_place(path, services.pipelines)
    except NotAShardError:
        return path, "", 0
    return str(place.dataset_version), place.shard.split, place.shard.index % NUM_BUCKETS


def _follows(message: QueuedMessage, services: IngestServices) -> bool:
    """Whether a message is passed on, too."""
    try:
        return message.num_deliveries == 1 and _had_its_turn(read_uploads(message.text), services)
    except InvalidEventError:
        return False


def _handle_taken(message: QueuedMessage, services: IngestServices) -> None:
    """Handle a message that the host did not deliver. After an error the host delivers it, and records the error."""
    try:
        _handle_all(SHARD_UPLOADED, message.text, services, num_deliveries=message.num_deliveries)
    except LandfallError:
        logger.exception("a message that was taken from its queue fails, and will be delivered again")
    else:
        services.queues[SHARD_UPLOADED].delete(message)


def _handle_all(queue: str, body: bytes | str, services: IngestServices, *, num_deliveries: int) -> None:
    """Handle the uploads of a message. If one fails or takes long, it and the rest become single messages."""
    uploads = read_uploads(body, num_deliveries=num_deliveries)
    give_way = services.turns.give_way if queue == SHARD_UPLOADED_BULK else lambda: None
    if len(uploads) == 1:
        give_way()
        handle_upload(uploads[0], services)
        return
    # Of several uploads that are delivered again, one may have ended its process.
    left = uploads if num_deliveries > 1 else _handle_together(uploads, give_way, services)
    texts = dict(zip(uploads, single_messages(body), strict=True))
    for upload in left:
        services.queues[queue].send_text(texts[upload])


def _handle_together(
    uploads: Sequence[Upload], give_way: Callable[[], None], services: IngestServices
) -> Sequence[Upload]:
    """Handle uploads until one fails or the time is over; return those that were not handled.

    Small shards are handled at the same time, as they wait for storage. The verdicts of those that are accepted at
    once are recorded together; the others are handled one by one.
    """
    turns, is_over = services.turns, Event()
    services = replace(services, claimed_sizes={})
    end_s = turns.seconds() + turns.together_s

    def is_handled(upload: Upload) -> bool:
        if is_over.is_set():
            return False
        give_way()
        try:
            handle_upload(upload, services)
        except LandfallError:
            logger.exception("a shard failed: it and those behind it become single messages")
            is_over.set()
            return False
        if turns.seconds() >= end_s:
            is_over.set()
        return True

    def judged(upload: Upload) -> FirstVerdict | None:
        give_way()
        return first_verdict(upload, services) if turns.seconds() < end_s else None

    if all(is_small(upload, services) for upload in uploads):
        with ThreadPoolExecutor(turns.small_at_once) as pool:
            groups = list(_groups(filter(None, pool.map(judged, uploads))))
            are_recorded = list(pool.map(lambda group: _are_recorded(group, services), groups))
            done = {one.upload for group in compress(groups, are_recorded) for one in group}
            handled = list(pool.map(lambda upload: upload in done or is_handled(upload), uploads))
    else:
        handled = list(map(is_handled, uploads))
    return [upload for upload, is_done in zip(uploads, handled, strict=True) if not is_done]


def _groups(found: Iterable[FirstVerdict]) -> Iterator[list[FirstVerdict]]:
    """Yield what may be recorded in one transaction: each position once, of one split and bucket."""
    of_bucket = defaultdict[tuple[DatasetVersion, str, int], dict[int, FirstVerdict]](dict)
    for one in found:
        shard = one.record
        of_bucket[shard.dataset_version, shard.split, shard.bucket].setdefault(shard.index, one)
    for positions in of_bucket.values():
        group = list(positions.values())
        for start in range(0, len(group), MAX_RECORDED_TOGETHER):
            yield group[start : start + MAX_RECORDED_TOGETHER]


def _are_recorded(group: Sequence[FirstVerdict], services: IngestServices) -> bool:
    try:
        return record_first(group, services)
    except LandfallError:
        logger.exception("shards of a message cannot be recorded together: they are handled one by one")
        return False


def _has_waited(inserted_at: datetime | None, services: IngestServices) -> bool:
    """Whether a message lay in its queue for some time, and so will those behind it. Yes if that is unknown."""
    if inserted_at is None:
        return True
    inserted_at = inserted_at if inserted_at.tzinfo else inserted_at.replace(tzinfo=UTC)
    return services.clock() - inserted_at >= services.turns.short_wait


def _had_its_turn(uploads: list[Upload], services: IngestServices) -> bool:
    """Whether all of a message belongs to datasets that have had their turn. Counts it."""
    found = Counter(upload.path.partition("/")[0] for upload in uploads)
    counted = [
        services.turns.has_had(dataset, num) for dataset, num in found.items() if dataset in services.pipelines
    ]
    return len(counted) == len(found) and all(counted)
