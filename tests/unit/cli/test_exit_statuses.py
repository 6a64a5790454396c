"""Exit statuses: each one that a command's help states is shown by a case, and no case ends with another one."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from PIL import Image

from function_app.domain.passports import to_text
from function_app.registry.passport import model_file_path
from tests.support.processes import REPOSITORY
from tests.support.shards import framed, labelled
from tests.support.terminal import landfall
from tests.unit.cli.doctor.test_command import OK, UNKNOWN, WRONG, diagnosis
from tests.unit.cli.fake_function_app import served, serving
from tests.unit.cli.remote.test_notify import TESTS
from tests.unit.cli.test_help import EVERY
from tests.unit.function_app.registry.test_passport import passport_of, registered
from tests.unit.function_app.web.test_routes import add_letter

NAMES = [" ".join(case.values[0][1:]) for case in EVERY if not isinstance(case.values[1], click.Group)]  # type: ignore[index]
REMOTE = (
    "plan digits/v1",
    "status",
    "watch",
    "submit digits/v1",
    "runs",
    "models",
    "datasets",
    "pipelines",
    "compare {run}",
    "verify digits-cnn",
    "register {run} --why x",
    "promote digits-cnn:{version}",
    "release digits/v1",
    "cancel {waiting}",
    "run {run}",
    "logs {run}",
    "why digits/v1",
    "dead-letters list",
    "dead-letters show {letter}",
    "dead-letters replay {letter}",
    "notify test digits",
    "reconcile",
    "doctor",
)
"""Each command that asks a function app, with what the world below has."""
BY_ANSWER: dict[tuple[str, int], dict[str, Any]] = {
    ("notify test digits", 0): {"tests": TESTS["tests"][:1]},
    ("notify test digits", 1): TESTS,
    ("reconcile", 0): {
        "sweep_id": "s",
        "state": "done",
        "requested_at": "2026-11-20T12:00:00Z",
        "started_at": "2026-11-20T12:00:00Z",
        "ended_at": "2026-11-20T12:00:01Z",
        "report": None,
        "error": None,
    },
    ("doctor", 0): diagnosis(OK),
    ("doctor", 1): diagnosis(WRONG),
    ("doctor", 3): diagnosis(UNKNOWN),
}
"""Command and exit status → the answer of a function app that leads to it."""
LOCAL = {
    0: (
        "validate shards",
        "lint clean.py",
        "check pipelines/digits.yaml",
        "pack images pictures --to packed --shards 2 --validation-share 0.5 --no-init",
        "init shards --dataset pets --to pipelines/pets.yaml",
        "script from-notebook cells.ipynb",
        "verify --file passport.json",
    ),
    1: (
        "validate clean.py",
        "lint wrong.py",
        "check wrong.yaml",
        "pack images shards --to packed",
        "pack cifar10 shards --to packed",
        "pack imagenet shards --to packed --synsets clean.py",
        "pack table clean.csv --to packed --label kind",
        "pack xrays shards --to packed",
        "init shards --to pipelines/digits.yaml",
        "script from-notebook clean.py",
        "import-batchai clean.py",
        "verify --file clean.py",
        "upload empty --to digits/v1 --account-url http://127.0.0.1:9",
        "demo --folder clean.py/state",
        "up --folder clean.py/state",
        f"publish --subscription s --resource-group g --workspace w --pipelines empty --image r/i@sha256:{'1' * 64}",
        "hook preprovision",
        "smoke --account-url http://127.0.0.1:9/x --url http://127.0.0.1:9 --key k",
    ),
}
ELSEWHERE = {
    ("pack cifar10", 0): "tests/unit/cli/pack/test_pack.py",
    ("pack imagenet", 0): "tests/unit/cli/pack/test_pack.py",
    ("pack table", 0): "tests/unit/cli/pack/test_tables.py",
    ("pack xrays", 0): "tests/unit/cli/pack/test_xrays.py",
    ("import-batchai", 0): "tests/unit/cli/importing/test_batchai.py",
    ("demo", 0): "tests/twin/test_demo.py",
    ("up", 0): "tests/twin/test_start_and_stop.py",
    ("publish", 0): "tests/contract/local_azure/azure_ml/test_client_resources.py",
    ("hook", 0): "tests/unit/cli/deploy/test_hooks.py",
    ("smoke", 0): "tests/unit/cli/smoke/test_command.py",
    ("upload", 0): "tests/contract/cli/test_upload.py",
    ("watch", 130): "tests/unit/cli/remote/test_watching.py",
}
"""What takes a twin, storage or a special source, and the tests that end with that status."""
Capture = pytest.CaptureFixture[str]


def name_of(line: str) -> str:
    """Return the command of a line of arguments."""
    return max((name for name in NAMES if f"{line} ".startswith(f"{name} ")), key=len)


@pytest.fixture(scope="module")
def app() -> Iterator[tuple[str, dict[str, str]]]:
    """A function app's URL, and what its world has: a registered model, a run that waits, a dead letter."""
    world, run = registered()
    waiting = world.train(version="v2")
    world.jobs.logs[run.run_id] = "epoch 1\n"
    letter = add_letter(world)
    found = {"run": run.run_id, "version": str(run.model_version), "waiting": waiting.run_id, "letter": letter}
    with serving(world) as url:
        yield url, found


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what the local commands read, which is the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("cli.options.running_twin_of_this_clone", lambda: None)
    for name in ("shards", "pictures/cat", "pictures/dog", "pipelines", "empty"):
        Path(name).mkdir(parents=True)
    for split in ("train", "validation"):
        Path("shards", f"{split}-00000-of-00001.tfrecord").write_bytes(framed([labelled(i % 10) for i in range(20)]))
    for name in ("digits.yaml", "clusters.yaml"):
        shutil.copy(REPOSITORY / "pipelines" / name, "pipelines")
    Path("wrong.yaml").write_text("dataset: 5\n")
    for kind in ("cat", "dog"):
        for number in range(4):
            Image.new("RGB", (8, 8), (number, 0, 0)).save(Path("pictures", kind, f"{number}.png"))
    Path("clean.py").write_text("x = 1\n")
    Path("clean.csv").write_text("a\n1\n")
    Path("wrong.py").write_text("import horovod.tensorflow as hvd\nhvd.size()\n")
    cell: dict[str, object] = {"cell_type": "code", "metadata": {}, "outputs": [], "source": ["x = 1"]}
    Path("cells.ipynb").write_text(json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    world, run = registered()
    Path("passport.json").write_text(to_text(passport_of(world, run)))
    return tmp_path


@pytest.mark.parametrize(("path", "command"), [case for case in EVERY if not isinstance(case.values[1], click.Group)])
def test_each_status_that_a_help_states_is_shown(path: tuple[str, ...], command: click.Command) -> None:
    """The help states exactly the cases here, and those in other tests that have the necessary services."""
    name, text = " ".join(path[1:]), " ".join((command.help or "").split())
    stated = re.search(r"Exit status: (.*?)\.(?: |$)", text)
    assert stated is not None, f"{name}: no exit status"
    shown = {2} | {status for status, lines in LOCAL.items() if name in map(name_of, lines)}
    shown |= {status for line, status in BY_ANSWER if name == name_of(line)}
    shown |= {status for other, status in ELSEWHERE if name == other}
    if name in map(name_of, REMOTE):
        shown |= {1} | (set() if name == "watch" else {0})
    assert sorted(shown) == sorted(int(part.split()[0]) for part in stated[1].split("; "))
    assert all((REPOSITORY / file).is_file() for file in ELSEWHERE.values())


@pytest.mark.parametrize("name", NAMES)
def test_wrong_usage_is_2(name: str, capsys: Capture) -> None:
    """Each command refuses an unknown option, and nothing is on standard output."""
    status, out, err = landfall(capsys, *name.split(), "--nonsense")
    assert (2, "", True) == (status, out, "No such option" in err)


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("line", REMOTE)
def test_an_app_that_is_not_there_is_1(line: str, capsys: Capture) -> None:
    """The reason is on standard error or among the findings."""
    named = line.format(run="landfall-x-a1", version="7", waiting="landfall-x-a1", letter="12ab")
    status, out, err = landfall(capsys, *named.split(), "--url", "http://127.0.0.1:9", "--key", "k")
    assert (1, True) == (status, "127.0.0.1:9" in out + err), err


@pytest.mark.parametrize("line", [line for line in REMOTE if line != "watch"])
def test_what_a_function_app_does_is_0(line: str, app: tuple[str, dict[str, str]], capsys: Capture) -> None:
    """With --json, standard output contains only the JSON."""
    url, found = app
    if (line, 0) not in BY_ANSWER:
        status, out, err = landfall(capsys, *line.format(**found).split(), "--json", "--url", url, "--key", "k")
        assert (0, True) == (status, all(json.loads(each) for each in documents(out))), err


def documents(out: str) -> list[str]:
    """Return the JSON documents of an output: one, or one on each line."""
    return [out] if out.startswith("{\n") else out.splitlines()


@pytest.mark.parametrize(("line", "expected"), BY_ANSWER)
def test_the_answer_decides(line: str, expected: int, capsys: Capture) -> None:
    """What was found wrong is no success."""
    answer = BY_ANSWER[line, expected]
    answer = diagnosis(*answer["checks"]) if "checks" in answer else answer  # at the time of this test
    with served(answer, status=200) as url:
        status, _, err = landfall(capsys, *line.split(), "--url", url, "--key", "k")
    assert expected == status, err


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(("expected", "line"), [(status, line) for status, lines in LOCAL.items() for line in lines])
def test_a_command_without_an_app_ends_as_it_says(expected: int, line: str, capsys: Capture) -> None:
    """The commands use files in the working directory."""
    status, out, err = landfall(capsys, *line.split())
    assert expected == status, out + err


def test_a_model_that_differs_is_no_success(capsys: Capture) -> None:
    """One byte of the registered model has changed."""
    world, run = registered()
    world.run_outputs.write(model_file_path(run, "saved_model/weights"), b"weightz")
    with serving(world) as url:
        assert 1 == landfall(capsys, "verify", "digits-cnn", "--url", url)[0]
