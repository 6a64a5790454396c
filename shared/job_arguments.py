"""The training's options, and the command line that passes them from the submitter to the training.

A pipeline sets the options, and a caller may override them within the pipeline's limits. Options that contradict each
other are refused here, before a job starts; the training checks the options that depend on the data. A new option is
a new field here and a member of the pipeline's ``train`` section.
"""

from __future__ import annotations

import argparse
import math
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, asdict, dataclass, fields
from typing import Any, Literal, get_args, get_origin, get_type_hints

_TWO = 2
_FIVE = 5
SCRIPT_PATHS = ("data", "manifest", "output", "checkpoint", "report")
"""Paths that a user's own script receives, in the order of its flags; see ScriptArguments."""
SIMULATED = "LANDFALL_SIMULATED_"
"""Prefix of the variables with which the local twin describes its nodes. Pipelines and jobs may not set them."""
SIMULATED_LOCAL_SIZE = "LANDFALL_SIMULATED_LOCAL_SIZE"
"""Number of ranks on each simulated node."""
SIMULATED_GPUS = "LANDFALL_SIMULATED_GPUS"
"""Number of simulated GPUs of each node."""


class OptionsError(ValueError):
    """Options contradict each other or are out of bounds; the message names the option and the bound."""


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """Options of the model and its input."""

    model_name: str = "small_cnn"
    """Model to train: ``small_cnn``, or a model of keras.applications such as ``ResNet50``."""
    model_module: str = ""
    """Python file with a function ``build_model(input_shape, num_classes)``; replaces ``model_name``."""
    task: Literal["multiclass", "binary"] = "multiclass"
    """Kind of the labels."""
    num_classes: int = 10
    """Number of classes, which is the width of the last layer."""
    pretrained_weights: str = ""
    """Path of a ``.keras`` or ``.weights.h5`` file to start from; a last layer of another size is not loaded."""
    image_height: int = 0
    """Height of the model's input in pixels; 0: from the manifest."""
    image_width: int = 0
    """Width of the model's input in pixels; 0: from the manifest."""
    image_channels: int = 0
    """Channels of the model's input; 0: from the manifest."""
    pixel_mean: str = ""
    """Mean per channel, separated by commas, from 0 to 255; empty: the normalisation of the model's authors."""
    pixel_std: str = ""
    """Standard deviation per channel, separated by commas, from 0 to 255."""

    @property
    def reported_metrics(self) -> tuple[str, ...]:
        """Names of the metrics in the report of Landfall's training; those of the validation begin with ``val_``."""
        if self.task == "binary":
            return ("loss", "accuracy", "auc")
        return ("loss", "accuracy", "top5_accuracy") if self.num_classes > _FIVE else ("loss", "accuracy")


@dataclass(frozen=True, kw_only=True)
class DataOptions:
    """Options of the training data."""

    label_feature: str = "label"
    """Feature that contains the label."""
    image_feature: str = "image"
    """Feature that contains the image."""
    label_offset: int = 0
    """Number to subtract from every label; 1 for ImageNet's records, which count classes from 1."""
    train_split: str = "train"
    """Split to train on."""
    validation_split: str = "validation"
    """Split to evaluate on."""
    synthetic_records: int = 0
    """Number of records with random pixels in each epoch, instead of the manifest's shards; 0: none."""
    augmentation: Literal["none", "flip", "crop_flip", "resized_crop_flip"] = "none"
    """Random changes to the images of the training split."""
    crop_padding: int = 4
    """Pixels that ``crop_flip`` adds around the image before it crops."""
    shuffle_buffer_records: int = 4096
    """Size of each process's shuffle buffer in records."""
    remainder: Literal["drop", "pad"] = "drop"
    """What to do with the last records of an epoch that do not fill a step."""
    num_lanes: int = 0
    """Number of equal parts that an epoch is split into; 0: the world size. See training_job/rank_plan.py."""
    cache_folder: str = ""
    """Local folder that keeps shards after the first epoch; empty: no cache."""


