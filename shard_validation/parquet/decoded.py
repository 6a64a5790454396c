"""The columns of one shard, read and checked by a decoding process; handles the death of that process."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from types import TracebackType
from typing import Any, Self

from shard_validation.parquet.blocks import BlockFile
from shard_validation.parquet.decoder import Answer, Decoder, DecoderLostError, Watch, give_back, take_decoder
from shard_validation.parquet.footer import ColumnChunk
from shard_validation.reasons import Fault, FaultError, ReasonCode
from shard_validation.requirements import Limits
from shard_validation.validate import FeatureStatistics
from shared.manifest import FeatureSpec

BATCH_BYTES = 8 << 20
MAX_BATCH_ROWS = 64 << 10
_ATTEMPTS = 2
_MIN_READ_BYTES = 64 << 20
"""The decoder may request this many bytes at once, and any page that the limits allow."""


@dataclass(frozen=True, kw_only=True)
class Checked:
    """The result of checking a column chunk."""

    faults: Sequence[tuple[Fault, int]] = ()
    """The first ones, with their rows."""
    num_faults: int = 0
    statistics: FeatureStatistics = field(default_factory=FeatureStatistics)
    error: FaultError | None = None
    """Why the rest of the column chunk was not decoded."""


class DecodedColumns:
    """Lets a decoder check the column chunks of one shard; a context manager."""

    def __init__(self, file: BlockFile, shard: Mapping[str, Any], limits: Limits) -> None:
        """Take the members of the request to open the shard, see `decoding.Session`."""
        self._file = file
        self._shard = shard
        self._most_read_bytes = max(_MIN_READ_BYTES, 2 * limits.max_page_bytes)
        self._decoder: Decoder | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Keep the decoder for the next shard."""
        if self._decoder is not None:
            give_back(self._decoder)
        self._decoder = None

    def open(self, footer_offset: int, watch: Watch) -> None:
        """Have the decoder read the footer. Raises FaultError, SourceError, and what ``watch`` does."""
        try:
            self._insist(None, watch)
        except DecoderLostError as error:
            expected, seen = "a footer that pyarrow reads", f"a decoder that failed: {error}"
            raise FaultError(ReasonCode.PARQUET_FOOTER_CORRUPT, expected, seen, footer_offset) from error

    def check(
        self,
        chunk: ColumnChunk,
        rows_at_a_time: int | None,
        feature: tuple[FeatureSpec, FeatureStatistics] | None,
        watch: Watch,
    ) -> Checked:
        """Check the rows of a column chunk, and count them. Raises FaultError, SourceError, and what ``watch`` does.

        Without ``rows_at_a_time``, pages are decoded in pieces, because they are too large for memory.
        """
        request = {
            "chunk": {**asdict(chunk), "encodings": sorted(chunk.encodings)},
            "rows_at_a_time": rows_at_a_time,
            "feature": feature[0].to_json() if feature else None,
            "statistics": vars(feature[1] if feature else FeatureStatistics()),
        }
        try:
            return self._insist({"check": request}, watch)
        except DecoderLostError as error:
            expected = f"pages of row group {chunk.row_group} and column {chunk.path} that can be decoded"
            seen = f"a decoder that failed: {error}"
            raise FaultError(ReasonCode.PARQUET_PAGE_CORRUPT, expected, seen, chunk.start, chunk.path) from error

    def _insist(self, request: Answer | None, watch: Watch) -> Checked:
        """Send a request; repeat it with a new decoder if this one is lost, as when the kernel kills it."""
        for _ in range(_ATTEMPTS - 1):
            with contextlib.suppress(DecoderLostError):
                return self._answer(request, watch)
        return self._answer(request, watch)

    def _answer(self, request: Answer | None, watch: Watch) -> Checked:
        """Return the answer; with None, only open the shard if it is not open yet."""
        answer = Checked()
        try:
            if self._decoder is None:
                self._decoder = take_decoder()
                answer = _checked(self._decoder.ask({"open": self._shard}, self._read, watch))
                if answer.error is not None:
                    raise answer.error
            return answer if request is None else _checked(self._decoder.ask(request, self._read, watch))
        except DecoderLostError:
            if self._decoder is not None:
                self._decoder.end()
            self._decoder = None
            raise

    def _read(self, offset: int, length: int) -> bytes:
        if length > self._most_read_bytes:
            raise DecoderLostError(f"it asked for {length} bytes at once")
        return self._file.read_at(offset, length)


def _checked(answer: Answer) -> Checked:
    """Read an answer. Raises DecoderLostError if it violates the protocol."""
    try:
        error = answer.get("error")
        return Checked(
            faults=[(_fault(members), int(row)) for members, row in answer.get("faults", ())],
            num_faults=int(answer.get("num_faults", 0)),
            statistics=FeatureStatistics(**answer.get("statistics", {})),
            error=FaultError(**_fault_members(error), byte_offset=answer["byte_offset"]) if error else None,
        )
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise DecoderLostError(f"an answer that violates the protocol: {error!r}") from error


def _fault(members: Mapping[str, Any]) -> Fault:
    return Fault(**_fault_members(members))


def _fault_members(members: Mapping[str, Any]) -> dict[str, Any]:
    return {**members, "code": ReasonCode(members["code"])}


def batch_rows(chunk: ColumnChunk, uncompressed_bytes: int, largest_page_bytes: int, limits: Limits) -> int:
    """Return how many rows to decode at a time. Raises FaultError if a single row may be too large.

    That many rows usually take `BATCH_BYTES`. Hostile rows may take more; the decoder then takes fewer at a time.
    """
    if chunk.is_nested:
        _check_nested(chunk, largest_page_bytes, limits)
    value_bytes = max(8, chunk.leaf.type_length)
    chunk_bytes = max(uncompressed_bytes, value_bytes * chunk.num_values)
    return max(1, min(BATCH_BYTES * chunk.num_rows // max(1, chunk_bytes), MAX_BATCH_ROWS))


def _check_nested(chunk: ColumnChunk, largest_page_bytes: int, limits: Limits) -> None:
    """Raise FaultError for too many values, and for a row that may hold too much of them.

    A byte array is never longer than its page; with a dictionary, every value of a row may be the longest.
    """
    if chunk.num_values > limits.max_nested_values:
        raise FaultError(
            ReasonCode.PARQUET_TOO_COMPLEX,
            f"at most {limits.max_nested_values} nested values in a row group (limits.max_nested_values)",
            str(chunk.num_values),
            chunk.start,
            chunk.path,
        )
    longest = {"BYTE_ARRAY": largest_page_bytes, "FIXED_LEN_BYTE_ARRAY": chunk.leaf.type_length}
    value_bytes = longest.get(chunk.leaf.physical_type, 8)
    if value_bytes * chunk.num_values > max(BATCH_BYTES, limits.max_parsed_bytes):
        raise FaultError(
            ReasonCode.PARQUET_TOO_COMPLEX,
            f"rows that take at most {limits.max_parsed_bytes} bytes (limits.max_parsed_bytes)",
            f"up to {chunk.num_values} values of {value_bytes} bytes",
            chunk.start,
            chunk.path,
        )
