"""Users' own training scripts, in the folder ``scripts`` beside the pipelines: found and read, never run here."""

from __future__ import annotations

from pathlib import Path

from horovod_lint import MAX_SCRIPT_BYTES, ScriptError

SUFFIX = ".py"
"""Of a script; whatever else a pipeline names is a module of ours."""


def is_own_script(script: str) -> bool:
    """Whether a pipeline's ``train.script`` names a file of the user's."""
    return script.endswith(SUFFIX)


def has_script(folder: Path, script: str) -> bool:
    """Whether a pipeline's script is there, where it is one of the user's."""
    return not is_own_script(script) or (folder / script).is_file()


def read_script(folder: Path, script: str) -> bytes:
    """Return a script's bytes, one more than allowed at most. Raises ScriptError."""
    try:
        with (folder / script).open("rb") as stream:
            return stream.read(MAX_SCRIPT_BYTES + 1)
    except OSError as error:
        raise ScriptError(
            f"{script}: should be in the folder of the pipelines, cannot be read: {error.strerror}"
        ) from error


def no_scripts(script: str) -> bytes:
    """Stand in for a folder where nobody has one. Raises ScriptError."""
    raise ScriptError(f"{script}: should be in the folder of the pipelines, and there is none")
