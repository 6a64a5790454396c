"""How to train: what a pipeline states and a caller may override within the pipeline's limits.

The training checks what depends on the data; what contradicts itself is refused here, before money is spent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

_TWO = 2
_FIVE = 5


class OptionsError(ValueError):
    """Options contradict each other or leave their bounds; the message names the option and what was expected."""


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """What is trained."""

    model_name: str = "small_cnn"
    """``small_cnn`` or a name of keras.applications, as ``ResNet50``."""
    model_module: str = ""
    """A Python file with a function ``build_model(input_shape, num_classes)``; it goes before the name."""
    task: Literal["multiclass", "binary"] = "multiclass"
    num_classes: int = 10
    pretrained_weights: str = ""
    """Path of a ``.keras`` or ``.weights.h5`` file; a head of another size starts anew."""
    image_height: int = 0
    """Of the model's input; 0: as the manifest says."""
    image_width: int = 0
    image_channels: int = 0
    pixel_mean: str = ""
    """Per channel, between commas, in units of 0 to 255; empty: as the model's authors normalise."""
    pixel_std: str = ""


@dataclass(frozen=True, kw_only=True)
class DataOptions:
    """What it is trained on."""

    label_feature: str = "label"
    image_feature: str = "image"
    label_offset: int = 0
    """Taken off every label; 1 for ImageNet's records, which count classes from 1."""
    train_split: str = "train"
    validation_split: str = "validation"
    synthetic_records: int = 0
    """So many records of random pixels for each epoch instead of the manifest's shards."""
    augmentation: Literal["none", "flip", "crop_flip", "resized_crop_flip"] = "none"
    crop_padding: int = 4
    """Pixels around the image from which ``crop_flip`` crops."""
    shuffle_buffer_records: int = 4096
    remainder: Literal["drop", "pad"] = "drop"
    num_lanes: int = 0
    """Into how many equal parts an epoch is cut; 0: the world size. See training_job/rank_plan.py."""
    cache_folder: str = ""
    """A local folder that keeps shards after the first epoch; empty: no cache."""


@dataclass(frozen=True, kw_only=True)
class OptimizationOptions:
    """How weights change."""

    epochs: int = 10
    per_process_batch_size: int = 32
    gradient_accumulation: int = 1
    """Batches of each process that make one step."""
    optimizer: Literal["adam", "adamw", "sgd", "lars"] = "adam"
    learning_rate: float = 0.001
    reference_batch_size: int = 0
    """The global batch that ``learning_rate`` is meant for: another one scales it linearly. 0: no scaling."""
    warm_up_epochs: float = 0.0
    """Learning-rate warm-up, from the unscaled rate (Goyal et al. 2017)."""
    schedule: Literal["constant", "cosine", "step"] = "constant"
    decay_epochs: str = "30,60,80"
    """Where schedule ``step`` lowers the rate."""
    decay_factor: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 0.0
    """Of kernels; never of biases and normalisation."""
    seed: int = 0
    monitor: Literal["val_loss", "val_accuracy", "val_top5_accuracy", "val_auc"] = "val_loss"
    """What decides on the best epoch, on early stopping and on plateaus."""
    minimum_delta: float = 0.0
    early_stopping_patience: int = 0
    """Epochs without improvement before all ranks stop; 0: never."""
    plateau_patience: int = 0
    """Epochs without improvement before the rate is lowered; 0: never."""
    plateau_factor: float = 0.1
    export: Literal["last", "best"] = "last"


@dataclass(frozen=True, kw_only=True)
class MachineOptions:
    """How the machines are used; none of it changes what is computed, but for rounding."""

    mixed_precision: Literal["none", "float16", "bfloat16"] = "none"
    fp16_compression: bool = False
    """Gradients travel as float16."""
    xla: bool = False
    deterministic_ops: bool = False
    """TensorFlow picks kernels that repeat to the bit; slower on GPUs."""
    fusion_threshold_mb: int = 0
    """Horovod's fusion buffer; 0: its own default, and 1 MiB on CPUs."""
    cycle_time_ms: float = 0.0
    """Between two of Horovod's negotiations; 0: its own default, and 20 ms for keras.applications on CPUs."""
    autotune: bool = False
    timeline: bool = False
    """Horovod's timeline beside the report."""
    checkpoint_steps: int = 0
    """Steps between two checkpoints within an epoch; 0: at epochs' ends only."""
    checkpoint_minutes: float = 0.0
    """Minutes between two checkpoints within an epoch; 0: at epochs' ends only."""
    checkpoints_kept: int = 3
    stall_timeout_s: float = 300.0
    """How long a rank may be silent before the job ends with its name."""
    measure_communication: bool = True
    """Time a few steps without exchange at the end, to state what the exchange costs."""
    tensorboard: bool = True
    mlflow: bool = False
    """Log to MLflow also where Azure ML names no server: into files beside the report."""


@dataclass(frozen=True, kw_only=True)
class TrainingOptions(MachineOptions, OptimizationOptions, DataOptions, ModelOptions):
    """All options, each with the default that a pipeline may leave it at."""

    def __post_init__(self) -> None:
        """Raise OptionsError with all that is wrong at once."""
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
        f"{name} should be {expected}, was {getattr(options, name)}"
        for names, expected, holds in _BOUNDS
        for name in names
        if not holds(getattr(options, name))
    ]


def _contradictions(options: TrainingOptions) -> list[str]:
    rules = (
        (options.task == "binary" and options.num_classes != _TWO, "task binary should have num_classes 2"),
        (options.monitor == "val_auc" and options.task != "binary", "monitor val_auc belongs to task binary"),
        (
            options.monitor == "val_top5_accuracy" and options.num_classes <= _FIVE,
            "monitor val_top5_accuracy needs more than 5 classes",
        ),
        (options.warm_up_epochs > options.epochs, "warm_up_epochs should be at most epochs"),
        (bool(options.pixel_mean) != bool(options.pixel_std), "pixel_mean and pixel_std go together"),
        (_numbers(options.pixel_mean) is None, "pixel_mean should be numbers between commas"),
        (_numbers(options.pixel_std) is None, "pixel_std should be numbers between commas"),
        (_numbers(options.decay_epochs) is None, "decay_epochs should be numbers between commas"),
    )
    return [words for wrong, words in rules if wrong]


def _numbers(text: str) -> tuple[float, ...] | None:
    try:
        return numbers(text)
    except ValueError:
        return None


def numbers(text: str) -> tuple[float, ...]:
    """Read numbers between commas; an empty text has none. Raises ValueError."""
    return tuple(float(part) for part in text.split(",")) if text else ()
