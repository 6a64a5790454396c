"""``landfall up``, and the options of a local twin."""

from __future__ import annotations

import contextlib
import functools
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import click

from cli.errors import Interrupted, ending_on_signals
from cli.options import note_elsewhere
from cli.remote.api_client import ApiClient
from local_azure.azure_ml.faults import FAULTS, fault_named
from local_azure.azure_ml.mounts import NOT_CHECKED, compiler
from local_azure.twin.addresses import TwinOptions
from local_azure.twin.client import TwinClient
from local_azure.twin.twin import Twin, running_twin

CHECK_EVERY_S = 1.0
MAX_PROBLEMS = 20
"""Problems of one file that are printed; the API lists all of them."""
R = TypeVar("R")
Say = Callable[[str], object]


def twin_options(command: Callable[..., R]) -> Callable[..., R]:
    """Add the options of a twin to a command, and pass it `options: TwinOptions`."""
    defaults = TwinOptions()

    @click.option(
        "--folder",
        "state",
        type=click.Path(file_okay=False, path_type=Path),
        default=defaults.base,
        show_default=defaults.base.name,
        help="Folder for the twin's state and logs.",
    )
    @click.option(
        "--pipelines",
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        default=defaults.pipelines,
        show_default=defaults.pipelines.name,
        help="Folder with pipeline files.",
    )
    @click.option(
        "--node-start-delay-s",
        type=click.FloatRange(0, 3600),
        metavar="SECONDS",
        default=defaults.node_start_delay_s,
        help="Time that a node of the simulated cluster takes to start, in seconds.",
    )
    @functools.wraps(command)
    def wrapper(*args: Any, state: Path, pipelines: Path, node_start_delay_s: float, **kwargs: Any) -> R:
        note_elsewhere(state.resolve())
        options = TwinOptions(
            base=state.resolve(), pipelines=pipelines.resolve(), node_start_delay_s=node_start_delay_s
        )
        return command(*args, options=options, **kwargs)

    return wrapper


@click.command(epilog="Example: landfall up --pipelines my-pipelines")
@click.option(
    "--own-host", is_flag=True, help="Do not start a Functions host: you run your own, such as `func start`."
)
@click.option(
    "--fault",
    type=click.Choice([str(fault) for fault in FAULTS]),
    metavar="NAME",
    help=f"Inject this fault into every job: {', '.join(FAULTS)}. docs/attempts.md explains each (default: none).",
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print the addresses as one JSON object, and everything else to standard error.",
)
@twin_options
def up(options: TwinOptions, *, own_host: bool, fault: str | None, as_json: bool) -> None:
    """Start the local twin and keep it running until Ctrl-C.

    The twin consists of emulators of storage, Event Grid and Azure ML, and of this clone's function app, all on this
    machine. Other commands find it without --url.

    Exit status: 0 stopped by Ctrl-C; 1 a part of the twin could not start, or ended by itself; 2 wrong usage.
    """
    options, say = replace(options, own_host=own_host, fault=fault), functools.partial(click.echo, err=as_json)
    with ending_on_signals(), contextlib.suppress(Interrupted), running_twin(options, say=say) as twin:
        found = addresses(twin)
        show_addresses(found, say)
        if fault is not None:
            say(f"  fault          {fault}, for every job: {FAULTS[fault_named(fault)]}")
        if compiler() is None:
            say(f"  not checked    {NOT_CHECKED}")
        if own_host:
            port = twin.places.ports["functions"]
            say(f"  your host      cp {twin.places.local_settings} . && func start --port {port}")
        elif broken := out_of_service(twin):
            say("\n".join(broken))
        if as_json:
            click.echo(json.dumps(found))
        say("Ready. Ctrl-C stops everything.")
        watch_until_interrupted(twin, say)
    say("Stopped.")


def out_of_service(twin: Twin) -> list[str]:
    """Return lines on the pipelines that cannot be used. Raises CliError if the function app cannot be used."""
    with ApiClient(twin.places.functions_url, twin.places.secrets.function_key) as client:
        return list(describe_outages(client.get("/api/pipelines")["pipelines"]))


def describe_outages(pipelines: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the lines on the pipelines that are out of service, as the API lists them."""
    broken = [pipeline for pipeline in pipelines if pipeline["state"] == "out_of_service"]
    for pipeline in broken:
        whose = f"dataset {pipeline['dataset']}" if pipeline["dataset"] else "a file whose dataset cannot be read"
        yield f"Out of service: {whose}"
        yield from (f"  {problem}" for problem in pipeline["problems"][:MAX_PROBLEMS])
    if broken:
        yield "Edit and save the files: they are read again. Settings are read only when the twin starts."


def watch_until_interrupted(twin: Twin, say: Say) -> None:
    """Return when a signal asks for the end. Raises TwinError when a part of the twin ends before."""
    with contextlib.suppress(Interrupted):  # the normal end
        while True:
            twin.check_running()
            time.sleep(CHECK_EVERY_S)
    with contextlib.suppress(OSError):  # the terminal may have hung up
        say("Stopping everything.")


def nodes_in_words(simulated_because: str | None) -> str:
    """Describe what a job's nodes are on this machine, and why, if they are only simulated."""
    if simulated_because is None:
        return "hosts in network namespaces of this machine"
    return f"simulated, without addresses of their own: {simulated_because}"


def addresses(twin: Twin) -> dict[str, Any]:
    """Return where each part of a twin is, as ``up --json`` prints it; no secrets."""
    places = twin.places
    with TwinClient(places) as client:
        simulated_because = client.simulated_because()
    return {
        "storage_ports": {name: places.ports[name] for name in ("blob", "queue", "table")},
        "pages": f"{places.functions_url}/",
        "function_app": places.functions_url,
        "azure_ml": places.azure_ml_url,
        "nodes": nodes_in_words(simulated_because),
        "event_grid": places.event_grid_url,
        "folder": str(places.folder),
    }


def show_addresses(found: Mapping[str, Any], say: Say) -> None:
    """Print the address of each part."""
    say(f"  storage        127.0.0.1, ports: {', '.join(f'{n} {p}' for n, p in found['storage_ports'].items())}")
    say(f"  pages          {found['pages']} (open it in a browser)")
    say(f"  function app   {found['function_app']}")
    say(f"  Azure ML       {found['azure_ml']}")
    say(f"  nodes          {found['nodes']}")
    say(f"  Event Grid     {found['event_grid']}")
    say(f"  state, logs    {found['folder']}")
