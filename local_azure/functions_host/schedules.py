"""NCRONTAB schedules, as timer triggers write them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from croniter import croniter

from local_azure.functions_host.errors import BindingError


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """``{second} {minute} {hour} {day} {month} {day of week}`` in UTC."""

    expression: str
    """Always with six fields."""

    def next_after(self, moment: datetime) -> datetime:
        """The first occurrence later than ``moment``, which must be aware."""
        # NCRONTAB wants day and day of week both to hold; cron, either of them.
        times = croniter(self.expression, moment, second_at_beginning=True, day_or=False)
        found: datetime = times.get_next(datetime)
        return found


def parse_schedule(text: str, function_name: str) -> Schedule:
    """A schedule from six fields, or five, which have no seconds. Raises BindingError for anything else."""
    fields = text.split()
    expression = " ".join(["0", *fields] if len(fields) == 5 else fields)  # noqa: PLR2004 (no seconds)
    if len(expression.split()) != 6 or not croniter.is_valid(expression, second_at_beginning=True):  # noqa: PLR2004
        raise BindingError(
            f"function {function_name} should have an NCRONTAB schedule of six fields such as '0 */5 * * * *', "
            f"has {text!r}"
        )
    return Schedule(expression=expression)