@dataclass(frozen=True, kw_only=True)
class OptimizationOptions:
    """Options of the optimization."""

    epochs: int = 10
    """Number of passes over the training split."""
    per_process_batch_size: int = 32
    """Records per process and batch; the global batch size is this times the world size."""
    gradient_accumulation: int = 1
    """Batches of each process in one step."""
    optimizer: Literal["adam", "adamw", "sgd", "lars"] = "adam"
    """Optimizer to train with."""
    learning_rate: float = 0.001
    """Learning rate of the optimizer, before warm-up and schedule."""
    reference_batch_size: int = 0
    """Global batch size that ``learning_rate`` applies to; others scale it linearly. 0: no scaling."""
    warm_up_epochs: float = 0.0
    """Epochs in which the learning rate rises from the unscaled rate (Goyal et al. 2017)."""
    schedule: Literal["constant", "cosine", "step"] = "constant"
    """How the learning rate decreases."""
    decay_epochs: str = "30,60,80"
    """Epochs after which schedule ``step`` lowers the learning rate, separated by commas."""
    decay_factor: float = 0.1
    """Factor by which schedule ``step`` multiplies the learning rate."""
    momentum: float = 0.9
    """Momentum of ``sgd`` and ``lars``."""
    weight_decay: float = 0.0
    """Weight decay of kernels; biases and normalisation have none."""
    seed: int = 0
    """Seed for weights, shuffling and augmentation; the same seed gives the same values."""
    monitor: Literal["val_loss", "val_accuracy", "val_top5_accuracy", "val_auc"] = "val_loss"
    """Metric that decides about the best epoch, early stopping and plateaus."""
    minimum_delta: float = 0.0
    """Smallest change of the metric that counts as an improvement."""
    early_stopping_patience: int = 0
    """Epochs without improvement before all ranks stop; 0: never."""
    plateau_patience: int = 0
    """Epochs without improvement before the learning rate is lowered; 0: never."""
    plateau_factor: float = 0.1
    """Factor by which the learning rate is multiplied on a plateau."""
    export: Literal["last", "best"] = "last"
    """Epoch whose weights become the model."""


@dataclass(frozen=True, kw_only=True)
class MachineOptions:
    """Options of the machines; they do not change what is computed, except for rounding."""

    mixed_precision: Literal["none", "float16", "bfloat16"] = "none"
    """Reduced precision to compute in."""
    fp16_compression: bool = False
    """Send gradients as float16."""
    xla: bool = False
    """Compile the training step with XLA."""
    deterministic_ops: bool = False
    """Use TensorFlow kernels whose results are the same bit for bit; slower on GPUs."""
    fusion_threshold_mb: int = 0
    """Size of Horovod's fusion buffer in MiB; 0: Horovod's default, and 1 MiB on CPUs."""
    cycle_time_ms: float = 0.0
    """Time between Horovod's negotiations; 0: Horovod's default, and 20 ms for keras.applications on CPUs."""
    autotune: bool = False
    """Let Horovod tune its settings during the training."""
    timeline: bool = False
    """Write Horovod's timeline next to the report."""
    checkpoint_steps: int = 0
    """Steps between checkpoints within an epoch; 0: only at the end of an epoch."""
    checkpoint_minutes: float = 0.0
    """Minutes between checkpoints within an epoch; 0: only at the end of an epoch."""
    checkpoints_kept: int = 3
    """Number of newest checkpoints to keep."""
    stall_timeout_s: float = 300.0
    """Seconds that a rank may be silent before the job ends and names it."""
    measure_communication: bool = True
    """Measure a few steps without communication at the end, to report what communication costs."""
    tensorboard: bool = True
    """Write TensorBoard summaries next to the report."""
    mlflow: bool = False
    """Log to MLflow files next to the report if Azure ML provides no tracking server."""


@dataclass(frozen=True, kw_only=True)
class TrainingOptions(MachineOptions, OptimizationOptions, DataOptions, ModelOptions):
    """All training options with their defaults."""

    def __post_init__(self) -> None:
        """Raise OptionsError with all problems."""
        found = [*_out_of_bounds(self), *_contradictions(self)]
        if found:
            raise OptionsError("; ".join(found))


