"""What a pipeline requires of the features of one example; carried to the training inside the manifest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, cast, get_args

FeatureKind = Literal["int64", "float", "bytes"]
Encoding = Literal["jpeg", "png", "image", "raw", "text"]
"""What the bytes of a ``bytes`` feature are; ``image`` is JPEG or PNG, ``raw`` is a tensor's own bytes."""
RawDtype = Literal["uint8", "int32", "int64", "float32"]


class SchemaError(ValueError):
    """A feature's description contradicts itself; the message names the feature and the field."""


@dataclass(frozen=True, kw_only=True)
class FeatureSpec:
    """One feature of ``tf.train.Example``, or one column of a Parquet shard."""

    name: str
    kind: FeatureKind
    shape: tuple[int | None, ...] = ()
    """Of the value; of the decoded image (height, width, channels) where the bytes are an image. None: any."""
    required: bool = True
    encoding: Encoding | None = None
    dtype: RawDtype | None = None
    """Element type of ``raw`` bytes."""
    minimum: float | None = None
    maximum: float | None = None
    allowed: tuple[int | float | str, ...] = ()
    """Empty: any value."""

    def __post_init__(self) -> None:
        """Refuse what contradicts itself, before any shard is judged by it."""
        _check_choices(self)
        if self.encoding is not None and self.kind != "bytes":
            raise SchemaError(f"feature {self.name}: encoding belongs to kind bytes, kind was {self.kind}")
        if (self.dtype is not None) != (self.encoding == "raw"):
            raise SchemaError(f"feature {self.name}: dtype goes with encoding raw, and only with it")
        if any(d is not None and d < 0 for d in self.shape):
            raise SchemaError(f"feature {self.name}: shape should have no negative size, was {self.shape}")

    def to_json(self) -> dict[str, Any]:
        """Return JSON-ready members, without those that say nothing."""
        members = {k: v for k, v in asdict(self).items() if v is not None and v != ()}
        return {**members, "shape": list(self.shape), "required": self.required}

    @classmethod
    def from_json(cls, members: Mapping[str, Any]) -> FeatureSpec:
        """Read what `to_json` wrote. Raises SchemaError naming the member that is unknown or wrong."""
        unknown = set(members) - set(cls.__dataclass_fields__)
        if unknown:
            raise SchemaError(f"feature {members.get('name')}: unknown members {sorted(unknown)}")
        values = dict(members)
        for key in ("shape", "allowed"):
            values[key] = tuple(cast("list[Any]", values.get(key) or ()))
        return cls(**values)


def _check_choices(spec: FeatureSpec) -> None:
    for field, value, choices in (
        ("kind", spec.kind, get_args(FeatureKind)),
        ("encoding", spec.encoding, (None, *get_args(Encoding))),
        ("dtype", spec.dtype, (None, *get_args(RawDtype))),
    ):
        if value not in choices:
            raise SchemaError(f"feature {spec.name}: {field} should be one of {choices}, was {value!r}")
