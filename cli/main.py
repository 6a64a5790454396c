"""The ``landfall`` command: its subcommands, each imported only when it runs, and how an error ends it."""

from __future__ import annotations

import contextlib
import difflib
import importlib
import inspect
import io
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from cli import IS_CLONE, __version__
from cli.errors import DISK_FULL, NOT_OPENED, CliError, Interrupted, ending_on_signals
from cli.screen import show
from shared.errors import LandfallError
from shared.safe_text import mask_secrets, one_line, several_lines

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

EXIT_STATUS = "Exit status: 0 done; 1 not done, and standard error says why; 2 wrong usage."
INTERRUPTED = 130
"""Exit status after SIGINT, as shells set it."""
ONLY_IN_CLONE = frozenset({"demo", "up", "publish", "hook", "smoke"})
"""Commands that need files of the clone: the twin, the training, the templates."""


@dataclass(frozen=True)
class LazyCommand:
    """Where a command is defined, and its line in the overview."""

    module: str
    attribute: str
    summary: str


class LazyGroup(click.Group):
    """A click group over `LazyCommand`s: help and typing errors import none of them."""

    def __init__(self, *, lazy: Mapping[str, LazyCommand], **settings: Any) -> None:
        super().__init__(**settings)
        self.lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order in which a newcomer needs them."""
        del ctx
        return [name for name in self.lazy if IS_CLONE or name not in ONLY_IN_CLONE]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command; return None for an unknown name. Raises CliError for one that needs a clone."""
        del ctx
        found = self.lazy.get(cmd_name)
        if found is None:
            return None
        if cmd_name in ONLY_IN_CLONE and not IS_CLONE:
            raise CliError(
                f"landfall {cmd_name} needs a clone of Landfall, but this one was installed as a package. In a clone "
                f"run `make setup`, then `.venv/bin/landfall {cmd_name}`."
            )
        command = getattr(importlib.import_module(found.module), found.attribute)
        if not isinstance(command, click.Command):
            raise TypeError(f"{found.module}.{found.attribute} is no click command but {type(command)}")
        _state_exit_status(command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that the arguments start with. Raises UsageError with a suggestion for an unknown one."""
        if args and args[0] not in self.lazy:
            near = difflib.get_close_matches(args[0], self.lazy, n=1, cutoff=0.5)
            hint = f"Did you mean {near[0]!r}?" if near else f"The commands are: {', '.join(self.lazy)}."
            raise click.UsageError(f"There is no command {args[0]!r}. {hint}", ctx)
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the name of a command from the overview: to import them all would take seconds."""
        from click.shell_completion import CompletionItem

        names = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        found = [CompletionItem(name, help=self.lazy[name].summary) for name in names]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, self.lazy[name].summary) for name in self.list_commands(ctx)])


def _state_exit_status(command: click.Command) -> None:
    """Let the help of each command say how it ends; most end alike, and the others say it themselves."""
    if isinstance(command, click.Group):
        for each in command.commands.values():
            _state_exit_status(each)
    elif "Exit status:" not in (command.help or ""):
        command.help = f"{inspect.cleandoc(command.help or '')}\n\n{EXIT_STATUS}"


COMMANDS = {
    "demo": LazyCommand("cli.demo.command", "demo", "Run the whole chain on this machine, on real data."),
    "up": LazyCommand("cli.up", "up", "Start the local twin and keep it running until Ctrl-C."),
    "validate": LazyCommand("cli.validate.command", "validate", "Check shards as the function app does."),
    "lint": LazyCommand("cli.lint", "lint", "Find mistakes in a Horovod training script."),
    "script": LazyCommand("cli.importing.notebook", "script", "Convert a notebook to a script."),
    "pack": LazyCommand("cli.pack.command", "pack", "Pack images or tables into shards."),
    "init": LazyCommand("cli.init.command", "init", "Write a pipeline file for shards."),
    "check": LazyCommand("cli.check", "check", "Check pipeline files before they are deployed."),
    "import-batchai": LazyCommand(
        "cli.importing.batchai", "import_batchai", "Write a pipeline file for a job of Azure Batch AI."
    ),
    "publish": LazyCommand("cli.deploy.publish", "publish", "Register the training's environment and code."),
    "doctor": LazyCommand("cli.doctor.command", "doctor", "Check a deployment and show fixes."),
    "hook": LazyCommand("cli.deploy.hook", "hook", "Run a step of `azd up`; azure.yaml calls it."),
    "smoke": LazyCommand("cli.smoke.command", "smoke", "Test a deployment with a small training."),
    "upload": LazyCommand("cli.upload", "upload", "Upload shards as a dataset version."),
    "plan": LazyCommand("cli.remote.plan", "plan", "Show the time and cost of a run before it is submitted."),
    "status": LazyCommand("cli.remote.status", "status", "Show an overview, or one dataset version."),
    "watch": LazyCommand("cli.remote.watching", "watch", "Show changes as they happen, until Ctrl-C."),
    "submit": LazyCommand("cli.remote.runs", "submit", "Request a training run on a complete dataset version."),
    "runs": LazyCommand("cli.remote.runs", "runs", "List runs, the newest first."),
    "models": LazyCommand("cli.remote.models", "models", "List registered models."),
    "datasets": LazyCommand("cli.remote.status", "datasets", "List datasets, or the versions of one."),
    "pipelines": LazyCommand("cli.remote.status", "pipelines", "List pipelines and their problems."),
    "compare": LazyCommand("cli.remote.sweeps", "compare", "Compare runs side by side."),
    "verify": LazyCommand("cli.remote.passports", "verify", "Verify a model's passport by recomputing it."),
    "register": LazyCommand("cli.remote.models", "register", "Register a model that the gate did not register."),
    "promote": LazyCommand("cli.remote.models", "promote", "Make a model version the current one."),
    "release": LazyCommand("cli.remote.runs", "release", "Lift the hold on a dataset version."),
    "cancel": LazyCommand("cli.remote.runs", "cancel", "Cancel a run."),
    "run": LazyCommand("cli.remote.runs", "run", "Show one run."),
    "logs": LazyCommand("cli.remote.logs", "logs", "Show or follow the log of a rank."),
    "why": LazyCommand("cli.remote.status", "why", "Show the history of a version or run and what it waits for."),
    "notify": LazyCommand("cli.remote.notify", "notify", "Send a test message to the recipients of a pipeline."),
    "reconcile": LazyCommand("cli.remote.reconcile", "reconcile", "Run the sweep now."),
    "dead-letters": LazyCommand("cli.remote.reconcile", "dead_letters", "List, show and replay dead letters."),
}


