from __future__ import annotations

from pathlib import Path

import pytest

from local_azure.azurite import Azurite
from local_azure.processes import wait_until
from tests.contract.local_azure.dev_host import DevHost, fixture_settings, start_dev_host

pytestmark = [pytest.mark.azurite, pytest.mark.xdist_group("functions_host")]


def test_a_timer_fires_on_its_schedule(dev_host: DevHost) -> None:
    """It fires every second, with the schedule from a setting, and is not past due."""
    fired = wait_until(lambda: dev_host.journalled("timer")[2:], what="the third tick")

    assert False is fired[0]["past_due"]


@pytest.mark.slow
def test_a_timer_that_was_missed_fires_at_the_next_start_as_past_due(azurite: Azurite, tmp_path: Path) -> None:
    """The host's storage keeps the last occurrence over a restart."""
    settings = fixture_settings(azurite.connection_string(), "late", tmp_path / "journal", schedule="*/2 * * * * *")
    settings["AzureFunctionsWebHost__hostid"] = "late-app"
    first = start_dev_host(tmp_path, settings)
    wait_until(lambda: first.journalled("timer"), what="the first tick")
    wait_until(
        lambda: b'timers/late-app/tick/status HTTP/1.1" 201' in _log(azurite), what="the tick to be remembered"
    )
    first.process.kill()
    (tmp_path / "journal").unlink()
    wait_until(lambda: _two_seconds_passed_since(tmp_path / "dev_host.log"), what="the next occurrence to pass")

    second = start_dev_host(tmp_path, settings)
    wait_until(lambda: second.journalled("timer"), what="a tick after the restart")
    second.process.stop()

    assert True is second.journalled("timer")[0]["past_due"]


def _log(azurite: Azurite) -> bytes:
    return azurite.access_log.read_bytes()


def _two_seconds_passed_since(log: Path) -> bool:
    """Whether two seconds passed on the file system's clock: a new probe file is that much newer than ``log``."""
    probe = log.with_name("probe")
    probe.write_bytes(b"")
    return probe.stat().st_mtime - log.stat().st_mtime > 2.2
