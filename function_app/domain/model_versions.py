"""Versions of registered models: which one is current, and how its promotion is recorded."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

CURRENT_TAG = "landfall.current"
"""Tag of the current version with the time of its promotion. Serving uses the version with the latest time."""


@dataclass(frozen=True, kw_only=True)
class ModelVersion:
    """One version of a registered model."""

    version: str
    run_id: str
    """The run that trained it."""


@dataclass(frozen=True, kw_only=True)
class CurrentModel(ModelVersion):
    """The current version of a model, according to the ledger's mark. The tags in the registry follow it."""

    promoted_at: str
    """ISO 8601, UTC, to the microsecond, so that times compare as texts."""
    by: str
    """Who promoted it."""
    previous: ModelVersion | None = None
    """The previous current version, which loses the tag."""
    is_tagged: bool = False
    """Whether the tags of both versions have been updated."""

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
