"""Pipelines: one YAML file for each dataset, typed and validated when they are loaded.

What a file may say is written down here; ``pipeline_files.py`` reads the text and words the errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from function_app.config.pipeline_texts import (
    Compute,
    Container,
    FeatureName,
    ModelName,
    Name,
    Script,
    Split,
    VariableName,
    VmSizeName,
    matching,
)
from function_app.domain.failures import RETRYING, FailureClass, Remedy
from shard_validation import CountsPolicy, DataRequirements, DriftPolicy, ImagePolicy, Limits
from shared.example_schema import Encoding, FeatureKind, FeatureSpec, RawDtype
from shared.job_arguments import TrainingOptions
from shared.manifest import SYNTHETIC, Format

OPTION_NAMES = tuple(field.name for field in fields(TrainingOptions))
MAX_NODES = 100
"""Azure ML's own limit for one MPI run."""
MAX_PATIENCE_S = 365 * 24 * 3600
MAX_ATTEMPTS = 10
MAX_TIMEOUT_S = 21 * 24 * 3600
"""Azure ML's own limit for a job."""


OptionName = Annotated[str, matching("|".join(OPTION_NAMES), "one of the options: " + ", ".join(OPTION_NAMES))]
Number = int | float
UNNAMED = "-"
"""A feature does not know the key it stands under; error messages have the key in their path."""


class Section(BaseModel):
    """A part of a pipeline: nothing unknown, nothing coerced, nothing changed afterwards."""

    # Built at the first file: every cold start imports this module, and most of its time would go into building.
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)


class Feature(Section):
    """What one feature of an example must be; see ``shared.example_schema``."""

    kind: FeatureKind
    shape: tuple[int | None, ...] = ()
    required: bool = True
    encoding: Encoding | None = None
    dtype: RawDtype | None = None
    minimum: Number | None = None
    maximum: Number | None = None
    allowed: tuple[Number | str, ...] = ()

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        self.named(UNNAMED)
        return self

    def named(self, name: str) -> FeatureSpec:
        """Return the contract's own form. Raises SchemaError where the feature contradicts itself."""
        return FeatureSpec(name=name, **{field: getattr(self, field) for field in type(self).model_fields})


class Data(Section):
    """What a dataset version must be to be trained on."""

    format: Format
    splits: tuple[Split, ...] = Field(default=(), max_length=16)
    """The version is whole when each of them has all of its ``-of-N`` shards; required but for ``synthetic``."""
    features: dict[FeatureName, Feature] = Field(default_factory=dict, max_length=1000)
    label_feature: str | None = None
    images: ImagePolicy = ImagePolicy()
    limits: Limits = Limits()
    counts: CountsPolicy = "if_stated"
    small_shard_ratio: float = 0.1
    drift: DriftPolicy = DriftPolicy()

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        if len(set(self.splits)) != len(self.splits):
            raise ValueError(f"splits should be named once each, were {list(self.splits)}")
        self.requirements()
        if self.is_synthetic and (self.splits or self.features):
            raise ValueError("synthetic data have neither splits nor features: nothing is uploaded")
        if not self.is_synthetic and not self.splits:
            raise ValueError("splits is required: at least one, as train")
        return self

    @property
    def is_synthetic(self) -> bool:
        """Whether the training draws its own records, so that no shard is waited for."""
        return self.format == SYNTHETIC

    def feature_specs(self) -> tuple[FeatureSpec, ...]:
        """Return the features in the order of the file."""
        return tuple(feature.named(name) for name, feature in self.features.items())

    def requirements(self) -> DataRequirements:
        """Return what validation is told. Raises SchemaError where the section contradicts itself."""
        own = {name: getattr(self, name) for name in type(self).model_fields if name not in ("format", "features")}
        data_format = None if self.format == SYNTHETIC else self.format
        return DataRequirements(data_format=data_format, features=self.feature_specs(), **own)


class Limit(Section):
    """What a caller may ask for instead of the pipeline's own option."""

    minimum: Number | None = None
    maximum: Number | None = None
    allowed: tuple[Number | str, ...] = ()

    @model_validator(mode="after")
    def _limits_something(self) -> Self:
        if self.minimum is None and self.maximum is None and not self.allowed:
            raise ValueError("should have minimum, maximum or allowed: an override without a limit is not offered")
        return self


class Train(Section):
    """How to train, and on what."""

    script: Script = "training_job.train"
    compute: Compute
    vm_size: VmSizeName
    price_per_node_hour: float | None = Field(default=None, gt=0)
    """What a node of this size costs, in any currency: prices differ by region and contract."""
    num_nodes: int = Field(ge=1, le=MAX_NODES)
    processes_per_node: int = Field(ge=1, le=16)
    timeout_s: int = Field(ge=60, le=MAX_TIMEOUT_S)
    shm_size: Annotated[str, matching(r"[1-9][0-9]{0,4}[bkmg]", "a size as 8g")] = "8g"
    options: TrainingOptions = TrainingOptions()
    overrides: dict[OptionName, Limit] = Field(default_factory=dict)
    environment_variables: dict[VariableName, Annotated[str, Field(max_length=4096)]] = Field(
        default_factory=dict, max_length=100
    )

    @model_validator(mode="after")
    def _texts_are_listed(self) -> Self:
        """A caller's text ends up in a command line: only those that the pipeline lists may."""
        for name, limit in self.overrides.items():
            if isinstance(getattr(self.options, name), str) != bool(limit.allowed and _all_texts(limit.allowed)):
                raise ValueError(f"overrides.{name} should list allowed texts exactly where the option is a text")
        return self


def _all_texts(values: tuple[Number | str, ...]) -> bool:
    return all(isinstance(value, str) for value in values)


