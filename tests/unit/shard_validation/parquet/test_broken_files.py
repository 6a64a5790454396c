"""Parquet: every way in which a file can be broken, with its code and position."""

from __future__ import annotations

import io
import struct
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shard_validation import DataRequirements, Limits, ShardVerdict, validate_shard
from shard_validation import ReasonCode as Code
from shard_validation.parquet.blocks import BlockFile
from shard_validation.parquet.byte_arrays import PageDecoder
from shard_validation.parquet.footer import column_chunks, read_footer
from shard_validation.parquet.pages import Page, walk_pages
from shard_validation.reasons import FaultError
from shared.manifest import FeatureSpec
from tests.support.shards import BytesSource, image_bytes, only_reason, place

NAME = "train-00000-of-00001.parquet"
LABEL = FeatureSpec(name="label", kind="int64", minimum=0, maximum=9)
IMAGE = FeatureSpec(name="image", kind="bytes", encoding="png")
ROWS = 100


def table(**columns: Any) -> pa.Table:
    """Return 100 rows of images and labels, or of other columns."""
    rows = {"label": [i % 10 for i in range(ROWS)], "image": [image_bytes("PNG", (8, 8 + i)) for i in range(ROWS)]}
    return pa.table({**rows, **columns})


def written(rows: pa.Table, **options: Any) -> bytes:
    """Return a table as a Parquet file."""
    buffer = io.BytesIO()
    pq.write_table(rows, buffer, **{"row_group_size": 40, "write_page_checksum": True, **options})
    return buffer.getvalue()


SOUND = written(table())


def verdict_on(content: bytes, *features: FeatureSpec, limits: Limits | None = None) -> ShardVerdict:
    """Validate bytes as a Parquet shard."""
    requirements = DataRequirements(data_format="parquet", features=features, limits=limits or Limits())
    return validate_shard(BytesSource(content, NAME), requirements)


def chunk_of(content: bytes, row_group: int, column: int) -> Any:
    """Return a column chunk as the footer describes it."""
    return pq.read_metadata(io.BytesIO(content)).row_group(row_group).column(column)


def first_page(content: bytes, column: int) -> Page:
    """Return the first page of a column in the first row group."""
    file = BlockFile(BytesSource(content))
    chunk = list(column_chunks(read_footer(file, len(content), Limits()), 0, 0))[column]
    return next(walk_pages(file, chunk, Limits()))


def with_footer_length(content: bytes, length: int) -> bytes:
    """Return a file whose footer claims another length."""
    return content[:-8] + struct.pack("<I", length) + b"PAR1"


FOOTER = len(SOUND) - 8 - struct.unpack("<I", SOUND[-8:-4])[0]


