"""What `landfall doctor` looks at: one check for each thing that a deployment needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from shared.errors import LandfallError

ONE_ITEM = "one item"
"""Subject of the check that sends telemetry. Whether it arrives is looked at by the command line, too."""


class CheckState(StrEnum):
    """What a check found."""

    OK = "ok"
    WRONG = "wrong"
    UNKNOWN = "unknown"
    """It could not be looked at."""
    ABSENT = "absent"
    """This deployment has no such thing, as the local twin has no quota."""


class AbsentHereError(LandfallError):
    """A deployment of this kind does not have what a check would look at; the message says why."""


@dataclass(frozen=True, kw_only=True)
class Check:
    """One thing that was looked at."""

    part: str
    """``storage``, ``queues`` and so on."""
    subject: str
    state: CheckState
    says: str
    """What was seen, or what is wrong."""
    fix: str = ""
    """The command that fixes what is wrong."""


@dataclass(frozen=True, kw_only=True)
class Probe:
    """A check that can be made."""

    part: str
    subject: str
    look: Callable[[], str]
    """Returns what was seen. Raises LandfallError with what is wrong, AbsentHereError."""
    fix: str = "azd provision"
    """The command that fixes it in Azure. The templates state nearly everything, roles included."""
