"""What `import function_app` brings along, since every cold start pays for it."""

from __future__ import annotations

import json

import pytest

from tests.architecture.trees import OUR_PACKAGES, ROOT, run_python

pytestmark = pytest.mark.processes

HEAVY = (
    "azure.ai.ml",
    "azure.core",
    "fastapi",
    "google.protobuf",
    "numpy",
    "PIL",
    "pyarrow",
    "pydantic",
    "tensorflow",
)
FOR_INVOCATIONS = (
    "function_app.config.pipelines",
    "horovod_lint",
    "function_app.ingest",
    "function_app.runs",
    "function_app.sweep",
    "shard_validation",
)
"""Modules of this project that indexing does not need."""
LIST_HEAVY = f"""
import json, sys
import function_app
print(json.dumps([name for name in {(*HEAVY, *FOR_INVOCATIONS)!r} if name in sys.modules]))
"""


def test_importing_the_app_loads_nothing_heavy() -> None:
    """SDKs, models and validation are imported by the first invocation, not when the host indexes the functions."""
    ended = run_python(LIST_HEAVY)
    assert (0, "") == (ended.returncode, ended.stderr)
    assert [] == json.loads(ended.stdout)


@pytest.mark.parametrize("package", OUR_PACKAGES)
def test_no_installed_distribution_shadows_a_package_of_ours(package: str) -> None:
    """Site-packages comes before the app's folder in some hosts: a wheel of the same name would win."""
    code = f"import importlib.util, json; spec = importlib.util.find_spec({package!r}); print(json.dumps(bool(spec)))"
    ended = run_python(code, cwd=ROOT / "docs")
    assert "false" == ended.stdout.strip(), f"{package} is importable without this repository: {ended.stderr}"


def test_the_package_wins_over_the_marker_file() -> None:
    """The host wants to see function_app.py and imports the package of that name."""
    ended = run_python("import function_app; print(function_app.__file__)")
    assert str(ROOT / "function_app" / "__init__.py") == ended.stdout.strip(), ended.stderr
    assert (ROOT / "function_app.py").is_file()