class Size(Section):
    """Another compute to train on, where the pipeline's own has no room or too little memory."""

    compute: Compute
    vm_size: VmSizeName
    processes_per_node: int | None = Field(default=None, ge=1, le=16)
    """None: as on the pipeline's own compute."""
    price_per_node_hour: float | None = Field(default=None, gt=0)


class Attempts(Section):
    """How often a training may be tried, for how much money, and what is done about a failure."""

    max: int = Field(default=3, ge=1, le=MAX_ATTEMPTS)
    max_node_hours: float | None = Field(default=None, gt=0)
    """Of all attempts together; the last one gets what is left as its time limit. None: no bound but ``max``."""
    max_cost: float | None = Field(default=None, gt=0)
    """In the currency of the prices: nodes times hours times price."""
    wait_s: int = Field(default=900, ge=1, le=24 * 3600)
    """Before an attempt that waits for nodes."""
    other_sizes: tuple[Size, ...] = Field(default=(), max_length=10)
    """Tried in this order, each once."""
    remedies: dict[FailureClass, Remedy] = Field(default_factory=dict)
    """Instead of the built-in ones."""

    @model_validator(mode="after")
    def _a_person_has_the_last_word(self) -> Self:
        if self.remedies.get(FailureClass.CANCELED) in RETRYING:
            raise ValueError("remedies.canceled should not be another attempt: a person canceled the run")
        return self


class Requirement(Section):
    """One line of the gate: a metric of the training report and its bound."""

    metric: Annotated[str, matching(r"[A-Za-z][A-Za-z0-9_]{0,99}", "a metric's name, as val_accuracy")]
    at_least: Number | None = None
    at_most: Number | None = None

    @model_validator(mode="after")
    def _bounds_something(self) -> Self:
        if self.at_least is None and self.at_most is None:
            raise ValueError("should have at_least or at_most")
        return self


class Register(Section):
    """Which model to register, and on what evidence."""

    model: ModelName
    require: tuple[Requirement, ...] = Field(default=(), max_length=50)


def _recipient(entry: Any) -> Any:
    """``topic`` stays; ``{webhook: SETTING}`` becomes ``webhook:SETTING``, as the ledger names a recipient."""
    if isinstance(entry, Mapping) and list(entry) == ["webhook"]:
        return f"webhook:{entry['webhook']}"
    return entry


Recipient = Annotated[
    str,
    matching(r"topic|webhook:[A-Z][A-Z0-9_]{0,127}", "topic, or webhook: and the app setting that holds its address"),
    BeforeValidator(_recipient),
]


class Watch(Section):
    """How long something may take before people are told, once; nothing is stopped by it."""

    stalled_after_s: int = Field(default=24 * 3600, ge=60, le=MAX_PATIENCE_S)
    """A version is not whole, and no shard has come for so long."""
    queued_after_s: int = Field(default=2 * 3600, ge=60, le=MAX_PATIENCE_S)
    """A submitted run waits for its nodes."""
    not_responding_after_s: int = Field(default=30 * 60, ge=60, le=MAX_PATIENCE_S)
    """Azure ML says NotResponding of a run."""


class Pipeline(Section):
    """What a dataset needs, how to train, when to register, whom to tell."""

    pipeline: Name
    dataset: Name
    data: Data
    on_change: Literal["notify", "train", "cancel_and_train"] = "notify"
    """A shard changed after the version had closed: tell people, train again, or cancel what runs and train again."""
    train: Train
    attempts: Attempts = Attempts()
    """What a failed run leads to."""
    register_: Register | None = Field(default=None, alias="register")
    """None: nothing is registered, and every completed run says so."""
    quarantine: Container | None = None
    """In the data account: rejected shards are copied there, with their reasons. None: they stay where they are."""
    notify: tuple[Recipient, ...] = Field(default=(), max_length=20)
    watch: Watch = Watch()

    @model_validator(mode="after")
    def _says_what_it_trains_on(self) -> Self:
        """Random pixels under the name of data would be a false lineage; a model of them is nobody's."""
        options, is_synthetic = self.train.options, self.data.is_synthetic
        drawn = self.train.overrides.get("synthetic_records")
        rules = (
            (
                is_synthetic != bool(options.synthetic_records),
                "data.format synthetic and train.options.synthetic_records belong together",
            ),
            (
                drawn is not None and not (is_synthetic and (drawn.minimum or 0) >= 1),
                "train.overrides.synthetic_records needs data.format synthetic and a minimum of at least 1",
            ),
            (
                is_synthetic and not (options.image_height and options.image_width and options.image_channels),
                "train.options should have image_height, image_width and image_channels: nothing else says them",
            ),
            (
                is_synthetic and self.register_ is not None,
                "register should be absent: a model of random pixels is nobody's",
            ),
        )
        for wrong, words in rules:
            if wrong:
                raise ValueError(words)
        return self

    @model_validator(mode="after")
    def _can_be_paid(self) -> Self:
        """The first attempt alone must fit, and what is bounded in money must have prices."""
        hours = self.train.num_nodes * self.train.timeout_s / 3600
        bound, price = self.attempts.max_node_hours, self.train.price_per_node_hour
        if bound is not None and hours > bound:
            raise ValueError(f"attempts.max_node_hours should be at least {hours:g}: num_nodes times timeout_s")
        if self.attempts.max_cost is None:
            return self
        if price is None or any(size.price_per_node_hour is None for size in self.attempts.other_sizes):
            raise ValueError("attempts.max_cost needs price_per_node_hour in train and in each of other_sizes")
        if hours * price > self.attempts.max_cost:
            raise ValueError(f"attempts.max_cost should be at least {hours * price:g}: one attempt may cost as much")
        return self
