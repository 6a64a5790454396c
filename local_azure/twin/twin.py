"""Start, connect and stop the parts of the twin."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from typing import Any

from local_azure.azurite import AZURITE
from local_azure.processes import (
    AZURE_ML,
    EVENT_GRID,
    FUNCTIONS_HOST,
    Process,
    Program,
    TwinError,
    await_strays,
    keep_loopback_direct,
    run,
)
from local_azure.twin import parts
from local_azure.twin.addresses import OPERATOR_IDENTITY, Places, TwinOptions
from local_azure.twin.parts import app_settings, create_containers_and_queues, local_settings
from local_azure.twin.state import (
    TWIN_FILE,
    StateFolder,
    take_ports,
    take_state_folder,
    write_atomically,
    write_twin_file,
)

Say = Callable[[str], None]


def silent(_line: str) -> None:
    """Print nothing."""


class Twin:
    """A running twin, created by `running_twin`."""

    def __init__(self, places: Places, options: TwinOptions, state: StateFolder) -> None:
        self.places = places
        self.options = options
        self._state = state
        self._processes: dict[str, Process] = {}
        """By the program's name."""
        self._label = str(places.folder)

    def check_running(self) -> None:
        """Raise TwinError if a part has ended."""
        for process in self._processes.values():
            process.check_running()

    def pids(self) -> dict[str, int]:
        """Return the id of each part's guard process."""
        return {name: process.pid for name, process in self._processes.items()}

    def start(self, say: Say) -> None:
        """Start every part, publish the assets, and wait until everything answers."""
        say("starting Azurite (storage) and the Azure ML emulator")
        storage = self._launch(parts.azurite(self.places, self.options))
        azure_ml = self._launch(parts.azure_ml(self.places, self.options))
        storage.await_ready()
        create_containers_and_queues(self.places)
        event_grid = self._launch(parts.event_grid(self.places, self.options))
        azure_ml.await_ready()
        say("publishing the training's environment and code to Azure ML")
        settings = app_settings(self.places, self._publish(), self.options)
        write_atomically(self.places.local_settings, local_settings(settings), mode=0o600)
        if not self.options.own_host:
            say("starting the Functions dev host with this function app")
            self._launch(parts.functions_host(self.places, settings, self.options)).await_ready()
        event_grid.await_ready()
        write_twin_file(self.places.folder, self.describe())

    def kill_functions_host(self) -> None:
        """Kill the dev host with SIGKILL during its work, and start another one."""
        old = self._processes[FUNCTIONS_HOST]
        old.kill()
        old.program.log.replace(old.program.log.with_suffix(f".{old.pid}.log"))  # The next host starts its own.
        self._launch(old.program)

    def await_functions_host(self) -> None:
        """Wait until the dev host answers. Raises TwinError if it does not."""
        self._processes[FUNCTIONS_HOST].await_ready()

    def stop(self) -> None:
        """Stop all started parts: the dev host first, because its functions call the others, and storage last.

        If Azure ML stopped first, a submission would get no answer and keep its lease until the lease expires.
        """
        (self.places.folder / TWIN_FILE).unlink(missing_ok=True)
        problems: list[str] = []
        for names in ((FUNCTIONS_HOST,), (AZURE_ML, EVENT_GRID), (AZURITE,)):
            group = [self._processes[name] for name in names if name in self._processes]
            for process in group:
                process.ask_to_stop()
            for process in group:
                try:
                    process.await_stopped()
                except TwinError as error:
                    problems.append(str(error))
        self._processes = {}
        await_strays(self._label)
        if problems:
            raise TwinError("; ".join(problems))

    def describe(self) -> dict[str, Any]:
        """Return the addresses and keys of all parts, for the user's other processes."""
        return {
            "pid": os.getpid(),
            "ports": dict(self.places.ports.numbers),
            "functions_url": self.places.functions_url,
            "azure_ml_url": self.places.azure_ml_url,
            "event_grid_url": self.places.event_grid_url,
            "function_key": self.places.secrets.function_key,
            "master_key": self.places.secrets.master_key,
            "data_connection": self.places.data_connection,
            "host_connection": self.places.host_connection,
            "ca_file": str(self.places.ca_file),
            "operator": {**self.places.identity, "AZURE_CLIENT_ID": OPERATOR_IDENTITY},
            "logs": str(self.places.logs),
            "traces": str(self.places.traces),
            "parts": self.pids(),
        }

    def _publish(self) -> dict[str, str]:
        """Register environment, code, datastores and compute, like a deployment; return the printed settings."""
        try:
            run(parts.publishing(self.places, self.options), label=self._label)
        except TwinError as error:
            folder = self.places.folder
            raise TwinError(
                f"{error}\nIf an earlier version of Landfall made {folder}, remove that folder."
            ) from error
        return {
            str(name): str(value) for name, value in json.loads(parts.published_file(self.places).read_text()).items()
        }

    def _launch(self, program: Program) -> Process:
        process = Process(program, label=self._label, hold=[self._state.lock, *self.places.ports.held])
        self._processes[program.name] = process
        return process


@contextlib.contextmanager
def running_twin(options: TwinOptions, *, say: Say = silent) -> Iterator[Twin]:
    """Run a twin for the duration of the block. Raises TwinError if it does not start."""
    keep_loopback_direct()
    state = take_state_folder(options.base)
    ports = None
    try:
        ports = take_ports(options.ports)
        places = Places(folder=state.path, ports=ports, secrets=state.secrets())
        twin = Twin(places, options, state)
        try:
            twin.start(say)
            yield twin
        except BaseException:
            with contextlib.suppress(OSError):  # The terminal may be closed.
                say("stopping everything")
            raise
        finally:
            twin.stop()
    finally:
        if ports is not None:
            ports.release()
        state.release()
