"""The main group: which commands there are, and what becomes of an error."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import click

from cli.errors import FULL, Interrupted, ending_on_signals
from cli.lazy_group import LazyCommand, LazyGroup
from cli.safe_text import harmless, without_secrets

INTERRUPTED = 130
"""Exit status after SIGINT, as shells have it."""

COMMANDS = {
    "demo": LazyCommand("cli.demo.command", "demo", "Run the whole chain on this machine, on real data."),
    "up": LazyCommand("cli.up", "up", "Start the local twin and keep it running until Ctrl-C."),
    "validate": LazyCommand("cli.validate.command", "validate", "Check shards as the function app would."),
    "lint": LazyCommand("cli.lint", "lint", "Find what a training script of your own gets wrong."),
    "pack": LazyCommand("cli.pack.command", "pack", "Pack images or tables into shards."),
    "publish": LazyCommand("cli.publish.command", "publish", "Register the training's environment and code."),
    "upload": LazyCommand("cli.upload", "upload", "Upload shards as a dataset version."),
    "status": LazyCommand("cli.status", "status", "Show what became of a dataset version."),
    "submit": LazyCommand("cli.runs", "submit", "Train on a dataset version that is whole."),
    "runs": LazyCommand("cli.runs", "runs", "List the newest runs."),
    "cancel": LazyCommand("cli.runs", "cancel", "Cancel a run."),
    "run": LazyCommand("cli.runs", "run", "Show one run."),
    "why": LazyCommand("cli.why", "why", "Tell the story of a version, a run or a blob."),
    "reconcile": LazyCommand("cli.reconcile", "reconcile", "Look for what events have missed, now."),
    "dead-letters": LazyCommand("cli.dead_letters", "dead_letters", "Look after what was given up."),
}


@click.command(
    cls=LazyGroup,
    lazy=COMMANDS,
    invoke_without_command=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
def landfall() -> None:
    """When the last shard lands, training starts.

    Commands that talk to a function app take its address from --url or LANDFALL_URL and its key from
    LANDFALL_FUNCTION_KEY; without them they talk to the local twin of this clone, if one is running.
    """


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit. No stack trace reaches a user: it goes to a file that the message names."""
    _open_closed_streams()
    try:
        # Python ends on Ctrl-C by itself, which a second Ctrl-C may hurry
        with ending_on_signals(signal.SIGTERM, signal.SIGHUP):
            # click hands a command's Exit back as its status instead of raising it
            status = landfall.main(args=arguments, prog_name="landfall", standalone_mode=False)
    except click.ClickException as error:
        said = io.StringIO()
        error.show(file=said)
        _say(said.getvalue().rstrip("\n"))
        sys.exit(error.exit_code)
    except Interrupted as interrupted:
        _say("Stopped.")
        sys.exit(interrupted.exit_status)
    except (click.Abort, KeyboardInterrupt):
        _say("Stopped.")
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        sys.exit(1)  # whoever read our output has gone, as `| head` does
    except Exception as error:  # noqa: BLE001 - the last resort, written down whole
        _say(f"Error: {_explain(error)}")
        sys.exit(1)
    sys.exit(status if isinstance(status, int) else 0)


def _open_closed_streams() -> None:
    """Give each standard stream that the caller has closed the null device, which takes its number.

    The next file would take it else, and get to hold what a child process writes.
    """
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(null, True)  # noqa: FBT003
            setattr(sys, name, os.fdopen(null, "r" if name == "stdin" else "w"))


def _say(text: str) -> None:
    """Tell people; where standard error takes nothing either, the exit status has to do."""
    with contextlib.suppress(OSError):
        click.echo(harmless(without_secrets(text)), err=True)


def _explain(error: Exception) -> str:
    if _is_for_people(error):
        return str(error)
    if isinstance(error, OSError) and error.errno in FULL:
        return f"{error.filename or 'the output'}: cannot be written: {error.strerror}."
    with tempfile.NamedTemporaryFile("w", prefix="landfall-", suffix=".log", delete=False) as log:
        traceback.print_exception(error, file=log)
    return f"something unexpected happened: {error!r}. The details are in {Path(log.name)}."


def _is_for_people(error: Exception) -> bool:
    """Whether the error belongs to a family whose messages are written for people."""
    return any(family.__name__ in {"LandfallError", "TwinError"} for family in type(error).__mro__)
