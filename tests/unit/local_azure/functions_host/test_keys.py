"""The keys of an app are read from one variable."""

from __future__ import annotations

import json

import pytest

from local_azure.functions_host.keys import Keys, read_keys
from local_azure.functions_host.settings import DevHostError
from local_azure.twin.parts import keys
from local_azure.twin.state import Secrets


def test_without_a_variable_everything_is_open() -> None:
    """`func start` does the same."""
    assert read_keys({}, "") is None


def test_the_twins_keys_are_read_in_the_form_of_the_azure_cli() -> None:
    """Master key and keys of the host."""
    secrets = Secrets.random()
    assert Keys(
        master=secrets.master_key,
        host={"default": secrets.function_key},
    ) == read_keys({"K": json.dumps(keys(secrets))}, "K")


@pytest.mark.parametrize(
    "content",
    [
        "",
        "SECRET",
        "[]",
        "{}",
        '{"masterKey": ""}',
        '{"masterKey": "SECRET", "functionKeys": ["SECRET"]}',
    ],
)
def test_malformed_keys_are_refused_and_not_repeated(content: str) -> None:
    """The message shows the form; a host without a master key would open nothing."""
    with pytest.raises(DevHostError, match="--keys-env names K, which must be set to") as caught:
        read_keys({"K": content}, "K")
    assert "SECRET" not in str(caught.value)


def test_a_key_is_in_no_repr() -> None:
    """It may be logged."""
    assert "SECRET" not in repr(Keys(master="SECRET", host={"a": "SECRET"}))
