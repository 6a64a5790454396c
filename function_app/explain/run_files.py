"""Where a person looks at a run outside these pages: in the studio of Azure ML, and with TensorBoard."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote

from function_app.config.settings import SignIn
from function_app.domain.records import RunRecord
from function_app.services import Services

_OUTPUT = re.compile(
    r"azureml://subscriptions/(?P<subscription>[^/]+)/resourcegroups/(?P<group>[^/]+)/workspaces/(?P<workspace>[^/]+)"
    r"/datastores/(?P<datastore>[^/]+)/paths/(?P<path>.+)"
)
TENSORBOARD = "tensorboard"
"""The folder beside the training report in which the training keeps its summaries."""

FOLDERS = ("report", "model", "checkpoints")
"""The outputs of a job, those that people look for first."""

WRITES = "--tensorboard True"
"""In the command of a training that writes them; a user's own script has no such flag."""


@dataclass(frozen=True, kw_only=True)
class OutputFolder:
    """Where one output of a job is."""

    name: str
    datastore: str
    path: str


@dataclass(frozen=True, kw_only=True)
class TensorBoardFiles:
    """The summaries of a run, which all its attempts share."""

    datastore: str
    path: str
    command: str
    """Fetches them, once the job has ended, and shows them."""


def studio_page(run: RunRecord, services: Services) -> str | None:
    """Return the address of the job in the studio; None before its submission, and on the twin, which has none."""
    place = _place(run, "report")
    if place is None or run.submitted_at is None or services.pages_sign_in is SignIn.NONE:
        return None
    workspace = (
        f"/subscriptions/{place['subscription']}/resourcegroups/{place['group']}/workspaces/{place['workspace']}"
    )
    return f"https://ml.azure.com/runs/{quote(run.run_id, safe='')}?wsid={quote(workspace, safe='/')}"


def output_folders(run: RunRecord) -> tuple[OutputFolder, ...]:
    """Return where report, model and checkpoints of a run are; nothing before the submission."""
    places = {name: _place(run, name) for name in FOLDERS if run.submitted_at is not None}
    return tuple(
        OutputFolder(name=name, datastore=place["datastore"], path=place["path"])
        for name, place in places.items()
        if place is not None
    )


def tensorboard_files(run: RunRecord) -> TensorBoardFiles | None:
    """Return where the summaries are; None before the submission, or where none are written."""
    place = _place(run, "report")
    if place is None or run.submitted_at is None or WRITES not in str(run.spec.get("command", "")):
        return None
    words = ["--name", run.run_id, "--output-name", "report", "--download-path", run.run_id]
    words += ["--subscription", place["subscription"], "--resource-group", place["group"]]
    words += ["--workspace-name", place["workspace"]]
    return TensorBoardFiles(
        datastore=place["datastore"],
        path=f"{place['path'].rstrip('/')}/{TENSORBOARD}",
        command=f"az ml job download {shlex.join(words)} && tensorboard --logdir {shlex.quote(run.run_id)}",
    )


def _place(run: RunRecord, output: str) -> Mapping[str, str] | None:
    outputs = run.spec.get("outputs")
    named = outputs.get(output) if isinstance(outputs, Mapping) else None
    found = _OUTPUT.fullmatch(str(named.get("uri"))) if isinstance(named, Mapping) else None
    return found.groupdict() if found else None
