"""What people do in a storm, and what they leave until it is over."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from cli.errors import CliError
from function_app.domain.failures import FailureClass
from function_app.domain.run_states import RunState
from tests.chaos.people import People
from tests.chaos.test_ends import RUN_ID, ends, run


class Api:
    """Takes requests for runs, and answers the first one with an error."""

    def __init__(self) -> None:
        self.submitted: list[tuple[str, bool]] = []

    def submit(self, dataset: str, _version: str, _overrides: object, *, force: bool) -> None:
        """Record a request."""
        self.submitted.append((dataset, force))
        if len(self.submitted) == 1:
            raise CliError("the host was killed")


@pytest.mark.parametrize(
    ("failure_class", "in_the_storm", "afterwards"),
    [
        (FailureClass.CONFIGURATION, [("chaos-000", False)], [("chaos-000", False)] * 2),
        (FailureClass.IMAGE_BUILD, [], [("chaos-000", True)]),
        (FailureClass.USER_CODE, [], []),
    ],
)
def test_a_run_is_forced_only_once_every_answer_arrives(
    failure_class: FailureClass, in_the_storm: list[Any], afterwards: list[Any]
) -> None:
    """A failure that a storm does not cause is left alone, so that it is found."""
    api, own = Api(), ends(RUN_ID)
    twin: Any = SimpleNamespace(api=api)
    people = People(twin=twin, ledger=own.ledger, ends=own)
    failed = [run(RunState.FAILED, failure_class=failure_class)]
    people.request_again(failed, ["chaos-000"])
    seen = list(api.submitted)
    people.request_again(failed, [], is_calm=True)  # its data still change
    people.request_again(failed, ["chaos-000"], is_calm=True)
    assert (in_the_storm, afterwards, len(afterwards)) == (seen, api.submitted, people.asked.total())
