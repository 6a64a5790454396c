"""The features that a pipeline requires of one example; the manifest carries them to the training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, cast, get_args

FeatureKind = Literal["int64", "float", "bytes"]
Encoding = Literal["jpeg", "png", "image", "raw", "text"]
"""Content of a ``bytes`` feature; ``image`` is JPEG or PNG, ``raw`` is the bytes of a tensor."""
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
    """Empty allows any value."""

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
            raise SchemaError(f"feature {spec.name}: {field} {value!r} is not one of {choices}")
