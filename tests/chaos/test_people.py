"""What people do in a storm: which runs they request again, and how."""

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
    """Takes requests for runs, and answers none."""

    def __init__(self) -> None:
        self.submitted: list[tuple[str, bool, str]] = []

    def submit(self, dataset: str, _version: str, _overrides: object, *, force: bool, key: str) -> None:
        """Record a request."""
        self.submitted.append((dataset, force, key))
        raise CliError("the host was killed")


@pytest.mark.parametrize(
    ("failure_class", "forced_by", "requests"),
    [
        (FailureClass.CONFIGURATION, None, [("chaos-000", False, f"after-{RUN_ID}")]),
        (FailureClass.CONFIGURATION, "a-key", [("chaos-000", True, f"after-{RUN_ID}")]),
        (FailureClass.IMAGE_BUILD, None, [("chaos-000", True, f"after-{RUN_ID}")]),
        (FailureClass.USER_CODE, None, []),
    ],
)
def test_a_request_is_repeated_with_its_key(
    failure_class: FailureClass, forced_by: str | None, requests: list[Any]
) -> None:
    """It counts once, and only a failure that a storm causes leads to one: any other is to be found."""
    api, own = Api(), ends(RUN_ID)
    twin: Any = SimpleNamespace(api=api)
    people = People(twin=twin, ledger=own.ledger, ends=own)
    failed = [run(RunState.FAILED, failure_class=failure_class, forced_by=forced_by)]
    people.request_again(failed, [])  # its data still change
    assert [] == api.submitted
    for _ in range(2):
        people.request_again(failed, ["chaos-000"])
    assert (requests * 2, len(requests)) == (api.submitted, len(people.asked))