@pytest.mark.parametrize(
    ("content", "code", "offset"),
    [
        pytest.param(SOUND[:-1], Code.PARQUET_NO_FOOTER, len(SOUND) - 1, id="cut by a byte"),
        pytest.param(SOUND[: len(SOUND) // 2], Code.PARQUET_NO_FOOTER, len(SOUND) // 2, id="cut in half"),
        pytest.param(b"PAR1", Code.PARQUET_NO_FOOTER, 4, id="magic only"),
        pytest.param(b"PAR1PAR1", Code.PARQUET_NO_FOOTER, 8, id="two magics only"),
        pytest.param(with_footer_length(SOUND, 0), Code.PARQUET_FOOTER_LENGTH, len(SOUND) - 8, id="footer of 0"),
        pytest.param(with_footer_length(SOUND, len(SOUND)), Code.PARQUET_FOOTER_LENGTH, len(SOUND) - 8, id="longer"),
        pytest.param(
            with_footer_length(SOUND, 0xFFFFFFFF), Code.PARQUET_FOOTER_LENGTH, len(SOUND) - 8, id="footer of 4 GiB"
        ),
        pytest.param(
            with_footer_length(SOUND, 20), Code.PARQUET_FOOTER_CORRUPT, len(SOUND) - 28, id="footer length lying"
        ),
        pytest.param(
            SOUND[:FOOTER] + bytes(len(SOUND) - 8 - FOOTER) + SOUND[-8:],
            Code.PARQUET_FOOTER_CORRUPT,
            FOOTER,
            id="footer of zeros",
        ),
        pytest.param(
            with_footer_length(b"PAR1\x19\xfc\xff\xff\xff\x7f" + bytes(300_000) + SOUND[-8:], 300_006),
            Code.PARQUET_TOO_COMPLEX,
            4,
            id="footer with a list of 2^28",
        ),
        pytest.param(b"PARE" + SOUND[4:-4] + b"PARE", Code.PARQUET_ENCRYPTED, 0, id="encrypted footer"),
    ],
)
def test_broken_footer(content: bytes, code: Code, offset: int) -> None:
    """A footer that is missing, wrong or unreadable is reported with its position."""
    assert (code, None, offset) == place(verdict_on(content))


def test_sound_file() -> None:
    """A sound file is accepted with its rows, its labels counted, over several row groups."""
    verdict = verdict_on(SOUND, LABEL, IMAGE)
    assert (True, ROWS, "parquet") == (verdict.accepted, verdict.num_records, verdict.data_format)
    assert {str(i): 10 for i in range(10)} == verdict.statistics.features["label"].histogram


def test_zero_rows() -> None:
    """A file without rows is rejected."""
    empty = table().slice(0, 0)
    assert (Code.NO_RECORDS, None, None) == place(verdict_on(written(empty), LABEL, IMAGE))
    assert Code.NO_RECORDS == only_reason(verdict_on(written(empty))).code


@pytest.mark.parametrize(
    ("rows", "code"),
    [
        (table().drop_columns(["image"]), Code.FEATURE_MISSING),
        (table(image=["text"] * ROWS), Code.IMAGE_WRONG_ENCODING),
        (table(image=[1.5] * ROWS), Code.FEATURE_WRONG_KIND),
        (table(image=[[b"one", b"two"]] * ROWS), Code.FEATURE_WRONG_SHAPE),
    ],
)
def test_wrong_schema(rows: pa.Table, code: Code) -> None:
    """A column that is missing, or has another type, is reported without a row."""
    reasons = verdict_on(written(rows), LABEL, IMAGE).reasons
    assert (code, "image") == (reasons[0].code, reasons[0].feature)


def test_two_columns_of_a_features_name() -> None:
    """Readers refuse such a file or read the first column, so the second one was never checked."""
    rows = table().append_column("label", pa.array([99] * ROWS))
    reason = only_reason(validate_shard(BytesSource(written(rows), NAME), DataRequirements(features=(LABEL, IMAGE))))
    assert (Code.FEATURE_WRONG_SHAPE, "label", "2 columns of this name") == (reason.code, reason.feature, reason.seen)


def test_durations_are_not_numbers() -> None:
    """Parquet stores them as numbers, but pyarrow reads them as durations."""
    reason = verdict_on(written(table(label=pa.array([1] * ROWS, pa.duration("s")))), LABEL).reasons[0]
    assert (Code.FEATURE_WRONG_KIND, "label") == (reason.code, reason.feature)


@pytest.mark.parametrize(
    ("column", "value", "code"),
    [
        ("label", 10, Code.VALUE_OUT_OF_RANGE),
        ("label", None, Code.FEATURE_MISSING),
        ("image", None, Code.FEATURE_MISSING),
        ("image", image_bytes("JPEG"), Code.IMAGE_WRONG_ENCODING),
    ],
)
def test_bad_row(column: str, value: object, code: Code) -> None:
    """A faulty row is reported with its number over all row groups, and with its page."""
    values = table().column(column).to_pylist()
    values[57] = value
    content = written(table(**{column: values}))
    reason = only_reason(verdict_on(content, LABEL, IMAGE))
    chunk = chunk_of(content, 1, ["label", "image"].index(column))
    assert (code, 57, column) == (reason.code, reason.record_index, reason.feature)
    assert chunk.dictionary_page_offset <= (reason.byte_offset or 0) <= chunk.data_page_offset


@pytest.mark.parametrize("column", [0, 1])
@pytest.mark.parametrize("part", ["dictionary", "data"])
def test_flipped_bit(column: int, part: str) -> None:
    """A flipped bit in a page is found by its checksum, at the header of the page."""
    chunk = chunk_of(SOUND, 1, column)
    is_dictionary = part == "dictionary"
    start = chunk.dictionary_page_offset if is_dictionary else chunk.data_page_offset
    last = (
        chunk.data_page_offset if is_dictionary else chunk.dictionary_page_offset + chunk.total_compressed_size
    ) - 1
    broken = SOUND[:last] + bytes([SOUND[last] ^ 1]) + SOUND[last + 1 :]
    assert (Code.PARQUET_PAGE_CRC, None, start) == place(verdict_on(broken))


@pytest.mark.parametrize("compression", ["none", "snappy", "gzip", "zstd", "brotli", "lz4"])
@pytest.mark.parametrize("column", [0, 1])
def test_corrupt_page_without_checksum(column: int, compression: str) -> None:
    """Without checksums, a corrupt page is found by decoding."""
    content = written(table(), write_page_checksum=False, compression=compression, use_dictionary=False)
    start = first_page(content, column).body_offset
    broken = content[:start] + b"\xff" * 60 + content[start + 60 :]
    codes = {r.code for r in verdict_on(broken).reasons}
    assert codes <= {Code.PARQUET_PAGE_CORRUPT, Code.PARQUET_ROWS_DIFFER}
    assert codes


def test_page_cut() -> None:
    """A page that reaches beyond its column chunk is rejected."""
    chunk = chunk_of(SOUND, 0, 0)
    header = bytearray(SOUND[chunk.data_page_offset : chunk.data_page_offset + 8])
    assert 0x15 == header[0] == header[2] == header[4]
    header[5:6] = bytes([header[5] | 0x80])
    broken = SOUND[: chunk.data_page_offset] + bytes(header) + SOUND[chunk.data_page_offset + 8 :]
    reason = only_reason(verdict_on(broken))
    assert reason.code in {Code.PARQUET_PAGE_CUT, Code.PARQUET_PAGE_CORRUPT}
    assert chunk.data_page_offset == reason.byte_offset


def test_page_too_large() -> None:
    """A page above the limit that cannot be read in pieces is rejected before it is read, with advice."""
    content = written(table(image=[bytes(30_000)] * ROWS), use_dictionary=False, compression="lz4")
    chunk = chunk_of(content, 0, 1)
    reasons = verdict_on(content, limits=Limits(max_page_bytes=1 << 20)).reasons
    assert (Code.PARQUET_PAGE_TOO_LARGE, chunk.data_page_offset) == (reasons[0].code, reasons[0].byte_offset)
    assert "write smaller row groups" in reasons[0].message


@pytest.mark.parametrize("use_dictionary", [True, False])
def test_value_too_large(use_dictionary: bool) -> None:  # noqa: FBT001
    """A page is read in pieces, but a value must be held: one above the limit is rejected."""
    content = written(table(image=[bytes([i]) * 30_000 for i in range(ROWS)]), use_dictionary=use_dictionary)
    reasons = verdict_on(content, limits=Limits(max_page_bytes=20_000)).reasons
    assert {Code.PARQUET_PAGE_TOO_LARGE} == {reason.code for reason in reasons}
    assert "values and levels of at most 20000 bytes" in reasons[0].message


def test_levels_too_large() -> None:
    """A page of version 2 that claims gigabytes of levels is rejected before they are read."""
    content = written(table(), data_page_version="2.0", use_dictionary=False, write_page_checksum=False)
    file = BlockFile(BytesSource(content, NAME))
    chunk = list(column_chunks(read_footer(file, len(content), Limits()), 0, 0))[1]
    page = replace(next(walk_pages(file, chunk, Limits())), level_bytes=(0, 1 << 30))
    with pytest.raises(FaultError, match="values and levels of at most 1000 bytes"):
        list(PageDecoder(file, chunk, 1000).values(page))


@pytest.mark.parametrize("damage", [10, 2000, -10])
@pytest.mark.parametrize("compression", ["none", "snappy", "gzip", "zstd", "brotli"])
@pytest.mark.parametrize("use_dictionary", [True, False])
@pytest.mark.parametrize("has_crc", [True, False])
def test_damaged_large_page(compression: str, damage: int, *, use_dictionary: bool, has_crc: bool) -> None:
    """Damage in pages that are read in pieces has the same codes, and their checksum is compared first."""
    content = written(
        table().drop_columns(["label"]),
        row_group_size=ROWS,
        compression=compression,
        use_dictionary=use_dictionary,
        write_page_checksum=has_crc,
    )
    page = first_page(content, 0)
    start = page.body_offset + damage % page.compressed_bytes
    broken = content[:start] + bytes(b ^ 0xFF for b in content[start : start + 9]) + content[start + 9 :]
    held, streamed = (verdict_on(broken, limits=limits) for limits in (Limits(), Limits(max_page_bytes=5000)))
    codes = {reason.code for reason in streamed.reasons}
    assert bool(held.reasons) == bool(codes)
    assert codes <= ({Code.PARQUET_PAGE_CRC} if has_crc else {Code.PARQUET_PAGE_CORRUPT, Code.PARQUET_PAGE_TOO_LARGE})
    assert codes or not has_crc


@pytest.mark.parametrize("plaintext_footer", [True, False])
def test_encrypted(plaintext_footer: bool, tmp_path: Any) -> None:  # noqa: FBT001
    """A file that pyarrow encrypted is rejected as encrypted, with an encrypted or a plain footer."""
    encryption = pytest.importorskip("pyarrow.parquet.encryption")

    class Kms(encryption.KmsClient):  # type: ignore[misc, name-defined]
        """Stores keys in plain text."""

        def __init__(self, _: object) -> None:
            super().__init__()

        def wrap_key(self, key_bytes: bytes, _: str) -> bytes:
            return key_bytes.hex().encode()

        def unwrap_key(self, wrapped_key: bytes, _: str) -> bytes:
            return bytes.fromhex(wrapped_key.decode())

    factory = encryption.CryptoFactory(Kms)
    properties = factory.file_encryption_properties(
        encryption.KmsConnectionConfig(),
        encryption.EncryptionConfiguration(
            footer_key="key", column_keys={"key": ["label"]}, plaintext_footer=plaintext_footer
        ),
    )
    with pq.ParquetWriter(tmp_path / NAME, table().schema, encryption_properties=properties) as writer:
        writer.write_table(table())
    assert Code.PARQUET_ENCRYPTED == only_reason(verdict_on((tmp_path / NAME).read_bytes())).code


@pytest.mark.parametrize(
    ("limits", "code"),
    [
        (Limits(max_columns=1), Code.PARQUET_TOO_COMPLEX),
        (Limits(max_row_groups=2), Code.PARQUET_TOO_COMPLEX),
        (Limits(max_footer_bytes=100), Code.PARQUET_FOOTER_LENGTH),
    ],
)
def test_limits(limits: Limits, code: Code) -> None:
    """Columns, row groups and the footer are bounded."""
    assert code == only_reason(verdict_on(SOUND, limits=limits)).code


def test_nested_values_are_bounded() -> None:
    """Lists of more values in a row group than the limit are rejected before they are decoded."""
    content = written(table(boxes=[[1.0] * 100] * ROWS))
    codes = {r.code for r in verdict_on(content, limits=Limits(max_nested_values=1000)).reasons}
    assert {Code.PARQUET_TOO_COMPLEX} == codes


def test_pages_of_a_column_chunk_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A column chunk of more pages than the limit is rejected, because the validator keeps a place for each."""
    monkeypatch.setattr("shard_validation.parquet.pages.MAX_PAGES", 3)
    content = written(
        pa.table({"name": ["a", "b", "c", "d"]}), use_dictionary=False, write_batch_size=1, data_page_size=1
    )
    reason = only_reason(verdict_on(content))
    assert (Code.PARQUET_TOO_COMPLEX, "name") == (reason.code, reason.feature)
