"""Arguments and options that several commands share, and how they find the function app or the twin."""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar
from urllib.parse import quote

import click

from cli import IS_CLONE, ROOT
from cli.errors import CliError
from cli.remote.api_client import ApiClient
from shared.shard_names import DATASET_MEANING, DATASET_PATTERN, VERSION_MEANING, VERSION_PATTERN

TWINS = ROOT / ".landfall"
OR_A_TWIN = ", or start a local twin with `landfall up`" if IS_CLONE else ""
"""The end of advice; an installed package has no twin."""

P = ParamSpec("P")
R = TypeVar("R")
_RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*", re.ASCII)
_DEAD_LETTER = re.compile(r"[0-9a-f]+")

as_json_option = click.option("--json", "as_json", is_flag=True, help="Print the API's answer as JSON.")
limit_option = click.option(
    "--limit", type=click.IntRange(1, 1000), default=20, metavar="N", help="List at most N of them."
)


class DatasetVersionArgument(click.ParamType[tuple[str, str]]):
    """``digits/2026-11-20`` becomes ``("digits", "2026-11-20")``."""

    name = "dataset/version"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        """Split and check; click shows the message with the command's usage."""
        if isinstance(value, tuple):
            return value
        parts = str(value).strip("/").split("/")
        if len(parts) != 2:  # noqa: PLR2004 - a dataset and a version
            self.fail(f"{value!r} is not <dataset>/<version>, such as digits/2026-11-20.", param, ctx)
        return _dataset(self, parts[0], param, ctx), _version(self, parts[1], param, ctx)


class TrainableArgument(click.ParamType[tuple[str, str | None]]):
    """A dataset version, or a dataset alone: ``synthetic-benchmark`` becomes ``("synthetic-benchmark", None)``."""

    name = "dataset[/version]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str | None]:
        """Split and check; the function app decides whether the dataset may stand without a version."""
        if isinstance(value, tuple) or "/" in str(value).strip("/"):
            return DATASET_VERSION.convert(value, param, ctx)
        return _dataset(self, str(value).strip("/"), param, ctx), None


