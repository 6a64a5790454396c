"""Flags and environment of the emulator."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from local_azure.azure_ml.faults import LaunchFault
from local_azure.azure_ml.settings import SettingsError, read_settings

GOOD = {"IDENTITY_HEADER": "h", "LANDFALL_TWIN_STORAGE": json.dumps({"host": "c1", "data": "c2"})}
FLAGS = ["--port", "0", "--state", "state"]


def test_defaults_are_the_service_s_where_it_has_any() -> None:
    """A compute's own idle time holds unless a flag overrides it."""
    settings = read_settings(FLAGS, GOOD)
    assert (None, None, ["host", "data"]) == (settings.node_idle_s, settings.events_endpoint, list(settings.storage))


def test_an_environment_is_a_name_and_a_virtual_environment() -> None:
    """The option may be repeated."""
    settings = read_settings([*FLAGS, "--python-environment", f"training={sys.prefix}"], GOOD)
    assert {"training": Path(sys.prefix)} == dict(settings.environments)


def test_a_fault_can_be_switched_on_from_the_start() -> None:
    """The option of `landfall up --fault`."""
    faults = [read_settings(flags, GOOD).fault for flags in (FLAGS, [*FLAGS, "--fault", "no_gpu"])]
    assert [None, LaunchFault.NO_GPU] == faults


def test_everything_that_is_wrong_is_said_at_once() -> None:
    """One start names every problem."""
    with pytest.raises(SettingsError) as wrong:
        read_settings([*FLAGS, "--python-environment", "training=/nowhere"], {})
    assert [True] * 3 == [
        name in str(wrong.value) for name in ("training=/nowhere", "LANDFALL_TWIN_STORAGE", "IDENTITY_HEADER")
    ]


@pytest.mark.parametrize("storage", ["", "{", "[]", "{}", "7"])
def test_storage_must_name_an_account(storage: str) -> None:
    """Anything but a JSON object with a member is wrong."""
    with pytest.raises(SettingsError, match="LANDFALL_TWIN_STORAGE must be JSON"):
        read_settings(FLAGS, {**GOOD, "LANDFALL_TWIN_STORAGE": storage})
