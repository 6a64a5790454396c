"""The environment that a pipeline brings for its script: an image, or packages on Landfall's image."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import model_validator

from function_app.config.fields import Section, matching
from function_app.config.yaml_text import MAX_FILE_BYTES, yaml_as_json
from function_app.domain.errors import PipelineError
from shared.safe_text import setting_value

NAME = "landfall-own"
"""Name of the environment asset of which each pipeline's environment is a version."""
IMAGE = re.compile(r"[a-z0-9][a-z0-9._/:-]{0,254}@sha256:[0-9a-f]{64}")
MAX_PACKAGES = 500
_DIGEST_CHARS = 16
_VERSION = r"[A-Za-z0-9][A-Za-z0-9.!+_-]{0,99}"
_PACKAGE = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,98}[A-Za-z0-9])?"
_PIP_PIN = re.compile(rf"{_PACKAGE}(?:\[[A-Za-z0-9._, -]{{1,200}}\])? *== *{_VERSION}(?: *;[^;]{{1,200}})?")
_CONDA_PIN = re.compile(rf"(?:[A-Za-z0-9_-]{{1,50}}::)?{_PACKAGE} *(?:== *{_VERSION}|= *{_VERSION}={_VERSION})")
"""With one `=` and without a build, conda takes any version that begins so: `numpy=2` is also 2.4.1."""
_CONDA_MEMBERS = frozenset({"name", "channels", "dependencies", "variables"})
_FOR_REQUIREMENTS = ("python==3.11.9", "pip==24.2")
"""What a list of pip requirements is installed with: the minor version of Python that Landfall's training has."""


def _by_digest(image: str) -> str:
    if IMAGE.fullmatch(image) is None:
        problem = "names a tag, which may name another image later" if ":" in image else "names no digest"
        raise ValueError(f"{problem}; write REPOSITORY@sha256:DIGEST, which `az acr repository show` prints")
    return image


def _file(suffix: str) -> Any:
    return matching(
        rf"environments/[A-Za-z0-9_][A-Za-z0-9._-]{{0,99}}\.{suffix}",
        f"environments/<file>.{suffix.replace('ya?ml', 'yaml')} in the folder environments beside the pipeline files",
    )


class Environment(Section):
    """What a pipeline's job runs in: one of these."""

    image: str | None = None
    """Image by digest, `REPOSITORY@sha256:DIGEST`, instead of Landfall's."""
    conda: Annotated[str, _file("ya?ml")] | None = None
    """Conda file beside the pipelines, `environments/<file>.yaml`, installed on Landfall's image."""
    requirements: Annotated[str, _file("txt")] | None = None
    """List of pip requirements, `environments/<file>.txt`, installed on Landfall's image with a Python of its own."""

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        stated = [name for name in type(self).model_fields if getattr(self, name) is not None]
        if len(stated) != 1:
            raise ValueError(f"must be one of image, conda and requirements, got {' and '.join(stated) or 'none'}")
        if self.image is not None:
            try:
                _by_digest(self.image)
            except ValueError as error:
                raise ValueError(f"image {setting_value(self.image)} {error}") from error
        return self


@dataclass(frozen=True, kw_only=True)
class OwnEnvironment:
    """An environment whose files were read."""

    image: str | None = None
    """None for Landfall's own."""
    conda_file: str | None = None
    """JSON, which is YAML."""

    def version(self, base: str) -> str:
        """Return the version of its asset: a digest of all that it contains. ``base``: version of Landfall's own."""
        content = json.dumps([self.image or base, self.conda_file])
        return hashlib.sha256(content.encode()).hexdigest()[:_DIGEST_CHARS]


def read_environment(folder: Path, wanted: Environment) -> OwnEnvironment:
    """Return an environment with the content of its file. Raises PipelineError with the problems of the file."""
    if wanted.image is not None:
        return OwnEnvironment(image=wanted.image)
    name = str(wanted.conda or wanted.requirements)
    content = _content(folder / name, name)
    members = _of_conda(content, name) if wanted.conda else _of_pip(content, name)
    return OwnEnvironment(conda_file=json.dumps(members, sort_keys=True))


def _content(path: Path, name: str) -> bytes:
    try:
        with path.open("rb") as stream:
            content = stream.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise PipelineError(f"{name}: cannot be read beside the pipeline files: {error.strerror}") from error
    if len(content) > MAX_FILE_BYTES:
        raise PipelineError(f"{name}: is larger than {MAX_FILE_BYTES} bytes, so it is no list of packages")
    return content


def _of_pip(content: bytes, name: str) -> dict[str, Any]:
    lines = [line.partition(" #")[0].strip() for line in content.decode(errors="replace").splitlines()]
    packages = [line for line in lines if line and not line.startswith("#")]
    _refuse(name, [*_pip_problems(packages), *_count_problems(packages)])
    return {
        "name": NAME,
        "channels": ["conda-forge"],
        "dependencies": [*_FOR_REQUIREMENTS, {"pip": packages}],
    }


def _of_conda(content: bytes, name: str) -> dict[str, Any]:
    members = json.loads(yaml_as_json(content, name))
    listed = members.get("dependencies") if isinstance(members, dict) else None
    if not isinstance(listed, list):
        raise PipelineError(f"{name}: is no conda file, since it has no list of dependencies")
    unknown = members.keys() - _CONDA_MEMBERS
    problems = [f"{setting_value(one)} has no effect here; remove it" for one in sorted(unknown)]
    packages, pip = [one for one in listed if isinstance(one, str)], list[str]()
    for one in (one for one in listed if not isinstance(one, str)):
        found = one.get("pip") if isinstance(one, dict) and set(one) == {"pip"} else None
        if not isinstance(found, list) or not all(isinstance(line, str) for line in found):
            problems.append("dependencies must be texts, and one mapping pip with a list of texts")
        else:
            pip += found
    problems += [
        f"{setting_value(one)} is not pinned; write NAME==VERSION"
        for one in packages
        if not _CONDA_PIN.fullmatch(one)
    ]
    _refuse(name, [*problems, *_pip_problems(pip), *_count_problems([*packages, *pip])])
    return dict(members)


def _pip_problems(packages: Sequence[str]) -> Iterator[str]:
    for one in packages:
        if one.startswith("-"):
            yield f"{setting_value(one)} is an option of pip, which no list of packages has; write NAME==VERSION"
        elif _PIP_PIN.fullmatch(one) is None:
            yield f"{setting_value(one)} is not pinned; write NAME==VERSION"


def _count_problems(packages: Sequence[str]) -> Iterator[str]:
    if not 0 < len(packages) <= MAX_PACKAGES:
        yield f"must list 1 to {MAX_PACKAGES} packages, got {len(packages)}"


def _refuse(name: str, problems: Sequence[str]) -> None:
    if problems:
        more = f"; and {len(problems) - 5} more" if len(problems) > 5 else ""  # noqa: PLR2004
        raise PipelineError(f"{name}: {'; '.join(problems[:5])}{more}")
