"""Shards for tests, with errors at known positions, and the files that other tools write beside shards."""

from __future__ import annotations

import io
import json
import os
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from PIL import Image

from shard_validation import DataRequirements, Reason, ReasonCode, ShardVerdict, validate_shard
from shard_validation.file_lists import INFOS_FILE, README_FILE
from shared.manifest import FeatureSpec
from shared.record_framing import frame_record
from tests.support.example_bytes import example_bytes

NAME = "train-00000-of-00001.tfrecord"
SMALL_STRETCH_BYTES = 100
"""So small that even a few records are read in many stretches."""
LABEL = FeatureSpec(name="label", kind="int64", minimum=0, maximum=9)


@dataclass
class BytesSource:
    """A ShardSource over bytes in memory; with small chunks, records span several of them."""

    content: bytes
    name: str = NAME
    chunk_bytes: int = 1 << 20

    @property
    def size_bytes(self) -> int:
        """The length of the content."""
        return len(self.content)

    def read(self, offset: int, length: int) -> bytes:
        """See ShardSource."""
        return self.content[offset : offset + length]


@dataclass
class FileBytesSource(BytesSource):
    """A FileSource over a file with these bytes: native.py checks its valid records."""

    def __post_init__(self) -> None:
        """Write the file, which is deleted with this object."""
        self._file = TemporaryFile(buffering=0)  # noqa: SIM115 - closed with the source
        weakref.finalize(self, self._file.close)
        self._file.write(self.content)

    def fileno(self) -> int:
        """See FileSource."""
        return self._file.fileno()

    def check_unchanged(self) -> None:
        """See FileSource: no other process has the file."""


def labelled(label: int = 0, **features: bytes | float | Sequence[float]) -> bytes:
    """Return an example with a label and further features."""
    return example_bytes({"label": label, **features})


def framed(payloads: Sequence[bytes]) -> bytes:
    """Return a TFRecord shard of these payloads."""
    return b"".join(map(frame_record, payloads))


def verdict_on(
    content: bytes, *features: FeatureSpec, name: str = NAME, chunk_bytes: int = 1 << 20, **requirements: object
) -> ShardVerdict:
    """Validate bytes against features, from memory and from a file. Raises ValueError if the verdicts differ.

    Those on compressed shards may: how far a bomb is inflated depends on the chunks.
    """
    required = DataRequirements(features=features, **requirements)  # type: ignore[arg-type]
    verdict = validate_shard(BytesSource(content, name, chunk_bytes), required)
    of_file = validate_shard(FileBytesSource(content, name, min(chunk_bytes, SMALL_STRETCH_BYTES)), required)
    if of_file != verdict and not verdict.compression:
        raise ValueError(f"the verdict on a file differs: {of_file} instead of {verdict}")
    return verdict


def only_reason(verdict: ShardVerdict) -> Reason:
    """Return the only reason of a rejection. Raises ValueError if there is not exactly one."""
    if verdict.accepted or len(verdict.reasons) != 1:
        raise ValueError(f"expected one reason, got {verdict.reasons}")
    return verdict.reasons[0]


def place(verdict: ShardVerdict) -> tuple[ReasonCode, int | None, int | None]:
    """Return the code, record index and byte offset of the only reason of a rejection."""
    reason = only_reason(verdict)
    return reason.code, reason.record_index, reason.byte_offset


def image_bytes(image_format: str, size: tuple[int, int] = (16, 12), mode: str = "RGB", **options: object) -> bytes:
    """Return an encoded image (width, height) of a gradient, large enough to have data after the header."""
    buffer = io.BytesIO()
    Image.linear_gradient("L").resize(size).convert(mode).save(buffer, format=image_format, **options)
    return buffer.getvalue()


def clean_log(folder: Path) -> None:
    """Write a checkpoint of a Delta table and delete its older commits, as if their retention had passed."""
    from deltalake import DeltaTable

    DeltaTable(folder).create_checkpoint()
    for path in (folder / "_delta_log").iterdir():
        os.utime(path, (0, 0))
    DeltaTable(folder).cleanup_metadata()


def hub_info(totals: Mapping[str, int]) -> Any:
    """Return the `datasets` library's metadata of a dataset whose splits have these numbers of records."""
    from datasets import DatasetInfo
    from datasets.splits import SplitDict, SplitInfo

    known = DatasetInfo(download_size=4711, dataset_size=99)
    known.splits = SplitDict({
        split: SplitInfo(split, num_bytes=77, num_examples=number, dataset_name="signs")
        for split, number in totals.items()
    })  # fmt: skip
    return known


def write_card(folder: Path, totals: Mapping[str, int]) -> None:
    """Write the dataset card of shards in data/, as push_to_hub does."""
    from datasets.info import DatasetCard, DatasetCardData, DatasetInfosDict
    from datasets.utils.metadata import MetadataConfigs

    card = DatasetCardData()
    files = [{"split": split, "path": f"data/{split}-*"} for split in totals]
    MetadataConfigs({"default": {"data_files": files}}).to_dataset_card_data(card)
    DatasetInfosDict({"default": hub_info(totals)}).to_dataset_card_data(card)
    DatasetCard(f"---\n{card}\n---\n# Signs\n").save(folder / README_FILE)


def write_infos(folder: Path, totals: Mapping[str, int]) -> None:
    """Write the metadata file that older versions of the library wrote instead of the card."""
    (folder / INFOS_FILE).write_text(json.dumps({"default": asdict(hub_info(totals))}), encoding="utf-8")