_AT_LEAST_ONE = ("epochs", "per_process_batch_size", "gradient_accumulation", "checkpoints_kept")
_NOT_NEGATIVE = (
    "image_height",
    "image_width",
    "image_channels",
    "synthetic_records",
    "crop_padding",
    "num_lanes",
    "reference_batch_size",
    "warm_up_epochs",
    "weight_decay",
    "minimum_delta",
    "early_stopping_patience",
    "plateau_patience",
    "fusion_threshold_mb",
    "cycle_time_ms",
    "checkpoint_steps",
    "checkpoint_minutes",
)
_ABOVE_ZERO = ("learning_rate", "decay_factor", "plateau_factor", "stall_timeout_s", "shuffle_buffer_records")
_BOUNDS: tuple[tuple[tuple[str, ...], str, Callable[[float], bool]], ...] = (
    (_AT_LEAST_ONE, "at least 1", lambda value: value >= 1),
    (_NOT_NEGATIVE, "0 or more", lambda value: value >= 0),
    (_ABOVE_ZERO, "above 0", lambda value: value > 0),
    (("momentum",), "0 or more, below 1", lambda value: 0 <= value < 1),
    (("num_classes",), "at least 2", lambda value: value >= _TWO),
)


def _out_of_bounds(options: TrainingOptions) -> list[str]:
    return [
        f"{name} must be {'a finite number' if value == math.inf else expected}, got {value}"
        for names, expected, holds in _BOUNDS
        for name in names
        for value in [getattr(options, name)]
        if not holds(value) or value == math.inf
    ]


def _contradictions(options: TrainingOptions) -> list[str]:
    rules = (
        (options.task == "binary" and options.num_classes != _TWO, "task binary needs num_classes 2"),
        (options.monitor == "val_auc" and options.task != "binary", "monitor val_auc needs task binary"),
        (
            options.monitor == "val_top5_accuracy" and options.num_classes <= _FIVE,
            "monitor val_top5_accuracy needs more than 5 classes",
        ),
        (options.warm_up_epochs > options.epochs, "warm_up_epochs must be at most epochs"),
        (bool(options.pixel_mean) != bool(options.pixel_std), "pixel_mean and pixel_std must be set together"),
        (_numbers(options.pixel_mean) is None, "pixel_mean must be finite numbers separated by commas"),
        (_numbers(options.pixel_std) is None, "pixel_std must be finite numbers separated by commas"),
        (_numbers(options.decay_epochs) is None, "decay_epochs must be finite numbers separated by commas"),
    )
    return [words for wrong, words in rules if wrong]


def _numbers(text: str) -> tuple[float, ...] | None:
    try:
        return numbers(text)
    except ValueError:
        return None


def numbers(text: str) -> tuple[float, ...]:
    """Return the numbers in a text, separated by commas; an empty text has none.

    Raises ValueError if one is not a finite number.
    """
    found = tuple(float(part) for part in text.split(",")) if text else ()
    if not all(map(math.isfinite, found)):
        raise ValueError(f"expected finite numbers, got {text}")
    return found


@dataclass(frozen=True, kw_only=True)
class JobArguments(TrainingOptions):
    """The training's whole command line: paths and options.

    Each field is one flag: ``per_process_batch_size`` is ``--per-process-batch-size``.
    """

    manifest: str
    """Path of the manifest file."""
    data: str
    """Folder with the shards that the manifest names."""
    report: str
    """Folder for ``training_report.json``."""
    model: str
    """Folder for ``model.keras`` and ``saved_model/``."""
    checkpoints: str
    """Folder that is kept after the attempt."""
    expected_world_size: int = 0
    """Number of ranks that the job was submitted with; 0: any number."""
    expected_nodes: int = 0
    """Number of nodes that the job was submitted with; 0: any number."""
    expected_device: Literal["any", "gpu", "cpu"] = "any"
    """Device of each rank; with ``gpu`` a rank without a GPU ends the job."""

    def to_argv(self) -> list[str]:
        """Return the flags, one pair for each field, in the order of the fields."""
        argv: list[str] = []
        for name, value in asdict(self).items():
            argv += [_flag(name), str(value)]
        return argv

    def to_command(self, program: str) -> str:
        """Return a shell command."""
        return _command(program, self.to_argv())

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


