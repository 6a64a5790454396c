"""Names, keys and addresses that are none: told before anything is asked for."""

from __future__ import annotations

import pytest

from tests.support.cli import landfall


@pytest.mark.parametrize("name", ["", "..", "digits/v1", "a b"])
@pytest.mark.parametrize("command", [("run",), ("cancel",), ("dead-letters", "show"), ("dead-letters", "replay")])
def test_what_is_no_id(capsys: pytest.CaptureFixture[str], command: tuple[str, ...], name: str) -> None:
    """It would lead to another address of the API's; what an id looks like is shown."""
    what = "dead letter, such as 0123456789abcdef" if len(command) > 1 else "run, such as landfall-digits-"
    status, _, err = landfall(capsys, *command, "--url", "http://127.0.0.1:9", "--", name)
    assert (2, True, True) == (status, f"expected the id of a {what}" in err, f"was {name!r}" in err)


@pytest.mark.parametrize("subject", ["", "/", "..", "../runs", "digits/."])
def test_what_is_no_subject(capsys: pytest.CaptureFixture[str], subject: str) -> None:
    """It has no story."""
    status, _, err = landfall(capsys, "why", "--url", "http://127.0.0.1:9", subject)
    assert (2, True) == (status, "should be a dataset version, a run or a blob, was" in err)


@pytest.mark.parametrize("key", ["secret\r", "\nsecret", "secretü"])
def test_a_key_that_is_none_is_not_shown(capsys: pytest.CaptureFixture[str], key: str) -> None:
    """Most of it is one."""
    status, _, err = landfall(capsys, "runs", "--url", "http://127.0.0.1:9", "--key", key)
    assert (1, True, False) == (status, "holds what no key does" in err, "secret" in err)


def test_an_address_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    """It is shown, with what is wrong with it."""
    status, _, err = landfall(capsys, "runs", "--url", "http://[::1")
    assert (1, True) == (status, "The address of the function app should be one, was 'http://[::1': " in err)
