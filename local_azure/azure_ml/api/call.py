"""A call as handlers see it, and the answer that they give: nothing of HTTP's machinery."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from local_azure.azure_ml.clock import iso, utcnow
from local_azure.azure_ml.errors import ServiceError

PROVIDER = "Microsoft.MachineLearningServices"


@dataclass(frozen=True, kw_only=True)
class Call:
    """One request. `path` is decoded, as the client wrote it; `parts` are the route's named pieces."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: Any
    parts: Mapping[str, str]
    base_url: str

    @property
    def workspace_id(self) -> str:
        """ARM id of the workspace that the path names."""
        return self.parts["workspace_id"]

    def number(self, name: str, default: int) -> int:
        """A query parameter that counts something; ServiceError 400 where it is no number or negative."""
        text = self.query.get(name, str(default))
        if not (text.isascii() and text.isdigit()):
            raise ServiceError(400, "UserError", f"Query parameter {name} must be a number, 0 or more, not {text!r}.")
        return int(text)

    def document(self) -> dict[str, Any]:
        """The body as a JSON object; ServiceError 400 where it is none."""
        if not isinstance(self.body, dict):
            raise ServiceError(400, "UserError", "The request body must be a JSON object.")
        return self.body


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One response: JSON of `body`, or `text` as it is."""

    status: int = 200
    body: Any = None
    text: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


def system_data() -> dict[str, str]:
    """Who made a resource and when, as ARM adds it."""
    now = iso(utcnow())
    return {"createdAt": now, "createdBy": "twin", "createdByType": "Application", "lastModifiedAt": now}


def not_found(message: str) -> ServiceError:
    """The service's 404."""
    return ServiceError(404, "UserError", message, inner=("NotFound",))