@dataclass(frozen=True, kw_only=True)
class ScriptArguments:
    """The command line of `training_job.machines`, which checks the machines and then becomes a user's own script.

    The script gets the paths as flags of the same names and as environment variables, such as ``LANDFALL_DATA``.
    """

    data: str
    """Folder with the shards; empty for a pipeline on synthetic data."""
    manifest: str
    """File that lists the shards; see `shared.manifest`."""
    output: str
    """Folder whose content becomes the model."""
    checkpoint: str
    """Folder that is kept after the attempt."""
    report: str
    """File to write the metrics to, as JSON."""
    arguments: tuple[str, ...] = ()
    """What the pipeline adds."""
    files: str = ""
    """Folder with the files that the pipeline brings; empty: none. A flag of the script's too, with the paths."""
    pass_paths: bool = True
    """Whether the script gets the paths as flags too."""
    expected_world_size: int
    expected_nodes: int
    expected_device: Literal["any", "gpu", "cpu"]

    def to_command(self, script: str) -> str:
        """Return a shell command that ends with the expected machines."""
        expected = [
            *((_FILES, self.files) if self.files else ()),
            *("--pass-paths", str(self.pass_paths)),
            *("--expected-world-size", str(self.expected_world_size)),
            *("--expected-nodes", str(self.expected_nodes)),
            *("--expected-device", self.expected_device),
        ]
        return _command(f"python -m training_job.machines {script}", [*self._paths(), *self.arguments, *expected])

    def to_script(self) -> list[str]:
        """Return the script's words: its arguments and, unless switched off, the flags with the paths."""
        files = ("--files", self.files) if self.files else ()
        return [*((*self._paths(), *files) if self.pass_paths else ()), *self.arguments]

    def environment(self) -> dict[str, str]:
        """Return the paths as environment variables."""
        paths = {f"LANDFALL_{name.upper()}": getattr(self, name) for name in SCRIPT_PATHS}
        return {**paths, **({"LANDFALL_FILES": self.files} if self.files else {})}

    @classmethod
    def from_argv(cls, argv: Sequence[str]) -> ScriptArguments:
        """Read the words after the script's name; exits with 2 on anything else (argparse)."""
        parser = argparse.ArgumentParser(prog="training_job.machines", allow_abbrev=False)
        for name in SCRIPT_PATHS:
            parser.add_argument(_flag(name), required=True)
        parser.add_argument("--pass-paths", type=_boolean, required=True)
        for name, kind in (("expected_world_size", int), ("expected_nodes", int), ("expected_device", str)):
            parser.add_argument(_flag(name), type=kind, required=True)
        parser.add_argument(_FILES, dest="files", default="")
        start, end = _TWO * len(SCRIPT_PATHS), -_TWO * 4
        if _FILES in argv[end - _TWO : end - 1]:
            end -= _TWO
        # All words in between belong to the script, even if they look like flags.
        known = parser.parse_args([*argv[:start], *argv[end:]])
        return cls(**vars(known), arguments=tuple(argv[start:end]))

    def _paths(self) -> list[str]:
        return [word for name in SCRIPT_PATHS for word in (_flag(name), getattr(self, name))]


_FILES = "--landfall-files"
"""Not named ``--files``, because a word before it may be the script's own argument of that name."""
_EXPRESSION = re.compile(r"\$\{\{\w+\.\w+\}\}[\w./-]*")
"""A whole word with an optional path after the expression; any other text would reach the shell."""


def _command(program: str, argv: Sequence[str]) -> str:
    """Return a shell command; ``${{…}}`` expressions stay bare, for Azure ML to expand."""
    return " ".join([program, *(word if _EXPRESSION.fullmatch(word) else shlex.quote(word) for word in argv)])


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
        raise argparse.ArgumentTypeError(f"expected True or False, got {text!r}")
    return text == "True"
