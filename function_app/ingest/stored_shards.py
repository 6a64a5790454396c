"""Compare the shards that lie in storage now with those that were accepted: what is trained on is what was judged.

One listing for a version, not one request for each shard. An ETag changes with every write, so a shard whose ETag is
that of its verdict has the content that was judged, and equal ETags at the submission and at the end of a run mean
that nothing was written in between. If files may have any names, others may come to lie beside a run's shards: a
user's script that reads the whole folder would train on them too, so for it they count as a change.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from function_app.config.layouts import Layout
from function_app.config.pipelines import Pipeline
from function_app.domain.errors import DocumentTooLargeError
from function_app.domain.jobs import runs_own_script
from function_app.domain.records import BlobFacts, DatasetVersion, RunRecord, ShardRecord, ShardState, manifest_path
from function_app.domain.shard_paths import NotAShardError, shard_place
from function_app.ports import DocumentStore, ShardStore
from function_app.services import IngestServices, RunServices
from shard_validation import Reason, ReasonCode
from shared.errors import LandfallError
from shared.manifest import MAX_MANIFEST_BYTES, Manifest, ManifestError, ManifestShard
from shared.shard_names import ShardName

logger = logging.getLogger(__name__)

MAX_NAMED = 5
"""Shards that a message names."""
CLOCK_SKEW = timedelta(seconds=30)
"""Allowed difference between the clocks of two machines. Azure keeps them within a second."""


@dataclass(frozen=True, kw_only=True)
class StoredShards:
    """How shards in storage differ from what was accepted."""

    gone: tuple[ShardRecord, ...] = ()
    """Verdicts on shards that were deleted since."""
    replaced: tuple[str, ...] = ()
    """Names of shards that now have another content, which was judged, or whose verdict is another file's."""
    unjudged: tuple[str, ...] = ()
    """Names of shards that were written again and whose new content has no verdict yet."""
    added: tuple[str, ...] = ()
    """Names of shards that are not in the manifest, where the run's script may read them."""
    etags: str = ""
    """Digest of the names and ETags of the shards that a run may read; empty if there are none."""
    written_at: datetime | None = None
    """When the last of a run's shards was written."""

    @property
    def problem(self) -> str | None:
        """What differs, in words; None if nothing does."""
        return _in_words(
            {
                "deleted": [row.name for row in self.gone],
                "replaced by other content": self.replaced,
                "written again and not yet judged": self.unjudged,
                "added": self.added,
            }
        )


def accepted_in_storage(version: DatasetVersion, accepted: Iterable[ShardRecord], store: ShardStore) -> StoredShards:
    """Compare accepted shards with storage, before their version is closed."""
    stored = _stored(version, store)
    rows = list(accepted)
    return StoredShards(
        gone=tuple(row for row in rows if row.name not in stored),
        unjudged=tuple(row.name for row in rows if row.name in stored and stored[row.name].etag != row.etag),
    )


def data_in_storage(run: RunRecord, services: RunServices) -> StoredShards:
    """Compare the shards that a run is to train on with their verdicts and with storage, before its submission."""
    try:
        shards = _shards(run, services)
    except _ManifestGoneError as error:
        return StoredShards(replaced=(str(error),))
    if not shards:
        return StoredShards()
    stored = _stored(run.dataset_version, services.shards)
    by_name = _by_name(services.ledger.shards(run.dataset_version), stored)
    found = _Differences()
    for shard in shards:
        found.add(shard, by_name.get(shard.name), stored.get(shard.name))
    beside = _beside(run, shards, stored, services)
    return StoredShards(
        gone=tuple(found.gone),
        replaced=tuple(found.replaced),
        unjudged=tuple(found.unjudged),
        added=tuple(one.name for one in beside if not has_no_records(by_name.get(one.name), stored[one.name])),
        etags=_digest([*shards, *beside], stored),
        written_at=max((stored[one.name].last_modified for one in shards if one.name in stored), default=None),
    )


