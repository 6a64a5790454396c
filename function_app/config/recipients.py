"""Whom a pipeline notifies, of what, and when: the entries of ``notify`` in a pipeline file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Self
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, BeforeValidator, model_validator

from function_app.config.fields import Section, matching
from function_app.domain.outcomes import BY_DEFAULT, GROUPS, OUTCOMES, outcomes_in

TOPIC, WEBHOOK, APPRISE = "topic", "webhook", "apprise"
FORMS = "topic, or webhook: or apprise: and the app setting that contains the address"
DEFAULT_OUTCOMES = (BY_DEFAULT,)
_SATURDAY = 5


def _zone(name: str) -> str:
    """Check the name of a time zone, without opening any other file."""
    wrong = "must be a time zone of the IANA database, such as Europe/Berlin or UTC"
    if not re.fullmatch(r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+){0,2}", name):
        raise ValueError(wrong)
    try:
        ZoneInfo(name)
    except (ValueError, OSError) as error:
        raise ValueError(wrong) from error
    return name


def _time_of_day(value: object) -> object:
    """Check a time of day. A number is not one: nothing says whether 700 is 07:00."""
    if not isinstance(value, str) or not re.fullmatch(r"([01][0-9]|2[0-3]):[0-5][0-9]", value, re.ASCII):
        raise ValueError('must be a time from "00:00" to "23:59", in quotes')
    return value


def _outcome(name: str) -> str:
    if name not in OUTCOMES and name not in GROUPS:
        raise ValueError(f"must be one of {', '.join([*GROUPS, *OUTCOMES])}")
    return name


Setting = Annotated[str, matching(r"[A-Z][A-Z0-9_]{0,127}", "the name of an app setting, such as LANDFALL_TEAM")]
TimeOfDay = Annotated[str, BeforeValidator(_time_of_day)]
OutcomeName = Annotated[str, AfterValidator(_outcome)]


class QuietHours(Section):
    """When a recipient gets only urgent notifications; the rest is sent afterwards as one summary."""

    begin: TimeOfDay
    """Beginning of the quiet hours, such as `"20:00"`."""
    end: TimeOfDay
    """Their end, such as `"07:00"`; if it is earlier than the beginning, on the next day."""
    zone: Annotated[str, AfterValidator(_zone)]
    """Time zone of both, such as `Europe/Berlin`."""
    weekends: bool = False
    """Whether Saturday and Sunday are also quiet all day."""
    urgent: tuple[OutcomeName, ...] = ("urgent",)
    """Outcomes that are sent during quiet hours: names or groups."""

    @model_validator(mode="after")
    def _has_a_length(self) -> Self:
        if self.begin == self.end:
            raise ValueError("begin and end must differ")
        return self

    def until(self, now: datetime) -> datetime | None:
        """Return when the quiet hours end, in UTC; None if it is not quiet now."""
        if not self._is_quiet(now):
            return None
        moment = now.astimezone(UTC).replace(second=0, microsecond=0)
        while self._is_quiet(moment):  # minute by minute, because a clock that is changed repeats or skips times
            moment += timedelta(minutes=1)
        return moment

    def _is_quiet(self, now: datetime) -> bool:
        local = now.astimezone(ZoneInfo(self.zone))
        clock = f"{local:%H:%M}"
        if self.weekends and local.weekday() >= _SATURDAY:
            return True
        if self.begin < self.end:
            return self.begin <= clock < self.end
        return clock >= self.begin or clock < self.end


class Recipient(Section):
    """Who is notified of which outcomes; exactly one of `topic`, `webhook` and `apprise`."""

    topic: bool = False
    """The Event Grid topic of this deployment, for programs: docs/subscribe.md."""
    webhook: Setting | None = None
    """App setting with the URL to which CloudEvents are posted."""
    apprise: Setting | None = None
    """App setting with an Apprise URL: e-mail, Teams, Slack, SMS and others."""
    outcomes: tuple[OutcomeName, ...] = DEFAULT_OUTCOMES
    """What the recipient is notified of: outcomes, or groups such as `default`, `everything`, `ends`, `problems` and
    `progress`. See docs/subscribe.md."""
    quiet_hours: QuietHours | None = None
    """Times at which only urgent outcomes are sent. Null: none."""

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if self.topic + (self.webhook is not None) + (self.apprise is not None) != 1:
            raise ValueError(f"must be {FORMS}")
        if self.topic and self.quiet_hours is not None:
            raise ValueError("quiet_hours would have no effect on topic, which programs read")
        return self

    @property
    def name(self) -> str:
        """How the ledger names the recipient: ``topic``, ``webhook:SETTING`` or ``apprise:SETTING``."""
        if self.topic:
            return TOPIC
        return f"{WEBHOOK}:{self.webhook}" if self.webhook is not None else f"{APPRISE}:{self.apprise}"

    def wants(self, outcome: str) -> bool:
        """Whether the recipient gets an outcome; an outcome without a group belongs to the default."""
        return outcome in outcomes_in(self.outcomes) or (outcome not in OUTCOMES and BY_DEFAULT in self.outcomes)

    def held_until(self, outcome: str, now: datetime) -> datetime | None:
        """Return when a notification may be sent that must wait for the end of quiet hours; None: now."""
        if self.quiet_hours is None or outcome in outcomes_in(self.quiet_hours.urgent):
            return None
        return self.quiet_hours.until(now)


def _written(entry: Any) -> Any:
    """Return the section that a text stands for: ``topic``, ``webhook:SETTING``, ``apprise:SETTING``."""
    if not isinstance(entry, str):
        return entry if isinstance(entry, Mapping | Recipient) else {}
    kind, _, setting = entry.partition(":")
    if entry == TOPIC:
        return {TOPIC: True}
    return {kind: setting} if kind in (WEBHOOK, APPRISE) else {}


RecipientField = Annotated[Recipient, BeforeValidator(_written)]
