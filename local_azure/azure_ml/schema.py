"""Strict check of request bodies, as the service checks them: a member that it does not know is refused."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

from local_azure.azure_ml.errors import ServiceError

RESOURCES = ("jobs", "computes", "environments", "codes", "models", "datastores")
_DIRECTORY = Path(__file__).parent / "schemas"


def check_body(resource: str, body: Any) -> None:
    """Raise ServiceError 400 with every violation of the resource's schema."""
    found = violations(resource, body)
    if found:
        raise ServiceError(400, "UserError", f"The request is invalid. {' '.join(found)}", inner=("BadArgument",))


def violations(resource: str, body: Any) -> list[str]:
    """One sentence for each violation, in a stable order."""
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
