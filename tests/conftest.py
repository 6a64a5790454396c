"""What every test starts from: a clean environment, its place among two workers, and one rerun for processes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from local_azure.azurite import DATA_ACCOUNT, HOST_ACCOUNT, HOST_ACCOUNT_KEY, Azurite, random_account_key
from tests.support.azurite import running_azurite

SETTINGS = ("AZURE", "LANDFALL", "OMPI_", "HOROVOD_", "IDENTITY_", "DataStorage")
STARTING = ("azurite", "browser", "distributed", "twin")
"""Markers of tests that start processes: each of them implies ``processes``."""
SHARING = ("twin", "distributed")
"""Markers of tests that one worker runs: a twin is shared by its tests, and MPI ranks want both cores."""
NUM_UNUSED_ACCOUNTS = 600
RERUNS = Path(__file__).resolve().parents[1] / ".landfall" / "reruns.txt"
"""Which tests had to be run twice in the last run, with the reason."""


def pytest_configure(config: pytest.Config) -> None:
    """Remove the developer's own settings before any test module is imported, and choose hypothesis's profile.

    CONTAINER_NAME makes the Functions worker believe that it runs in Azure; the others name real accounts.
    """
    for name in list(os.environ):
        if name == "CONTAINER_NAME" or name.startswith(SETTINGS):
            del os.environ[name]
    # No test has a deadline of its own, because machines are shared. Continuous integration draws the same examples
    # every time, so that a change is judged by what it changes; a run by hand draws new ones.
    slow = [HealthCheck.too_slow]
    settings.register_profile("by_hand", deadline=None, suppress_health_check=slow)
    settings.register_profile("ci", deadline=None, suppress_health_check=slow, derandomize=True)
    settings.load_profile("ci" if os.environ.get("CI") else "by_hand")
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(RerunList(), "rerun-list")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that start processes for one rerun, and keep together what shares a resource of the machine."""
    for item in items:
        if any(item.get_closest_marker(name) for name in STARTING):
            item.add_marker("processes")
        if item.get_closest_marker("processes"):
            item.add_marker(pytest.mark.flaky(reruns=1))
            if not item.get_closest_marker("xdist_group"):
                shared = (name for name in SHARING if item.get_closest_marker(name))
                item.add_marker(pytest.mark.xdist_group(next(shared, item.path.stem)))


@pytest.fixture(scope="session")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azurite]:
    """Start one Azurite for each worker.

    Tests that use its two usual accounts give containers, queues and tables names of their own; the others take
    accounts from ``unused_accounts``.
    """
    accounts = {HOST_ACCOUNT: HOST_ACCOUNT_KEY, DATA_ACCOUNT: random_account_key()}
    accounts |= {f"unused{number:03}": random_account_key() for number in range(NUM_UNUSED_ACCOUNTS)}
    with running_azurite(tmp_path_factory.mktemp("azurite"), accounts) as running:
        yield running


@pytest.fixture(scope="session")
def unused_accounts(azurite: Azurite) -> Iterator[str]:
    """Return the connection strings of accounts that no test has used."""
    return iter([azurite.connection_string(name) for name in azurite.accounts if name.startswith("unused")])


class RerunList:
    """Writes the tests that were run a second time into ``RERUNS``."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a first failure."""
        if str(report.outcome) == "rerun":  # the plug-in's own outcome, which pytest's annotation does not know
            crash = getattr(report.longrepr, "reprcrash", None)
            reason = str(crash.message if crash else report.longrepr).partition("\n")[0]
            self.lines.append(f"{report.nodeid.partition('@')[0]} ({report.when}): {reason}")

    @pytest.hookimpl(wrapper=True)
    def pytest_sessionfinish(self) -> Iterator[None]:
        """Replace the last run's list."""
        RERUNS.parent.mkdir(exist_ok=True)
        RERUNS.write_text("".join(f"{line}\n" for line in self.lines), encoding="utf-8")
        yield

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Name the list where it is not empty."""
        if self.lines:
            terminalreporter.write_line(f"{len(self.lines)} tests were run again, see {RERUNS}")
