"""The command line between the submitter and the training: written by one, read by the other.

Every field of `JobArguments` is one flag, ``per_process_batch_size`` being ``--per-process-batch-size``.
A new option is a new field in `shared.training_options`, and a member of the pipeline's ``train`` section.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from dataclasses import MISSING, Field, asdict, dataclass, fields
from typing import Any, Literal, get_args, get_origin, get_type_hints

from shared.training_options import OptionsError, TrainingOptions

__all__ = ["JobArguments", "TrainingOptions"]


@dataclass(frozen=True, kw_only=True)
class JobArguments(TrainingOptions):
    """The training's whole command line: where things are, and how to train."""

    manifest: str
    """Path of the manifest file."""
    data: str
    """Folder with the shards that the manifest names."""
    report: str
    """Folder for ``training_report.json``."""
    model: str
    """Folder for ``model.keras`` and ``saved_model/``."""
    checkpoints: str
    """Folder that outlives the attempt."""

    def to_argv(self) -> list[str]:
        """Return the flags, one pair for each field, in the order of the fields."""
        argv: list[str] = []
        for name, value in asdict(self).items():
            argv += [_flag(name), str(value)]
        return argv

    def to_command(self, program: str) -> str:
        """Return a shell command; ``${{…}}`` expressions stay bare, for Azure ML to expand."""
        return " ".join([program, *(a if a.startswith("${{") else shlex.quote(a) for a in self.to_argv())])

    @classmethod
    def from_argv(cls, argv: Sequence[str]) -> JobArguments:
        """Read what `to_argv` wrote; prints usage and exits with 2 on anything else (argparse)."""
        parser = argparse.ArgumentParser(prog="training_job.train", allow_abbrev=False)
        hints = get_type_hints(cls)
        for field in fields(cls):
            parser.add_argument(_flag(field.name), **_reading(hints[field.name]), **_presence(field))
        try:
            return cls(**vars(parser.parse_args(argv)))
        except OptionsError as error:
            parser.error(str(error))


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _presence(field: Field[Any]) -> dict[str, Any]:
    return {"required": True} if field.default is MISSING else {"default": field.default}


def _reading(hint: Any) -> dict[str, Any]:
    if get_origin(hint) is Literal:
        return {"choices": get_args(hint)}
    return {"type": _boolean if hint is bool else hint}


def _boolean(text: str) -> bool:
    if text not in ("True", "False"):
        raise argparse.ArgumentTypeError(f"should be True or False, was {text!r}")
    return text == "True"
