"""What a deployment carries: .funcignore takes away nothing that the app needs, and much that it does not."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pathspec
import pytest

from local_azure.twin.parts import FUNCTION_THREADS
from tests.architecture.trees import ROOT, run_python

pytestmark = pytest.mark.processes

PACKAGES = ("function_app", "shard_validation", "horovod_lint", "shared")
FUNCTIONS = [
    "api_docs",
    "health",
    "http_api",
    "pages",
    "reconcile",
    "run_changed",
    "shard_uploaded",
    "shard_uploaded_bulk",
    "sweep_requested",
    "training_requested",
]
IMPORT_ALL = """
import importlib, json, pathlib, sys
names = sorted(
    ".".join(path.with_suffix("").parts).removesuffix(".__init__")
    for package in sys.argv[1:] for path in pathlib.Path(package).rglob("*.py")
)
modules = [importlib.import_module(name) for name in names]
print(json.dumps({name: module.__file__ for name, module in zip(names, modules)}))
"""
LIST_FUNCTIONS = """
import json
import function_app
print(json.dumps(sorted(function.get_function_name() for function in function_app.app.get_functions())))
"""


def left_behind() -> pathspec.GitIgnoreSpec:
    """What .funcignore keeps at home."""
    return pathspec.GitIgnoreSpec.from_lines((ROOT / ".funcignore").read_text(encoding="utf-8").splitlines())


def deployed_files() -> list[str]:
    """Tracked files that .funcignore lets through."""
    ignored = left_behind()
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout.decode().split("\0")
    return sorted({name for name in names if name and not ignored.match_file(name) and (ROOT / name).is_file()})


@pytest.fixture
def deployment(tmp_path: Path) -> Path:
    """The tree as it would be uploaded."""
    for name in deployed_files():
        target = tmp_path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, target)
    return tmp_path


def test_the_deployed_tree_has_all_functions(deployment: Path) -> None:
    """The host indexes the app from the uploaded files alone, without a single setting."""
    ended = run_python(LIST_FUNCTIONS, cwd=deployment)
    assert 0 == ended.returncode, ended.stderr
    assert FUNCTIONS == json.loads(ended.stdout)


def test_everything_that_the_app_imports_is_deployed(deployment: Path) -> None:
    """Triggers import when they are called: here every module is imported, and with it every module that it needs."""
    ended = run_python(IMPORT_ALL.replace("sys.argv[1:]", repr(PACKAGES)), cwd=deployment)
    assert 0 == ended.returncode, ended.stderr
    imported = json.loads(ended.stdout)
    assert [] == [file for file in imported.values() if not file.startswith(str(deployment))]
    needed = {path for package in PACKAGES for path in (ROOT / package).rglob("*.py")}
    left = {path.relative_to(ROOT).as_posix() for path in needed} - set(deployed_files())
    assert {"function_app/testing"} == {name.rpartition("/")[0] for name in left}


def test_a_deployment_carries_only_what_the_app_reads() -> None:
    """Code, pages, pipelines, three files for the host and the installation; no tests, nothing of the training."""
    assert {".py", ".yaml", ".json", ".txt", ".html", ".css", ".js", ".svg"} == {
        Path(name).suffix for name in deployed_files()
    }
    parts = {part for name in deployed_files() for part in Path(name).parts}
    assert [] == [part for part in parts if part.startswith("test") or part in ("training_job", "tools", "bench")]


def test_a_deployment_carries_nothing_else() -> None:
    """Tests, tools, the twin and the training code stay at home."""
    top_levels = {name.split("/")[0] for name in deployed_files()}
    expected = {
        "constraints.txt",
        "function_app",
        "function_app.py",
        "horovod_lint",
        "host.json",
        "pipelines",
        "requirements.txt",
        "shard_validation",
        "shared",
    }
    assert expected == top_levels


def test_the_in_memory_ports_are_not_deployed() -> None:
    """They are for tests, and nothing in production imports them."""
    assert [] == [name for name in deployed_files() if name.startswith("function_app/testing/")]


def test_users_scripts_are_deployed_with_their_pipelines() -> None:
    """They are looked at before a job is submitted."""
    assert not left_behind().match_file("pipelines/scripts/mine.py")


def test_the_host_file_says_what_the_code_relies_on() -> None:
    """The catch-all HTTP route needs an empty prefix, Event Grid writes base64, the fifth delivery is the last."""
    host = json.loads((ROOT / "host.json").read_text(encoding="utf-8"))
    queues = host["extensions"]["queues"]
    seen = (host["extensions"]["http"]["routePrefix"], queues["messageEncoding"], queues["maxDequeueCount"])
    assert ("", "base64", 5) == seen


def test_an_instance_validates_one_shard_at_a_time() -> None:
    """Its 2,048 MB have one core: at once, validations would only take longer, while leases and time budgets run.

    A threshold above 0 would start the next one before the first has ended.
    """
    queues = json.loads((ROOT / "host.json").read_text(encoding="utf-8"))["extensions"]["queues"]
    assert (1, 0) == (queues["batchSize"], queues["newBatchThreshold"])


def test_the_host_file_has_no_block_that_the_host_ignores() -> None:
    """Because of OpenTelemetry, the exporter samples, and the host ignores ``logging.applicationInsights``."""
    host = json.loads((ROOT / "host.json").read_text(encoding="utf-8"))
    assert host.get("telemetryMode") != "OpenTelemetry" or "applicationInsights" not in host["logging"]


def test_every_function_has_a_thread_where_one_instance_runs_all() -> None:
    """The twin is such an instance; a sweep must not delay `health`. The HTTP API and its page need no thread."""
    example = json.loads((ROOT / "local.settings.json.example").read_text(encoding="utf-8"))["Values"]
    at_once = len(FUNCTIONS) - 2
    assert at_once <= FUNCTION_THREADS == int(example["PYTHON_THREADPOOL_THREAD_COUNT"])


@pytest.mark.slow
@pytest.mark.parametrize("python", ["3.11", "3.12"])
def test_every_package_has_a_wheel_for_the_oldest_library_of_the_runtime(python: str, tmp_path: Path) -> None:
    """Functions' Python 3.11 has glibc 2.31: the pinned versions must be there as wheels, built for it or older.

    Asks the package index, as a build does.
    """
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    [command] = re.findall(r"^python -m pip install --target .*?[^\\]$", page, re.DOTALL | re.MULTILINE)
    words = shlex.split(command.replace("\\\n", " "))[1:]
    assert "manylinux_2_28_x86_64" in words
    assert not [word for word in words if word.startswith("manylinux_2_3") and word > "manylinux_2_31_x86_64"]
    words[words.index("--python-version") + 1] = python
    report = tmp_path / "report.json"
    more = ["--dry-run", "--quiet", "--ignore-installed", "--report", str(report)]
    ended = subprocess.run([sys.executable, *words, *more], cwd=ROOT, check=False, capture_output=True, text=True)
    assert 0 == ended.returncode, ended.stderr
    urls = [one["download_info"]["url"] for one in json.loads(report.read_text())["install"]]
    assert len(urls) > 50
    assert [] == [url for url in urls if not url.endswith(".whl")]
