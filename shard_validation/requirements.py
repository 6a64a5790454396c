"""What a pipeline requires of the data: everything that validation is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, Self, cast, get_args

from shard_validation.limits import Limits
from shared.example_schema import FeatureSpec, SchemaError
from shared.shard_names import DataFormat

DecodePolicy = Literal["header", "sample", "all"]
"""Of image bytes: header and dimensions always; the data of some, or of all."""
CountsPolicy = Literal["if_stated", "required", "ignore"]
"""Whether record counts must be stated in ``dataset.json`` or ``dataset_info.json``, and hold."""
DriftAction = Literal["ignore", "warn", "block"]


@dataclass(frozen=True, kw_only=True)
class ImagePolicy:
    """How closely to look at image bytes."""

    decode: DecodePolicy = "sample"
    sample_every: int = 100
    """With ``sample``: record 0 of each shard, and every so-many-th after it."""

    def __post_init__(self) -> None:
        """Raise SchemaError naming the field."""
        _one_of("images.decode", self.decode, get_args(DecodePolicy))
        if self.sample_every < 1:
            raise SchemaError(f"images.sample_every should be at least 1, was {self.sample_every}")


@dataclass(frozen=True, kw_only=True)
class DriftPolicy:
    """How far a version may differ from the one that the current model was trained on."""

    action: DriftAction = "warn"
    max_label_distance: float = 0.1
    """Total variation distance of the label histograms: the share of records whose label would have to change."""
    max_count_change: float = 0.5
    """Relative change of the number of records of a split."""

    def __post_init__(self) -> None:
        """Raise SchemaError naming the field."""
        _one_of("drift.action", self.action, get_args(DriftAction))
        for name in ("max_label_distance", "max_count_change"):
            if not getattr(self, name) >= 0:
                raise SchemaError(f"drift.{name} should not be negative, was {getattr(self, name)!r}")


@dataclass(frozen=True, kw_only=True)
class DataRequirements:
    """The ``data`` section of a pipeline."""

    data_format: DataFormat | None = None
    """None: either."""
    features: tuple[FeatureSpec, ...] = ()
    """None stated: integrity only."""
    splits: tuple[str, ...] = ()
    """That a version must have to be whole."""
    label_feature: str | None = None
    """Whose histogram drift is measured on; None: the first int64 feature without a shape."""
    images: ImagePolicy = field(default_factory=ImagePolicy)
    limits: Limits = field(default_factory=Limits)
    counts: CountsPolicy = "if_stated"
    small_shard_ratio: float = 0.1
    """A shard with fewer records than this share of its split's median is refused; 0 allows any."""
    drift: DriftPolicy = field(default_factory=DriftPolicy)

    def __post_init__(self) -> None:
        """Raise SchemaError naming the field."""
        _one_of("data_format", self.data_format, (None, *get_args(DataFormat)))
        _one_of("counts", self.counts, get_args(CountsPolicy))
        names = [f.name for f in self.features]
        if len(set(names)) != len(names):
            raise SchemaError(f"features should have a name each of their own, were {sorted(names)}")
        if self.label_feature is not None and names and self.label_feature not in names:
            raise SchemaError(f"label_feature should be one of {sorted(names)}, was {self.label_feature!r}")
        if not 0 <= self.small_shard_ratio <= 1:
            raise SchemaError(f"small_shard_ratio should be 0 to 1, was {self.small_shard_ratio!r}")

    @property
    def label(self) -> str | None:
        """The feature whose values are the labels; None where there is none."""
        if self.label_feature is not None:
            return self.label_feature
        return next((f.name for f in self.features if f.kind == "int64" and not f.shape), None)

    def to_json(self) -> dict[str, Any]:
        """Return JSON-ready members."""
        return {**asdict(self), "features": [f.to_json() for f in self.features], "splits": list(self.splits)}

    @classmethod
    def from_json(cls, members: Mapping[str, Any]) -> Self:
        """Read a pipeline's members, or what `to_json` wrote. Raises SchemaError naming what is unknown or wrong."""
        values = _known(cls, "data", members)
        if "features" in values:
            values["features"] = tuple(FeatureSpec.from_json(f) for f in values["features"])
        if "splits" in values:
            values["splits"] = tuple(values["splits"])
        for name, section in (("images", ImagePolicy), ("limits", Limits), ("drift", DriftPolicy)):
            if name in values:
                values[name] = section(**_known(section, name, values[name]))
        return cls(**values)


def _known(section: type, name: str, members: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(members, Mapping):
        raise SchemaError(f"{name} should be a mapping, was {members!r}")
    known = {f.name for f in fields(section)}
    if unknown := sorted(set(members) - known):
        raise SchemaError(f"{name}: unknown members {unknown}; known are {sorted(known)}")
    return dict(members)


def _one_of(field_name: str, value: object, choices: tuple[object, ...]) -> None:
    if value not in choices:
        raise SchemaError(f"{field_name} should be one of {choices}, was {cast('Any', value)!r}")