@click.command(
    cls=LazyGroup,
    lazy=COMMANDS,
    invoke_without_command=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100, "show_default": True},
    epilog="Example: landfall status digits/2026-11-20",
)
@click.version_option(__version__, message="%(prog)s %(version)s")
def landfall() -> None:
    """When the last shard lands, training starts.

    Commands that talk to a function app take its URL from --url or LANDFALL_URL and its key from --key or
    LANDFALL_FUNCTION_KEY. Without a URL they talk to the local twin of this clone, if one is running.

    The help of each command states its exit statuses. A command that is stopped by Ctrl-C, SIGTERM or SIGHUP exits
    with 130, 143 or 129, except `up` and `demo --keep`, which exit with 0.
    """


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit. Stack traces go to a file that the message names, never to the user."""
    _open_closed_streams()
    _show_any_character()
    try:
        if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:  # set by cli.start
            signal.signal(signal.SIGINT, signal.default_int_handler)
        # Python itself ends on Ctrl-C, and a second Ctrl-C can hurry it.
        with ending_on_signals(signal.SIGTERM, signal.SIGHUP):
            # Without standalone_mode click returns a command's exit status instead of exiting.
            status = landfall.main(args=arguments, prog_name="landfall", standalone_mode=False)
    except click.ClickException as error:
        shown = io.StringIO()
        error.show(file=shown)
        _report(shown.getvalue().rstrip("\n"))
        sys.exit(error.exit_code)
    except Interrupted as interrupted:
        _report("Stopped.")
        sys.exit(interrupted.exit_status)
    except (click.Abort, KeyboardInterrupt):
        _report("Stopped.")
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        sys.exit(1)  # the reader of our output has gone, as `| head` does
    except Exception as error:  # noqa: BLE001 - the last resort: the trace goes into a file
        _report(f"Error: {_explain(error)}")
        sys.exit(1)
    sys.exit(status if isinstance(status, int) else 0)


def _open_closed_streams() -> None:
    """Open the null device for each standard stream that the caller has closed.

    Otherwise the next opened file would get the stream's descriptor, and child processes would write into it.
    """
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(null, True)  # noqa: FBT003
            setattr(sys, name, os.fdopen(null, "r" if name == "stdin" else "w"))


def _show_any_character() -> None:
    """Escape characters that the output's encoding lacks, for example in file names, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _report(text: str) -> None:
    """Print to standard error; if that fails, only the exit status reports the error."""
    with contextlib.suppress(OSError):
        show(several_lines(mask_secrets(text)).split("\n"), err=True)


def _explain(error: Exception) -> str:
    if isinstance(error, LandfallError):
        return str(error)
    if isinstance(error, OSError) and error.errno in DISK_FULL:
        return f"{error.filename or 'the output'}: cannot be written: {error.strerror}."
    if isinstance(error, OSError) and error.filename and error.errno in NOT_OPENED:
        return f"{one_line(str(error.filename))}: cannot be opened: {error.strerror}."
    with tempfile.NamedTemporaryFile("w", prefix="landfall-", suffix=".log", delete=False) as log:
        traceback.print_exception(error, file=log)
    return f"an unexpected error occurred: {error!r}. The stack trace is in {Path(log.name)}."
