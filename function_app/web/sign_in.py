"""Who requests a page, and in which role: from App Service authentication, or any local user of the twin."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from function_app.config.settings import LOOPBACK, SIGN_IN, SignIn
from shared.errors import LandfallError

PRINCIPAL = "x-ms-client-principal"
"""Header that App Service authentication sets, and removes from client requests: JSON in base64.

Source: learn.microsoft.com/azure/app-service/configure-authentication-user-identities.
"""
MAX_PRINCIPAL_CHARS = 32 << 10
ROLE_CLAIMS = ("roles", "http://schemas.microsoft.com/ws/2008/06/identity/claims/role")
NAME_CLAIMS = ("preferred_username", "name", "http://schemas.xmlsoap.org/ws/2005/05/identity/claims/name")
_PORT = re.compile(r":\d*$")
PAGE = "docs/dashboard.md"


class Role(IntEnum):
    """A person's role; each includes the ones before it. Entra's app roles have the same names in lower case."""

    READER = 1
    SUBMITTER = 2
    ADMIN = 3


@dataclass(frozen=True, kw_only=True)
class Person:
    """The person who requests a page."""

    name: str
    role: Role


class SignInError(LandfallError):
    """A page must not be shown; the message says what to configure."""

    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message)
        self.status = status


def signed_in(headers: Mapping[str, str], sign_in: SignIn) -> Person:
    """Return who sent a request. Raises SignInError if no page may be shown."""
    if sign_in is SignIn.OFF:
        raise SignInError(
            f"the pages are off. Turn on App Service authentication for this app, and then set {SIGN_IN} to "
            f"easy-auth: {PAGE} says how",
            status=503,
        )
    if sign_in is SignIn.NONE:
        return _at_this_machine(headers)
    principal = headers.get(PRINCIPAL)
    if principal is None:
        raise SignInError(
            "you are not signed in. If no sign-in page appears, turn on App Service authentication for this app and "
            f"let it redirect to the sign-in page: {PAGE} says how",
            status=401,
        )
    person = _read(principal)
    if person is None:
        raise SignInError(
            "your account has no role here. Ask an administrator of the app registration to assign you the app role "
            "reader, submitter or admin",
            status=403,
        )
    return person


def _at_this_machine(headers: Mapping[str, str]) -> Person:
    """Return the developer. Other host names are refused, because another site's name may resolve to this machine."""
    if _PORT.sub("", headers.get("host", "")).strip("[]") not in LOOPBACK:
        raise SignInError(
            "without sign-in the pages are only shown at 127.0.0.1 or localhost: open that address", status=403
        )
    return Person(name="you", role=Role.ADMIN)


def _read(principal: str) -> Person | None:
    """Return the person in the header; None if the person has no role or the header cannot be read."""
    try:
        members = json.loads(base64.b64decode(principal[:MAX_PRINCIPAL_CHARS], validate=True))
        claims = [(str(claim["typ"]), str(claim["val"])) for claim in members["claims"]]
        role_types = {*ROLE_CLAIMS, members.get("role_typ")}
        name_types = (*NAME_CLAIMS, members.get("name_typ"))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    roles = [Role[value.upper()] for kind, value in claims if kind in role_types and _is_role(value)]
    names = [value for wanted in name_types for kind, value in claims if kind == wanted]
    return Person(name=next(iter(names), "signed in"), role=max(roles)) if roles else None


def _is_role(value: Any) -> bool:
    return value in {role.name.lower() for role in Role}
