"""The manifest, written at the closing: a dataset version's shards and the features of its examples."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, cast, get_args

from shared.safe_text import shown
from shared.shard_names import SPLIT_KEY, DataFormat, split_in_name

FORMAT_VERSION = 1
SYNTHETIC: Literal["synthetic"] = "synthetic"
"""The format of synthetic data, which have no shards because the training generates the records."""
Format = Literal[DataFormat, "synthetic"]
MAX_MANIFEST_BYTES = 64 << 20
"""Maximum size: three times the size of 100,000 shards with about 200 bytes each."""


class ManifestError(ValueError):
    """A manifest cannot be read; the message names the member and the problem."""


@dataclass(frozen=True, kw_only=True, order=True)
class ManifestShard:
    """One accepted shard."""

    split: str
    index: int
    num_shards: int
    name: str
    size_bytes: int
    crc32c: str
    """CRC32C of the whole content, eight lower-case hexadecimal digits."""
    num_records: int


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """A closed dataset version, as the training reads it."""

    dataset: str
    version: str
    generation: int
    fingerprint: str
    data_format: Format
    features: tuple[FeatureSpec, ...]
    shards: tuple[ManifestShard, ...]
    """Sorted by split and index."""
    statistics: Mapping[str, Any] = field(default_factory=dict)
    """Counts, label histograms and value ranges from validation, for people; the training does not need them."""

    def split(self, name: str) -> tuple[ManifestShard, ...]:
        """Return the shards of one split in the order of their index; empty if there is no such split."""
        return tuple(s for s in self.shards if s.split == name)

    def num_records(self, split: str) -> int:
        """Return the number of records in one split."""
        return sum(s.num_records for s in self.split(split))

    def to_json(self) -> str:
        """Return the manifest as JSON text, the same text for the same manifest."""
        members = {
            "format_version": FORMAT_VERSION,
            "dataset": self.dataset,
            "version": self.version,
            "generation": self.generation,
            "fingerprint": self.fingerprint,
            "data_format": self.data_format,
            "features": [f.to_json() for f in self.features],
            "shards": [vars(s) for s in self.shards],
            "statistics": self.statistics,
        }
        return json.dumps(members, indent=1, sort_keys=True)

    @classmethod
    def from_json(cls, text: str | bytes) -> Manifest:
        """Read and check a manifest. Raises ManifestError, also if the fingerprint does not match the shards."""
        if len(text) > MAX_MANIFEST_BYTES:
            raise ManifestError(f"manifest: {len(text)} bytes are too many, the limit is {MAX_MANIFEST_BYTES}")
        try:
            members = json.loads(text)
            manifest = _from_members(members)
        except (ValueError, KeyError, TypeError, AttributeError, SchemaError) as error:
            raise ManifestError(f"not a manifest of format version {FORMAT_VERSION}: {shown(repr(error))}") from error
        expected = fingerprint(manifest.shards)
        if manifest.fingerprint != expected:
            raise ManifestError(
                f"manifest of {manifest.dataset}/{manifest.version}: fingerprint of its shards: expected {expected}, "
                f"got {manifest.fingerprint}"
            )
        return manifest


def _from_members(members: Mapping[str, Any]) -> Manifest:
    if members["format_version"] != FORMAT_VERSION:
        raise ValueError(f"format_version: expected {FORMAT_VERSION}, got {members['format_version']!r}")
    return Manifest(
        dataset=members["dataset"],
        version=members["version"],
        generation=members["generation"],
        fingerprint=members["fingerprint"],
        data_format=members["data_format"],
        features=tuple(FeatureSpec.from_json(f) for f in members["features"]),
        shards=tuple(sorted(ManifestShard(**s) for s in members["shards"])),
        statistics=members["statistics"],
    )


def fingerprint(shards: Iterable[ManifestShard]) -> str:
    """Return the SHA-256 over the sorted (name, size, CRC32C) of the shards: the identity of the training data.

    The split of a shard is included if the name does not state it, because a list or a pipeline may change it.
    """
    digest = hashlib.sha256()
    for name, size_bytes, crc, split in sorted((s.name, s.size_bytes, s.crc32c, _unnamed_split(s)) for s in shards):
        digest.update(f"{name}\t{size_bytes}\t{crc}{split}\n".encode())
    return digest.hexdigest()


def _unnamed_split(shard: ManifestShard) -> str:
    folders = shard.name.split("/")[:-1]
    is_named = {shard.split, f"{SPLIT_KEY}{shard.split}"}.intersection(folders) or shard.split == split_in_name(
        shard.name
    )
    return "" if is_named else f"\t{shard.split}"


FeatureKind = Literal["int64", "float", "bytes"]
Encoding = Literal["jpeg", "png", "image", "raw", "text"]
"""Content of a ``bytes`` feature: ``image`` is JPEG or PNG, ``raw`` are the bytes of a tensor."""
RawDtype = Literal["uint8", "int32", "int64", "float32"]


class SchemaError(ValueError):
    """A feature's description is inconsistent; the message names the feature and the field."""


@dataclass(frozen=True, kw_only=True)
class FeatureSpec:
    """One feature of ``tf.train.Example``, or one column of a Parquet shard."""

    name: str
    kind: FeatureKind
    shape: tuple[int | None, ...] = ()
    """Shape of the value, or of the decoded image (height, width, channels). None stands for any size."""
    required: bool = True
    encoding: Encoding | None = None
    dtype: RawDtype | None = None
    """Element type of ``raw`` bytes."""
    minimum: float | None = None
    maximum: float | None = None
    allowed: tuple[int | float | str, ...] = ()
    """Allowed values; empty allows any value."""

    def __post_init__(self) -> None:
        """Reject inconsistent descriptions. Raises SchemaError."""
        _check_choices(self)
        if self.encoding is not None and self.kind != "bytes":
            raise SchemaError(f"feature {self.name}: encoding belongs to kind bytes, not to kind {self.kind}")
        if (self.dtype is not None) != (self.encoding == "raw"):
            raise SchemaError(f"feature {self.name}: dtype is required with encoding raw, and only allowed with it")
        if any(d is not None and d < 0 for d in self.shape):
            raise SchemaError(f"feature {self.name}: shape {self.shape} has a negative size")

    def to_json(self) -> dict[str, Any]:
        """Return JSON-ready members, without empty ones."""
        members = {k: v for k, v in asdict(self).items() if v is not None and v != ()}
        return {**members, "shape": list(self.shape), "required": self.required}

    @classmethod
    def from_json(cls, members: Mapping[str, Any]) -> FeatureSpec:
        """Read the output of `to_json`. Raises SchemaError naming the member that is unknown or wrong."""
        unknown = set(members) - set(cls.__dataclass_fields__)
        if unknown:
            raise SchemaError(f"feature {members.get('name')}: unknown members {sorted(unknown)}")
        values = dict(members)
        for key in ("shape", "allowed"):
            values[key] = tuple(cast("list[Any]", values.get(key) or ()))
        return cls(**values)


def _check_choices(spec: FeatureSpec) -> None:
    for member, value, choices in (
        ("kind", spec.kind, get_args(FeatureKind)),
        ("encoding", spec.encoding, (None, *get_args(Encoding))),
        ("dtype", spec.dtype, (None, *get_args(RawDtype))),
    ):
        if value not in choices:
            raise SchemaError(f"feature {spec.name}: {member} {value!r} is not one of {choices}")
