"""Environments that pipelines bring: exact, or refused with a word on what to write."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from function_app.config.environments import Environment, OwnEnvironment, read_environment
from function_app.config.pipeline_files import folder_mark, read_pipelines
from function_app.domain.errors import PipelineError

IMAGE = f"r.azurecr.io/mine@sha256:{'a' * 64}"


def written(folder: Path, name: str, text: str) -> Environment:
    """Write a file of packages; return the section that names it."""
    (folder / "environments").mkdir(exist_ok=True)
    (folder / "environments" / name).write_text(text)
    member = "requirements" if name.endswith(".txt") else "conda"
    return Environment.model_validate_json(json.dumps({member: f"environments/{name}"}))


def test_pip_requirements_become_a_conda_file_that_says_all(tmp_path: Path) -> None:
    """Python and pip have stated versions; comments and empty lines do not matter."""
    text = "# ours\nnumpy==2.0.1\n\nscipy[all]==1.14 ; python_version > '3.8'  # why\n"
    own = read_environment(tmp_path, written(tmp_path, "own.txt", text))
    assert (
        None,
        ["python==3.11.9", "pip==24.2", {"pip": ["numpy==2.0.1", "scipy[all]==1.14 ; python_version > '3.8'"]}],
    ) == (
        own.image,
        json.loads(own.conda_file or "")["dependencies"],
    )


def test_the_version_follows_the_content_and_what_it_is_installed_on(tmp_path: Path) -> None:
    """The same content under another name is the same environment; an image does not depend on Landfall's."""
    same = [read_environment(tmp_path, written(tmp_path, name, "a==1\n")) for name in ("a.txt", "b.txt")]
    other = read_environment(tmp_path, written(tmp_path, "c.txt", "a==2\n"))
    assert 1 == len({own.version("base") for own in same})
    assert 3 == len({same[0].version("base"), same[0].version("other"), other.version("base")})
    image = OwnEnvironment(image=IMAGE)
    assert image.version("base") == image.version("other")


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.txt", "numpy\n", "'numpy' is not pinned; write NAME==VERSION"),
        ("a.txt", "numpy>=1\n", "is not pinned"),
        ("a.txt", "numpy==1.*\n", "is not pinned"),
        ("a.txt", "numpy==1 $(x)\n", "is not pinned"),
        ("a.txt", "--index-url https://x\n", "is an option of pip"),
        ("a.txt", "git+https://x/y.git\n", "is not pinned"),
        ("a.txt", "# nothing\n", "must list 1 to 500 packages, got 0"),
        ("a.txt", "a==1\n" * 501, "got 501"),
        ("a.txt", "a" * (300 << 10), "is larger than"),
        ("a.yaml", "dependencies: [numpy]\n", "'numpy' is not pinned; write NAME==VERSION"),
        ("a.yaml", "dependencies: [numpy=2.0.2]\n", "'numpy=2.0.2' is not pinned; write NAME==VERSION"),
        ("a.yaml", "dependencies: [{pip: [numpy]}]\n", "'numpy' is not pinned; write NAME==VERSION"),
        ("a.yaml", "dependencies: [3, a==1]\n", "must be texts, and one mapping pip"),
        ("a.yaml", "prefix: /x\ndependencies: [a==1]\n", "'prefix' has no effect here; remove it"),
        ("a.yaml", "- a=1\n", "is no conda file"),
        ("a.yaml", "dependencies: [a=1\n", "not valid YAML"),
    ],
)
def test_what_would_not_be_exact_or_does_not_install_is_refused(
    tmp_path: Path, name: str, text: str, words: str
) -> None:
    """The message is one bounded line that begins with the file."""
    with pytest.raises(PipelineError) as refused:
        read_environment(tmp_path, written(tmp_path, name, text))
    assert (True, True) == (str(refused.value).startswith(f"environments/{name}: "), words in str(refused.value))
    assert len(str(refused.value)) < 1000


def test_a_conda_file_is_taken_over(tmp_path: Path) -> None:
    """Channels, builds and a list for pip too."""
    text = "channels: [conda-forge]\ndependencies: [python==3.11.9, 'conda-forge::a=1=h_0', {pip: [b==2]}]\n"
    own = read_environment(tmp_path, written(tmp_path, "a.yaml", text))
    assert ["python==3.11.9", "conda-forge::a=1=h_0", {"pip": ["b==2"]}] == json.loads(own.conda_file or "")[
        "dependencies"
    ]


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ("{image: 'r.azurecr.io/mine:1'}", "names a tag, which may name another image later"),
        ("{image: mine}", "names no digest; write REPOSITORY@sha256:DIGEST"),
        ("{}", "must be one of image, conda and requirements, got none"),
        (f"{{image: '{IMAGE}', conda: environments/a.yaml}}", "got image and conda"),
        ("{requirements: ../a.txt}", "must be environments/<file>.txt in the folder environments"),
        ("{requirements: environments/absent.txt}", "environments/absent.txt: cannot be read beside the pipeline"),
        ("{packages: [numpy]}", "train.environment.packages"),
    ],
)
def test_a_wrong_section_takes_its_pipeline_out_of_service(tmp_path: Path, section: str, words: str) -> None:
    """The error names the line of the field before any node is requested."""
    shipped = Path(__file__).parents[4] / "pipelines"
    (tmp_path / "clusters.yaml").write_bytes((shipped / "clusters.yaml").read_bytes())
    text = (shipped / "digits.yaml").read_text()
    (tmp_path / "digits.yaml").write_text(text.replace("train:\n", f"train:\n  environment: {section}\n"))
    [problems] = read_pipelines(tmp_path).out_of_service.values()
    assert any(one.startswith("digits.yaml: train.environment") and words in one for one in problems), problems
    assert all("(line " in one for one in problems)


def test_a_changed_list_of_packages_is_noticed(tmp_path: Path) -> None:
    """Pipelines are read again when a file beside them changes."""
    before = folder_mark(tmp_path)
    written(tmp_path, "a.txt", "a==1\n")
    assert before != folder_mark(tmp_path)
