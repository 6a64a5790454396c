"""The keys of an app, and the keys that a request must have, as in the Functions host.

Source: https://learn.microsoft.com/azure/azure-functions/function-keys-how-to, and AuthUtility.cs of
https://github.com/Azure/azure-functions-host.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from aiohttp import web

from local_azure.functions_host.settings import DevHostError

HEADER, PARAMETER = "x-functions-key", "code"
FORM = '{"masterKey": KEY, "functionKeys": {NAME: KEY}, "functions": {NAME: {NAME: KEY}}}'


class Level(StrEnum):
    """The ``authLevel`` of an HTTP trigger."""

    ANONYMOUS = "anonymous"
    FUNCTION = "function"
    ADMIN = "admin"


@dataclass(frozen=True, kw_only=True)
class Keys:
    """The keys of one app, in the form of `az functionapp keys list`."""

    master: str = field(repr=False)
    host: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Name → key for every function."""
    functions: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)
    """Function in lower case → name → key for only this function."""

    def open_function(self, request: web.Request, function: str, level: str) -> bool:
        """Whether a request may call an HTTP function. The master key is valid for everything."""
        if level.lower() == Level.ANONYMOUS:
            return True
        own = self.functions.get(function.lower(), {})
        accepted = [] if level.lower() == Level.ADMIN else [*self.host.values(), *own.values()]
        return self._has(request, accepted)

    def open_admin(self, request: web.Request) -> bool:
        """Whether a request may call the host's admin endpoints, which require the master key."""
        return self._has(request, [])

    def _has(self, request: web.Request, accepted: Iterable[str]) -> bool:
        """Whether the request has one of the keys. The header takes precedence, also if it is wrong."""
        header = request.headers.get(HEADER)
        sent = (request.query.get(PARAMETER, "") if header is None else header).encode()
        return any(hmac.compare_digest(sent, key.encode()) for key in (self.master, *accepted))


def read_keys(environment: Mapping[str, str], name: str) -> Keys | None:
    """Return the keys in a variable; None without a variable, so that no keys are required, as in `func start`.

    Raises DevHostError, which does not repeat the variable's content.
    """
    if not name:
        return None
    try:
        content = json.loads(environment.get(name, ""))
        return Keys(
            master=_key(content["masterKey"]),
            host=_named(content.get("functionKeys", {})),
            functions={str(one).lower(): _named(keys) for one, keys in content.get("functions", {}).items()},
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        raise DevHostError(f"--keys-env names {name}, which must be set to {FORM}") from None


def _named(keys: Any) -> dict[str, str]:
    return {str(name): _key(key) for name, key in keys.items()}


def _key(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise TypeError("a key is a text")
    return value
