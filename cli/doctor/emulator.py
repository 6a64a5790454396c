"""The event subscriptions of the local twin, compared as those of a deployment are."""

from __future__ import annotations

import httpx

from cli.doctor.azure import misfits, shown_on_one_line
from cli.options import running_twin_of_this_clone
from function_app.domain.checks import Check, CheckState
from function_app.explain.doctor import TWIN_FIX
from local_azure.twin.parts import event_subscriptions

TIMEOUT_S = 30.0


def twin_subscriptions(functions_url: str) -> list[Check]:
    """Return the checks of the twin's subscriptions, or one absent check if the twin is not of this clone."""
    twin = running_twin_of_this_clone()
    if twin is None or twin.functions_url != functions_url:
        says = (
            "the twin of this function app runs in another clone: run `landfall doctor` there to check its "
            "subscriptions"
        )
        return [Check(part="events", subject="local twin", state=CheckState.ABSENT, says=says)]
    return subscription_checks(twin.event_grid_url)


def subscription_checks(event_grid_url: str) -> list[Check]:
    """Return the checks of an emulator's subscriptions."""
    try:
        answer = httpx.get(f"{event_grid_url}/subscriptions", timeout=TIMEOUT_S, trust_env=False)
        found = answer.raise_for_status().json()
        checks = []
        for wanted in event_subscriptions():
            of_topic = [one for one in found if one["topic"] == wanted["topic"]]
            problems = list(misfits(wanted, of_topic))
            right = [] if problems else [f"its filters are right, and it writes to {wanted['queue']}"]
            checks += [_check(str(wanted["topic"]), says, is_wrong=bool(problems)) for says in problems + right]
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, LookupError, TypeError, AttributeError) as error:
        return [
            _check("emulator", f"the Event Grid emulator did not list its subscriptions: {error!r}", is_wrong=True)
        ]
    return checks


def _check(topic: str, says: str, *, is_wrong: bool) -> Check:
    state, fix = (CheckState.WRONG, TWIN_FIX) if is_wrong else (CheckState.OK, "")
    subject = f"subscription of {topic}"
    return Check(part="events", subject=subject, state=state, says=shown_on_one_line(says), fix=fix)
