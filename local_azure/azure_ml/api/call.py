"""Calls and answers of the handlers, and the check of request bodies by their schemas."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

from local_azure.azure_ml.service import ServiceError, iso, utcnow

PROVIDER = "Microsoft.MachineLearningServices"

_DIRECTORY = Path(__file__).parent / "schemas"


@dataclass(frozen=True, kw_only=True)
class Call:
    """One request. `path` is the client's path, decoded; `parts` are the route's named parts."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: Any
    parts: Mapping[str, str]
    base_url: str

    @property
    def workspace_id(self) -> str:
        """ARM id of the workspace in the path."""
        return self.parts["workspace_id"]

    def number(self, name: str, default: int) -> int:
        """Return a query parameter as a number of 0 or more. Raises ServiceError 400 if it is not."""
        text = self.query.get(name, str(default))
        if not (text.isascii() and text.isdigit()):
            raise ServiceError(400, "UserError", f"Query parameter {name} must be a number, 0 or more, not {text!r}.")
        return int(text)

    def document(self) -> dict[str, Any]:
        """Return the body as a JSON object. Raises ServiceError 400 if it is not."""
        if not isinstance(self.body, dict):
            raise ServiceError(400, "UserError", "The request body must be a JSON object.")
        return self.body


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One response: `body` as JSON, or `text` or `content` unchanged."""

    status: int = 200
    body: Any = None
    text: str | None = None
    content: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


def system_data() -> dict[str, str]:
    """Return the creator and time of creation of a resource, as ARM adds them."""
    now = iso(utcnow())
    return {"createdAt": now, "createdBy": "twin", "createdByType": "Application", "lastModifiedAt": now}


def not_found(message: str) -> ServiceError:
    """Return the service's 404."""
    return ServiceError(404, "UserError", message, inner=("NotFound",))


def check_body(resource: str, body: Any) -> None:
    """Raise ServiceError 400 with every violation of the resource's schema."""
    found = violations(resource, body)
    if found:
        raise ServiceError(400, "UserError", f"The request is invalid. {' '.join(found)}", inner=("BadArgument",))


def violations(resource: str, body: Any) -> list[str]:
    """Return one sentence for each violation of the schema, in a stable order."""
    return sorted(sentence for error in _validator(resource).iter_errors(body) for sentence in _sentences(error))


@cache
def _validator(resource: str) -> Draft202012Validator:
    return Draft202012Validator(json.loads((_DIRECTORY / f"{resource}.json").read_text()))


def _sentences(error: ValidationError) -> Iterable[str]:
    path = ".".join(map(str, error.absolute_path))
    if error.validator != "additionalProperties":
        yield f"{error.message[:300]}. Path '{path}'."
        return
    instance: Mapping[str, Any] = error.instance  # type: ignore[assignment] # this rule applies to objects only
    schema: Mapping[str, Any] = error.schema  # type: ignore[assignment]
    for member in sorted(instance.keys() - schema.get("properties", {}).keys()):
        where = f"{path}.{member}".lstrip(".")
        yield f"Could not find member '{member}' on object of type '{schema.get('title')}'. Path '{where}'."
