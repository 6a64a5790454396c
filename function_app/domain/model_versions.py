"""Versions of registered models: which one is current, and how its promotion is written down."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

CURRENT_TAG = "landfall.current"
"""Tag of the current version: the time of its promotion. Serving takes the version whose time is the latest."""


@dataclass(frozen=True, kw_only=True)
class ModelVersion:
    """One version of a registered model."""

    version: str
    run_id: str
    """The run that trained it."""


@dataclass(frozen=True, kw_only=True)
class CurrentModel(ModelVersion):
    """The current version of a model, as the ledger's mark says: the tags in the registry follow it."""

    promoted_at: str
    """ISO 8601, UTC, to the microsecond, so that times compare as texts."""
    by: str
    """Who promoted it."""
    previous: ModelVersion | None = None
    """The version that was current before it, which loses the tag."""
    is_tagged: bool = False
    """Whether the tags of both versions are as they should be."""

    def to_text(self) -> str:
        """Return the text of the mark."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_text(cls, text: str) -> CurrentModel:
        """Read what `to_text` wrote."""
        members = json.loads(text)
        previous = members.pop("previous")
        return cls(**members, previous=ModelVersion(**previous) if previous else None)


def current_mark(model: str) -> str:
    """Return the name of the ledger's mark of a model's current version."""
    return f"current-models/{model}"