def _by_name(rows: Iterable[ShardRecord], stored: Mapping[str, BlobFacts]) -> dict[str, ShardRecord]:
    """Return the verdict on each file: where it has had two positions, that on its content, or an accepted one.

    The split of a verdict says nothing here: a list may state another one.
    """

    def rank(row: ShardRecord) -> tuple[bool, bool]:
        facts = stored.get(row.name)
        return facts is not None and facts.etag == row.etag, row.state is ShardState.ACCEPTED

    return {row.name: row for row in sorted(rows, key=rank)}


@dataclass(frozen=True)
class _Differences:
    gone: list[ShardRecord] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)
    unjudged: list[str] = field(default_factory=list)

    def add(self, shard: ManifestShard, row: ShardRecord | None, facts: BlobFacts | None) -> None:
        if row is None:
            self.replaced.append(shard.name)
        elif facts is None:
            self.gone.append(row)
        elif row.etag != facts.etag:
            self.unjudged.append(shard.name)
        elif row.state is not ShardState.ACCEPTED or (row.size_bytes, row.crc32c) != (shard.size_bytes, shard.crc32c):
            self.replaced.append(shard.name)


def written_since_submission(run: RunRecord, services: RunServices) -> str | None:
    """Return which of a run's shards were written or deleted since its submission; None if none was."""
    try:
        shards = _shards(run, services)
    except _ManifestGoneError as error:
        return _in_words({"replaced by other content": [str(error)]})
    if not shards or run.data_etags is None:
        return None
    stored = _stored(run.dataset_version, services.shards)
    beside = _beside(run, shards, stored, services)
    if run.data_etags == _digest([*shards, *beside], stored):
        return None
    since = (run.submitted_at or run.state_since) - CLOCK_SKEW
    young = {name for name, facts in stored.items() if facts.last_modified >= since}
    found = {
        "deleted": [shard.name for shard in shards if shard.name not in stored],
        "written again": [shard.name for shard in shards if shard.name in young],
        "added": [shard.name for shard in beside if shard.name in young],
    }
    return _in_words(found) or "shards were written again"


def has_no_records(row: ShardRecord | None, facts: BlobFacts) -> bool:
    """Whether a file is valid but has no records, such as the file that Spark writes for an empty first partition."""
    return row is not None and row.etag == facts.etag and is_without_records(row)


def is_without_records(row: ShardRecord) -> bool:
    """Whether nothing is wrong with a shard but that it has no record."""
    return [reason.code for reason in row.reasons] == [ReasonCode.NO_RECORDS]


def accepted_rows(rows: Iterable[ShardRecord], pipeline: Pipeline) -> list[ShardRecord]:
    """Return the accepted shards of the pipeline's splits in their order."""
    wanted = (r for r in rows if r.state is ShardState.ACCEPTED and r.split in pipeline.data.splits)
    return sorted(wanted, key=lambda row: (row.split, row.index))


def is_rejected_by_list(row: ShardRecord) -> bool:
    """Whether nothing is wrong with a shard but that it differs from the list of its version's files."""
    codes = [reason.code for reason in row.reasons]
    return row.state is ShardState.REJECTED and codes == [ReasonCode.DIFFERS_FROM_LIST]


def was_judged_for(row: ShardRecord, layout: Layout) -> bool:
    """Whether a verdict has all that a layout asks for. One from before the pipeline's layout was changed may not."""
    if is_rejected_by_list(row):
        return layout.has_list
    return row.state is not ShardState.ACCEPTED or set(layout.digests) <= set(row.digests or ())


def reject_gone(rows: Iterable[ShardRecord], services: IngestServices | RunServices) -> None:
    """Reject accepted shards that were deleted: they must not count, and their version is open again."""
    code = str(ReasonCode.SET_SHARD_GONE)
    for row in rows:
        if row.state is not ShardState.ACCEPTED:
            continue
        message = f"{row.name} was deleted after it had been accepted; upload it again"
        _reject_deleted(row, ReasonCode.SET_SHARD_GONE, message, services)
        services.ledger.set_mark(listing_mark(row.dataset_version), "")
        version = str(row.dataset_version)
        services.history.record(f"{version}/{row.name}", "shard_rejected", message, code=code)
        services.history.record(version, "shard_rejected", message, code=code, shard=row.name)


