"""Checks of `landfall doctor`: one for each thing that a deployment needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from shared.errors import LandfallError

ONE_ITEM = "one item"
"""Subject of the check that sends telemetry. The command line also checks whether the telemetry arrives."""


class CheckState(StrEnum):
    """The result of a check."""

    OK = "ok"
    WRONG = "wrong"
    UNKNOWN = "unknown"
    """The check could not be made."""
    ABSENT = "absent"
    """The deployment does not have the thing to check: the local twin has no quota."""


class AbsentHereError(LandfallError):
    """Deployments of this kind do not have the thing to check; the message says why."""


@dataclass(frozen=True, kw_only=True)
class Check:
    """One check that was made, with its result."""

    part: str
    """``storage``, ``queues`` and so on."""
    subject: str
    state: CheckState
    says: str
    """The observation, or the problem."""
    fix: str = ""
    """The command that fixes the problem."""


@dataclass(frozen=True, kw_only=True)
class Probe:
    """A check that can be made."""

    part: str
    subject: str
    look: Callable[[], str]
    """Returns the observation. Raises LandfallError with the problem, or AbsentHereError."""
    fix: str = "azd provision"
    """The command that fixes the problem in Azure. The templates state nearly everything, including roles."""
