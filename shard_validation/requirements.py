"""The requirements of a pipeline on its data, and the limits that protect the validator from hostile files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, Self, cast, get_args

from shared.manifest import FeatureSpec, SchemaError
from shared.shard_names import DataFormat

DecodePolicy = Literal["header", "sample", "all"]
"""Which images are decoded; header and dimensions are always checked."""
CountsPolicy = Literal["if_stated", "required", "ignore"]
"""Whether ``dataset.json`` or ``dataset_info.json`` must state record counts, and whether they are compared."""
DriftAction = Literal["ignore", "warn", "block"]


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Upper bounds for everything that is read; the defaults keep a process below 150 MB of resident memory.

    Raising ``max_example_bytes`` or ``max_decoded_image_bytes`` raises that ceiling by about four times as much, and
    so does ``max_page_bytes`` for the process that decodes Parquet, which stays below 250 MB.
    """

    max_shard_bytes: int = 4000 * 50_000 << 20
    """The limit of a block blob: 50,000 blocks of 4,000 MiB."""
    max_record_bytes: int = (2 << 30) - 1
    """The limit of protobuf."""
    max_example_bytes: int = 16 << 20
    """Checking takes about three times as much memory."""
    max_unknown_bytes: int = 64 << 10
    """Per record. Readers skip unknown fields, so a few are accepted."""
    max_parsed_bytes: int = 48 << 20
    """Memory of one parsed example; many tiny values take up to 30 times their encoded size."""
    max_inflated_bytes: int = 1 << 40
    """Uncompressed size of one shard."""
    max_inflation: int = 250
    """Times the compressed size. Deflate reaches 1,032; images and tensors stay below 10."""
    max_image_pixels: int = 1 << 26
    """By the image header: 67 million, which are 200 MB when the training decodes them."""
    max_decoded_image_bytes: int = 64 << 20
    """Memory for decoding one image during validation."""
    max_footer_bytes: int = 4 << 20
    """Size of a Parquet file's footer."""
    max_columns: int = 2_000
    """Columns of a Parquet file."""
    max_row_groups: int = 100_000
    """Row groups of a Parquet file."""
    max_page_bytes: int = 16 << 20
    """Largest page held in memory. Larger pages of byte arrays are read in pieces, each value within this limit."""
    max_nested_values: int = 2_000_000
    """Per nested column and row group."""
    max_reasons: int = 50
    """Per shard; further ones are only counted."""

    def __post_init__(self) -> None:
        """Accept positive integers only. Raises SchemaError naming the field."""
        for limit in fields(self):
            value = getattr(self, limit.name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise SchemaError(f"limits.{limit.name}: {value!r} is not a positive integer")


@dataclass(frozen=True, kw_only=True)
class ImagePolicy:
    """How thoroughly images are checked."""

    decode: DecodePolicy = "sample"
    """Which images are decoded: only headers, a sample, or all."""
    sample_every: int = 100
    """With ``sample``, the records whose index is a multiple of this are decoded."""

    def __post_init__(self) -> None:
        """Raise SchemaError naming the field."""
        _check_choice("images.decode", self.decode, get_args(DecodePolicy))
        if self.sample_every < 1:
            raise SchemaError(f"images.sample_every: {self.sample_every} is below 1")


@dataclass(frozen=True, kw_only=True)
class DriftPolicy:
    """How far a version may differ from the one that the current model was trained on."""

    action: DriftAction = "warn"
    """The effect of drift: nothing, a notification, or a notification and no automatic training."""
    max_label_distance: float = 0.1
    """Total variation distance of the label histograms: the share of records whose label would have to change."""
    max_count_change: float = 0.5
    """Relative change of the number of records of a split."""

    def __post_init__(self) -> None:
        """Raise SchemaError naming the field."""
        _check_choice("drift.action", self.action, get_args(DriftAction))
        for name in ("max_label_distance", "max_count_change"):
            if not getattr(self, name) >= 0:
                raise SchemaError(f"drift.{name}: {getattr(self, name)!r} is negative")


@dataclass(frozen=True, kw_only=True)
class DataRequirements:
    """The ``data`` section of a pipeline."""

    data_format: DataFormat | None = None
    """None accepts either."""
    features: tuple[FeatureSpec, ...] = ()
    """Without any, only the integrity of the shard is checked."""
    splits: tuple[str, ...] = ()
    """Splits that a complete version has."""
    label_feature: str | None = None
    """The feature whose histogram drift compares; None takes the first int64 feature without a shape."""
    images: ImagePolicy = field(default_factory=ImagePolicy)
    limits: Limits = field(default_factory=Limits)
    counts: CountsPolicy = "if_stated"
    small_shard_ratio: float = 0.1
    """A warning lists shards with fewer records than this share of their split's median; 0 turns it off."""
    drift: DriftPolicy = field(default_factory=DriftPolicy)
    digests: tuple[str, ...] = ()
    """Digests of the whole content to compute in addition to its CRC32C: `sha256`, `md5`."""

    def __post_init__(self) -> None:
        """Raise SchemaError naming the field."""
        _check_choice("data_format", self.data_format, (None, *get_args(DataFormat)))
        _check_choice("counts", self.counts, get_args(CountsPolicy))
        names = [f.name for f in self.features]
        if len(set(names)) != len(names):
            raise SchemaError(f"features: a name occurs twice in {sorted(names)}")
        if self.label_feature is not None and names and self.label_feature not in names:
            raise SchemaError(f"label_feature: {self.label_feature!r} is not one of the features {sorted(names)}")
        if not 0 <= self.small_shard_ratio <= 1:
            raise SchemaError(f"small_shard_ratio: {self.small_shard_ratio!r} is not between 0 and 1")

    @property
    def label(self) -> str | None:
        """The feature whose values are the labels, or None."""
        if self.label_feature is not None:
            return self.label_feature
        return next((f.name for f in self.features if f.kind == "int64" and not f.shape), None)

    def to_json(self) -> dict[str, Any]:
        """Return JSON-ready members."""
        members = {**asdict(self), "features": [f.to_json() for f in self.features], "splits": list(self.splits)}
        digests = members.pop(
            "digests"
        )  # without digests, the members are the same as before digests were introduced
        return {**members, "digests": list(digests)} if digests else members

    @classmethod
    def from_json(cls, members: Mapping[str, Any]) -> Self:
        """Read a pipeline's members, or what `to_json` wrote. Raises SchemaError naming what is unknown or wrong."""
        values = _known(cls, "data", members)
        if "features" in values:
            values["features"] = tuple(FeatureSpec.from_json(f) for f in values["features"])
        if "splits" in values:
            values["splits"] = tuple(values["splits"])
        values["digests"] = tuple(values.get("digests", ()))
        for name, section in (("images", ImagePolicy), ("limits", Limits), ("drift", DriftPolicy)):
            if name in values:
                values[name] = section(**_known(section, name, values[name]))
        return cls(**values)


def _known(section: type, name: str, members: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(members, Mapping):
        raise SchemaError(f"{name}: {members!r} is not a mapping")
    known = {f.name for f in fields(section)}
    if unknown := sorted(set(members) - known):
        raise SchemaError(f"{name}: unknown members {unknown}; known are {sorted(known)}")
    return dict(members)


def _check_choice(field_name: str, value: object, choices: tuple[object, ...]) -> None:
    if value not in choices:
        raise SchemaError(f"{field_name}: {cast('Any', value)!r} is not one of {choices}")