def reject_former(
    rows: Iterable[ShardRecord], sizes: Mapping[str, int], services: IngestServices | RunServices
) -> None:
    """Reject accepted shards whose split now has another number of shards: they must not count with the new ones."""
    for row in rows:
        if row.state is not ShardState.ACCEPTED or row.num_shards == sizes.get(row.split, row.num_shards):
            continue
        message = f"{row.name} was deleted, and its split now has another number of shards"
        _reject_deleted(row, ReasonCode.SET_SIZE_CONTRADICTORY, message, services)


def _reject_deleted(row: ShardRecord, code: ReasonCode, message: str, services: IngestServices | RunServices) -> None:
    """Record a rejection without an ETag: a shard that is undeleted has its old one, and must be judged again."""
    reason, now = Reason(code=code, shard=row.name, message=message), services.clock()
    rejected = replace(row, etag="", state=ShardState.REJECTED, reasons=(reason,), validated_at=now)
    services.ledger.record_shard(rejected)


def listing_mark(version: DatasetVersion) -> str:
    """Return the name of the mark with the listing of a version that needs nothing, so that the sweep can skip it."""
    return f"inventory/{version}"


def read_manifest(path: str, documents: DocumentStore) -> Manifest:
    """Return the manifest of a closing. Raises ManifestError if it cannot be read."""
    try:
        return Manifest.from_json(documents.read(path, max_bytes=MAX_MANIFEST_BYTES) or b"")
    except DocumentTooLargeError as error:
        raise ManifestError(str(error)) from error


class _ManifestGoneError(LandfallError):
    """The manifest of a closing cannot be read; the message is its path."""


def _shards(run: RunRecord, services: RunServices) -> tuple[ManifestShard, ...]:
    path = manifest_path(run.dataset_version, run.generation, run.fingerprint)
    try:
        return read_manifest(path, services.documents).shards
    except ManifestError as error:
        logger.warning(f"run {run.run_id}: {path}: {error}", extra={"run_id": run.run_id})
        raise _ManifestGoneError(path) from error


def _stored(version: DatasetVersion, store: ShardStore) -> Mapping[str, BlobFacts]:
    prefix = f"{version}/"
    return {facts.path.removeprefix(prefix): facts for facts in store.list(prefix)}


def _beside(
    run: RunRecord, shards: Iterable[ManifestShard], stored: Mapping[str, BlobFacts], services: RunServices
) -> list[ShardName]:
    """Return the shards that a run's script may read although the manifest does not name them.

    Landfall's training reads what the manifest names, and names ``-of-N`` leave no room for another shard. Beside
    files that a list names, others may lie at any time: there a script has to keep to the manifest.
    """
    pipeline = services.pipelines.get(run.dataset_version.dataset)
    if pipeline is None or pipeline.data.layout.kind not in {"marker", "quiet"}:
        return []
    if not runs_own_script(str(run.spec["command"])):
        return []
    named, found = {shard.name for shard in shards}, list[ShardName]()
    for name, facts in stored.items():
        with contextlib.suppress(NotAShardError):
            shard = shard_place(facts.path, services.pipelines).shard
            found += [shard] if name not in named else []
    return found


def _digest(shards: Iterable[ManifestShard | ShardName], stored: Mapping[str, BlobFacts]) -> str:
    found = ((shard.name, stored[shard.name].etag if shard.name in stored else "") for shard in shards)
    return hashlib.sha256("\n".join(f"{name} {etag}" for name, etag in found).encode()).hexdigest()


def _in_words(found: Mapping[str, Sequence[str]]) -> str | None:
    parts = [
        f"{_listed(names)} {'were' if len(names) > 1 else 'was'} {what}" for what, names in found.items() if names
    ]
    return "; ".join(parts) or None


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return ", ".join(names[:MAX_NAMED]) + more
