"""What every test starts from: a clean environment, its place among the workers, and one rerun for processes."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from local_azure.azurite import DATA_ACCOUNT, HOST_ACCOUNT, HOST_ACCOUNT_KEY, Azurite, random_account_key
from tests.support.azurite import running_azurite

SETTINGS = ("AZURE", "LANDFALL", "OMPI_", "HOROVOD_", "IDENTITY_", "DataStorage")
STARTING = ("azurite", "browser", "distributed", "twin")
"""Markers of tests that start processes: each of them implies ``processes``."""
TOGETHER = ("tests/ranks/", "tests/twin/", "tests/examples/", "tests/chaos/", "tests/browser/")
"""Folders whose tests run on one worker, one after the other: they share a twin, or need both cores for MPI ranks."""
SPREAD = ("tests/unit/", "tests/architecture/", "tests/fuzz/", "tests/crash/test_c")
"""Where the tests of a file run on any worker; other files stay together, with the processes that they share."""
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


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark tests that start processes for one rerun; with several workers, put the longest groups first."""
    for item in items:
        if any(item.get_closest_marker(name) for name in STARTING):
            item.add_marker("processes")
        if item.get_closest_marker("processes"):
            item.add_marker(pytest.mark.flaky(reruns=1))
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: (not item.nodeid.startswith(TOGETHER), item.nodeid.startswith(SPREAD)))


def pytest_collection_finish() -> None:
    """Let the garbage collector leave out the imported modules and look less often: a tenth of the tests' CPU."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep together what shares a resource of the machine, in the order of collection.

    By folder and file: xdist's own marker for groups has no effect under this pytest.
    """
    from xdist.scheduler import LoadScopeScheduling

    class GroupScheduling(LoadScopeScheduling):  # type: ignore[misc]  # xdist states no types
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

    config.option.loadscopereorder = False
    return GroupScheduling(config, log)


def group_of(nodeid: str) -> str:
    """Return the name of the group of tests that run on one worker, without others in between."""
    together = next((folder for folder in TOGETHER if nodeid.startswith(folder)), "")
    return together or (nodeid if nodeid.startswith(SPREAD) else nodeid.partition("::")[0])


@pytest.fixture(scope="session")
def azurite_of_worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azurite]:
    """Start one Azurite for each worker, with all accounts that its tests will need."""
    accounts = {HOST_ACCOUNT: HOST_ACCOUNT_KEY, DATA_ACCOUNT: random_account_key()}
    accounts |= {f"unused{number:03}": random_account_key() for number in range(NUM_UNUSED_ACCOUNTS)}
    with running_azurite(tmp_path_factory.mktemp("azurite"), accounts) as running:
        yield running


@pytest.fixture(scope="session")
def azurite(azurite_of_worker: Azurite) -> Azurite:
    """Return the worker's Azurite with its two usual accounts, in which tests choose names of their own."""
    usual = {name: azurite_of_worker.accounts[name] for name in (HOST_ACCOUNT, DATA_ACCOUNT)}
    return replace(azurite_of_worker, accounts=usual)


@pytest.fixture(scope="session")
def unused_accounts(azurite_of_worker: Azurite) -> Iterator[str]:
    """Return the connection strings of accounts that no test has used yet."""
    unused = [name for name in azurite_of_worker.accounts if name.startswith("unused")]
    return iter([azurite_of_worker.connection_string(name) for name in unused])


class RerunList:
    """Writes the tests that are run a second time into ``RERUNS``, as they come."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        RERUNS.parent.mkdir(exist_ok=True)
        RERUNS.write_text("", encoding="utf-8")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a first failure."""
        if str(report.outcome) == "rerun":  # the plug-in's own outcome, which pytest's annotation does not know
            crash = getattr(report.longrepr, "reprcrash", None)
            reason = str(crash.message if crash else report.longrepr).partition("\n")[0]
            self.lines.append(f"{report.nodeid} ({report.when}): {reason}\n")
            RERUNS.write_text("".join(self.lines), encoding="utf-8")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Show the list if it is not empty."""
        if self.lines:
            terminalreporter.section(f"{len(self.lines)} tests were run again, see {RERUNS}")
            terminalreporter.write("".join(self.lines))