class IdArgument(click.ParamType[str]):
    """The id of a run or a dead letter. Any other text could lead to another path of the API."""

    name = "id"

    def __init__(self, what: str, example: str, pattern: re.Pattern[str]) -> None:
        self._what, self._example, self._pattern = what, example, pattern

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Check the form; the function app knows which ids exist."""
        if self._pattern.fullmatch(str(value)) is None:
            self.fail(f"{value!r} is not the id of {self._what}, such as {self._example}.", param, ctx)
        return str(value)


def _dataset(
    argument: click.ParamType[Any], part: str, param: click.Parameter | None, ctx: click.Context | None
) -> str:
    if DATASET_PATTERN.fullmatch(part) is None:
        argument.fail(f"{part[:100]!r} is malformed: a dataset is {DATASET_MEANING}.", param, ctx)
    return part


def _version(
    argument: click.ParamType[Any], part: str, param: click.Parameter | None, ctx: click.Context | None
) -> str:
    if VERSION_PATTERN.fullmatch(part) is None:
        argument.fail(f"{part[:100]!r} is malformed: a version is {VERSION_MEANING}.", param, ctx)
    return part


DATASET_VERSION = DatasetVersionArgument()
TRAINABLE = TrainableArgument()
RUN_ID = IdArgument("a run", "landfall-digits-2026-11-20-1f3a9c2b7d5e-a1", _RUN)
DEAD_LETTER_ID = IdArgument("a dead letter", "0123456789abcdef", _DEAD_LETTER)


def path_segment(name: str, what: str) -> str:
    """Return a name as one segment of an API path. Raises UsageError for a name that would lead to another path."""
    if name in ("", ".", ".."):
        raise click.UsageError(f"{name!r} is not the name of a {what}.")
    return quote(name, safe="")


def function_app_options(command: Callable[P, R]) -> Callable[P, R]:
    """Add --url and --key to a command."""
    command = click.option(
        "--key",
        metavar="KEY",
        envvar="LANDFALL_FUNCTION_KEY",
        show_envvar=True,
        help="Function key (default: the local twin's key, if the URL is the twin's).",
    )(command)
    return click.option(
        "--url",
        metavar="URL",
        envvar="LANDFALL_URL",
        show_envvar=True,
        help="URL of the function app (default: the running local twin).",
    )(command)


def with_api(command: Callable[Concatenate[ApiClient, P], R]) -> Callable[..., R]:
    """Add --url and --key to a command, and pass it an open `ApiClient` as its first argument."""

    @function_app_options
    @functools.wraps(command)
    def wrapper(*args: Any, url: str | None, key: str | None, **kwargs: Any) -> R:
        with api_client(url, key) as client:
            client.is_escaped = not kwargs.get("as_json")
            try:
                return command(client, *args, **kwargs)
            except KeyError as error:
                raise CliError(
                    f"{client.url}: the answer lacks {error}. Is it a Landfall function app of the same version as "
                    f"this command?"
                ) from error
            except UnicodeEncodeError as error:  # bytes of the command line that are not text
                raise CliError(
                    f"{error.object[error.start]!r} is not a character that can be sent. Correct the argument."
                ) from error

    return wrapper


def api_client(url: str | None, key: str | None) -> ApiClient:
    """Return a client of the URL, or of the running twin. Raises CliError if there is neither."""
    if url is not None and key:
        return ApiClient(url, key)
    twin = running_twin_of_this_clone()
    if url is not None:
        is_twin = twin is not None and _address(url) == _address(twin.functions_url)
        return ApiClient(url, twin.function_key if twin and is_twin else None)
    if twin is None:
        raise CliError(f"No function app to talk to: pass --url, or set LANDFALL_URL{OR_A_TWIN}.")
    return ApiClient(twin.functions_url, key or twin.function_key)


def _address(url: str) -> str:
    return url.rstrip("/").replace("//localhost:", "//127.0.0.1:")


@dataclass(frozen=True, kw_only=True)
class TwinAddress:
    """Where a running twin's function app and storage are."""

    functions_url: str
    function_key: str
    data_connection: str
    host_connection: str
    """Connection string of the account with what jobs write."""
    traces: Path
    """Folder of its traces."""
    event_grid_url: str = ""
    """Where its Event Grid is."""
    operator: Mapping[str, str] = field(default_factory=dict)
    """Environment in which Microsoft's clients talk to its Azure ML, as the person who deploys."""


def running_twin_of_this_clone(base: Path = TWINS) -> TwinAddress | None:
    """Return the first running twin of this clone, in any folder; None if no twin runs, or this is not a clone."""
    if not IS_CLONE:
        return None
    from local_azure.processes import keep_loopback_direct
    from local_azure.twin.state import running_twins

    keep_loopback_direct()
    for twin in (twin for folder in (base, *elsewhere(base)) for twin in running_twins(folder)):
        return TwinAddress(
            functions_url=twin["functions_url"],
            function_key=twin["function_key"],
            data_connection=twin["data_connection"],
            host_connection=twin["host_connection"],
            traces=Path(twin.get("traces") or "traces"),
            event_grid_url=twin.get("event_grid_url") or "",
            operator=twin.get("operator") or {},  # a twin that an earlier version started has none
        )
    return None


def note_elsewhere(folder: Path, base: Path = TWINS) -> None:
    """Remember a folder of twins that is not the default one, so that the other commands find it."""
    if folder != base:
        from local_azure.twin.state import write_atomically

        notes = base / "elsewhere"
        notes.mkdir(parents=True, exist_ok=True)
        write_atomically(notes / hashlib.sha256(str(folder).encode()).hexdigest()[:16], str(folder))


def elsewhere(base: Path) -> Iterator[Path]:
    """Yield the other folders in which twins were started and whose state still exists; forget the rest."""
    for note in sorted((base / "elsewhere").glob("[!.]*")):  # not the files that are still being written
        try:
            folder = Path(note.read_text(encoding="utf-8"))
        except FileNotFoundError:  # another command has just forgotten it
            continue
        if folder.is_dir():
            yield folder
        else:
            note.unlink(missing_ok=True)
