"""The schema of a pipeline file: one file for each dataset, with types, bounds and rules.

``pipeline_files.py`` reads the files and words the errors. ``docs/pipelines.md`` is generated from the docstrings of
fields.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from typing import Annotated, Literal, Self

from pydantic import Field, PrivateAttr, model_validator

from function_app.config.clusters import Clusters, Machines
from function_app.config.environments import Environment, OwnEnvironment
from function_app.config.fields import (
    MAX_NODES,
    ClusterName,
    Container,
    Distribution,
    FeatureName,
    GpuName,
    Name,
    Number,
    Script,
    ScriptArgument,
    Section,
    Split,
    VariableName,
    check_order,
    matching,
)
from function_app.config.layouts import Layout, LayoutField
from function_app.config.own_files import MAX_FILES, FilePath, OwnFiles
from function_app.config.recipients import DEFAULT_OUTCOMES, RecipientField
from function_app.config.registration import Register
from function_app.domain.errors import PipelineError
from function_app.domain.failures import RETRYING, FailureClass, Remedy
from shard_validation import CountsPolicy, DataRequirements, DriftPolicy, ImagePolicy, Limits
from shared.job_arguments import SCRIPT_PATHS, TrainingOptions
from shared.manifest import SYNTHETIC, Encoding, FeatureKind, FeatureSpec, Format, RawDtype

OPTION_NAMES = tuple(field.name for field in fields(TrainingOptions))
MAX_PATIENCE_S = 365 * 24 * 3600
MAX_ATTEMPTS = 10
MAX_RECIPIENTS = 20
MAX_TIMEOUT_S = 21 * 24 * 3600
"""Azure ML's limit for one job."""
SET_BY_LAUNCHER: Mapping[str, frozenset[str]] = {
    "mpi": frozenset(),  # all begin with OMPI_COMM_WORLD_, which no pipeline may set
    "tensorflow": frozenset({"TF_CONFIG"}),
    "pytorch": frozenset({"MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "LOCAL_RANK", "NODE_RANK"}),
}
"""Variables by which Azure ML tells processes about each other."""
UNNAMED = "-"
"""Placeholder for the feature's name in error messages whose path already has it."""
OptionName = Annotated[str, matching("|".join(OPTION_NAMES), "an option: " + ", ".join(OPTION_NAMES))]


class Feature(Section):
    """Requirements of one feature of an example; see ``shared.manifest``."""

    kind: FeatureKind
    """Kind of the feature in the tf.train.Example, or of the Parquet column."""
    shape: tuple[int | None, ...] = ()
    """Shape of a number, an image or a tensor; null allows any size. Empty: a scalar."""
    required: bool = True
    """Whether every example must have the feature."""
    encoding: Encoding | None = None
    """Content of bytes: an image of any or one format, raw numbers, or text."""
    dtype: RawDtype | None = None
    """Type of raw numbers."""
    minimum: Number | None = None
    """Smallest allowed value."""
    maximum: Number | None = None
    """Largest allowed value."""
    allowed: tuple[Number | str, ...] = ()
    """List of allowed values; empty: any value."""

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        self.named(UNNAMED)
        check_order("minimum", self.minimum, "maximum", self.maximum)
        return self

    def named(self, name: str) -> FeatureSpec:
        """Return the feature as validation uses it. Raises SchemaError if it contradicts itself."""
        return FeatureSpec(name=name, **{field: getattr(self, field) for field in type(self).model_fields})


class Data(Section):
    """Requirements that a dataset version must meet before it is trained on."""

    format: Format
    """Format of the shards. With `synthetic` nothing is uploaded; `train.options.synthetic_records` are generated."""
    splits: tuple[Split, ...] = Field(default=(), max_length=16)
    """Required splits: a version is complete when each has all its shards. Empty for `synthetic` only."""
    layout: LayoutField = Layout()
    """How a version's files are laid out, and what marks it as complete; or only the kind, such as `marker`."""
    features: dict[FeatureName, Feature] = Field(default_factory=dict, max_length=1000)
    """Requirements of each feature, by its name. Empty: only framing and checksums are validated."""
    label_feature: str | None = None
    """Feature that contains the label, for histograms and drift. Null: that of `train.options`; where it
    is no int64 feature without a shape, the first one that is."""
    images: ImagePolicy = ImagePolicy()
    """How thoroughly images are validated."""
    limits: Limits = Limits()
    """Limits on what a shard may contain."""
    counts: CountsPolicy = "if_stated"
    """Whether record counts must be stated next to the shards."""
    small_shard_ratio: float = 0.1
    """Shards with fewer records than this share of their split's median are reported in a warning; 0: no warning."""
    drift: DriftPolicy = DriftPolicy()
    """What to do if a version differs too much from the data of the current model."""

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if len(set(self.splits)) != len(self.splits):
            raise ValueError(f"splits must not repeat a name, got {list(self.splits)}")
        self.requirements()
        if self.is_synthetic and (self.splits or self.features or self.layout.has_any_names):
            raise ValueError("synthetic data have no splits, features and layout, because nothing is uploaded")
        if not self.is_synthetic and not self.splits:
            raise ValueError("splits is required: name at least one, such as train")
        if self.layout.kind == "delta" and self.format != "parquet":
            raise ValueError(
                f"layout delta needs format: parquet, which the files of Delta tables have, not {self.format}"
            )
        self.layout.check_splits(self.splits)
        return self

    @property
    def is_synthetic(self) -> bool:
        """Whether the training generates its records, so that no shards are uploaded."""
        return self.format == SYNTHETIC

    def feature_specs(self) -> tuple[FeatureSpec, ...]:
        """Return the features in the order of the file."""
        return tuple(feature.named(name) for name, feature in self.features.items())

    def requirements(self) -> DataRequirements:
        """Return the requirements for validation. Raises SchemaError if the section contradicts itself."""
        others = ("format", "features", "layout")
        own = {name: getattr(self, name) for name in type(self).model_fields if name not in others}
        data_format = None if self.format == SYNTHETIC else self.format
        return DataRequirements(
            data_format=data_format, features=self.feature_specs(), digests=self.layout.digests, **own
        )


class Limit(Section):
    """Values that a caller may set for one option instead of the pipeline's value."""

    minimum: Number | None = None
    """Smallest value that a caller may set."""
    maximum: Number | None = None
    """Largest value that a caller may set."""
    allowed: tuple[Number | str, ...] = ()
    """List of values that a caller may set; required for options that are texts."""

    @model_validator(mode="after")
    def _limits_something(self) -> Self:
        if self.minimum is None and self.maximum is None and not self.allowed:
            raise ValueError("must have minimum, maximum or allowed: an override needs a limit")
        check_order("minimum", self.minimum, "maximum", self.maximum)
        return self


def is_own_script(script: str) -> bool:
    """Whether a pipeline's ``train.script`` is a file of the user, not Landfall's module."""
    return script.endswith(".py")


def processes_under(distribution: Distribution, machines: Machines) -> int:
    """Return how many processes each node runs: TensorFlow's workers use all GPUs of their node themselves."""
    return 1 if distribution == "tensorflow" else machines.processes_per_node


class GpuOptions(Section):
    """Options of the training that depend on the GPU; null: as in `train.options`."""

    per_process_batch_size: int | None = Field(default=None, ge=1)
    """Batch size of each process."""
    gradient_accumulation: int | None = Field(default=None, ge=1)
    """Batches for each step."""
    mixed_precision: Literal["none", "float16", "bfloat16"] | None = None
    """Reduced precision to compute in."""

    def instead_of(self, options: TrainingOptions) -> TrainingOptions:
        """Return the options for this GPU. Raises OptionsError if they contradict each other."""
        return replace(options, **self.model_dump(exclude_none=True))


class Train(Section):
    """How to train, and on which machines."""

    script: Script = "training_job.train"
    """Landfall's training, `training_job.train`, or your own `scripts/<file>.py` next to the pipeline files."""
    distribution: Distribution = "mpi"
    """How Azure ML starts your own script: `mpi` (Horovod) and `pytorch` one process for each GPU, `tensorflow`
    one worker for each node. See docs/scripts.md."""
    environment: Environment | None = None
    """Environment of the job: an image, or packages to add to Landfall's image. Null: Landfall's image."""
    files: tuple[FilePath, ...] = Field(default=(), max_length=MAX_FILES)
    """Files and folders next to the pipeline file that the job can read, such as weights: in the folder
    `LANDFALL_FILES`, under the same names. See docs/scripts.md."""
    cluster: ClusterName
    """Name of the cluster, which `clusters.yaml` describes."""
    num_nodes: int = Field(ge=1, le=MAX_NODES)
    """Number of nodes of the job, at most the cluster's `max_nodes`."""
    timeout_s: int = Field(ge=60, le=MAX_TIMEOUT_S)
    """Seconds after which Azure ML ends the job; the run then fails as `timeout`."""
    shm_size: Annotated[str, matching(r"[1-9][0-9]{0,4}[bkmg]", "a size such as 8g")] = "8g"
    """Shared memory of the container."""
    arguments: tuple[ScriptArgument, ...] = Field(default=(), max_length=200)
    """Arguments of your own script after the five paths, passed unchanged. For Landfall's training see `options`."""
    pass_paths: bool = True
    """Whether your own script gets `--data`, `--manifest`, `--output`, `--checkpoint` and `--report`. If false, the
    paths are only in the variables `LANDFALL_DATA`, `LANDFALL_MANIFEST` and so on.
    """
    options: TrainingOptions = TrainingOptions()
    """Options of Landfall's training."""
    options_by_gpu: dict[GpuName, GpuOptions] = Field(default_factory=dict)
    """Options that depend on the GPU of the cluster's size, such as `A100`. Later attempts on another cluster keep
    the options of the first.
    """
    overrides: dict[OptionName, Limit] = Field(default_factory=dict)
    """Options that a caller may override, with their limits; no others can be overridden."""
    environment_variables: dict[VariableName, Annotated[str, Field(max_length=4096)]] = Field(
        default_factory=dict, max_length=100
    )
    """Environment variables of the job; they override those that Landfall sets."""

    @property
    def paths_passed(self) -> tuple[str, ...]:
        """The paths that the user's own script gets as flags."""
        files = ("files",) if self.files else ()
        return (*SCRIPT_PATHS, *files) if self.pass_paths else ()

    @model_validator(mode="after")
    def _text_overrides_are_listed(self) -> Self:
        """Require a list for text options: a caller's text becomes part of a command line."""
        for name, limit in self.overrides.items():
            is_text_list = bool(limit.allowed) and all(isinstance(value, str) for value in limit.allowed)
            if isinstance(getattr(self.options, name), str) != is_text_list:
                raise ValueError(f"overrides.{name} must list allowed texts if the option is a text, and only then")
        return self

    @model_validator(mode="after")
    def _settings_fit_the_script(self) -> Self:
        """Refuse settings that would have no effect."""
        own = is_own_script(self.script)
        foreign = ("options", "options_by_gpu", "overrides") if own else ("arguments", "pass_paths")
        if found := [name for name in foreign if name in self.model_fields_set]:
            instead = (
                "your own script gets its flags from train.arguments" if own else "Landfall's training has options"
            )
            raise ValueError(f"{', '.join(found)} would have no effect: {instead}")
        if not own and self.distribution != "mpi":
            raise ValueError(
                f"distribution must be mpi for Landfall's training, which Horovod connects; {self.distribution} "
                "starts your own script"
            )
        return self

    @model_validator(mode="after")
    def _launcher_names_the_ranks(self) -> Self:
        if taken := sorted(set(self.environment_variables) & SET_BY_LAUNCHER[self.distribution]):
            raise ValueError(
                f"environment_variables must not set {', '.join(taken)}: with distribution {self.distribution}, "
                "Azure ML sets them for each process"
            )
        return self

    @model_validator(mode="after")
    def _options_of_each_gpu_fit_the_others(self) -> Self:
        for gpu, own in self.options_by_gpu.items():
            try:
                own.instead_of(self.options)
            except ValueError as error:
                raise ValueError(f"options_by_gpu.{gpu}: {error}") from error
        return self


class Attempts(Section):
    """How often a training is tried, at what cost, and what to do about a failure."""

    max: int = Field(default=3, ge=1, le=MAX_ATTEMPTS)
    """Maximum number of attempts."""
    max_node_hours: float | None = Field(default=None, gt=0)
    """Maximum node hours of all attempts together; the last attempt's time limit is what remains. Null: no limit."""
    max_cost: float | None = Field(default=None, gt=0)
    """Maximum cost of all attempts together, in the currency of the prices. Null: no limit."""
    wait_s: int = Field(default=900, ge=1, le=24 * 3600)
    """Seconds to wait before an attempt that needs free nodes."""
    other_clusters: tuple[ClusterName, ...] = Field(default=(), max_length=10)
    """Other clusters to try once each, in this order, if the first one has no capacity or too little memory."""
    remedies: dict[FailureClass, Remedy] = Field(default_factory=dict)
    """Remedies by failure class, instead of the built-in ones; see docs/attempts.md."""

    @model_validator(mode="after")
    def _cancellation_is_final(self) -> Self:
        if self.remedies.get(FailureClass.CANCELED) in RETRYING:
            raise ValueError("remedies.canceled must not start another attempt: a person canceled the run")
        return self


class Watch(Section):
    """How long something may take before one notification is sent; nothing is stopped."""

    stalled_after_s: int = Field(default=24 * 3600, ge=60, le=MAX_PATIENCE_S)
    """Seconds that an incomplete version may go without a new shard."""
    queued_after_s: int = Field(default=2 * 3600, ge=60, le=MAX_PATIENCE_S)
    """Seconds that a submitted run may wait for its nodes."""
    preparing_after_s: int = Field(default=30 * 60, ge=60, le=MAX_PATIENCE_S)
    """Seconds after submission within which a run's image must be built or pulled."""
    not_responding_after_s: int = Field(default=30 * 60, ge=60, le=MAX_PATIENCE_S)
    """Seconds that Azure ML may report a run as NotResponding, or in a state that Landfall does not know."""


class Pipeline(Section):
    """The data requirements, training, registration and notifications of one dataset."""

    pipeline: Name
    """Name of the pipeline, used in names, tags and the history: lower-case letters, digits, - and _."""
    dataset: Name
    """Dataset that the pipeline is for: the first part of a blob's path. A dataset has one pipeline."""
    data: Data
    """Requirements that a dataset version must meet before it is trained on."""
    on_change: Literal["notify", "train", "cancel_and_train"] = "notify"
    """If a shard changes after its version was closed: notify, train again, or cancel active runs and train again."""
    when_busy: Literal["queue", "latest"] = "queue"
    """If a version closes while another one is trained: wait and train every version in the order of closing, or keep
    only the newest one that waits."""
    train: Train
    """How to train, and on which machines."""
    attempts: Attempts = Attempts()
    """What to do after a run has failed."""
    register_: Register | None = Field(default=None, alias="register")
    """Which model to register. Null: no model is registered, and every completed run reports this."""
    quarantine: Container | None = None
    """Existing container of the data account for copies of rejected shards and their reasons. Null: no copies."""
    notify: tuple[RecipientField, ...] = Field(default=(), max_length=MAX_RECIPIENTS)
    """Recipients: `topic`, or `webhook:` or `apprise:` with the app setting that contains the address. Each may have
    `outcomes` and `quiet_hours`: docs/subscribe.md.
    """
    watch: Watch = Watch()
    """How long something may take before a notification is sent."""
    _machines: Mapping[str, Machines] = PrivateAttr(default_factory=dict)
    """Cluster → its machines in this deployment, for all clusters of the pipeline; set by `on`."""
    _environment: OwnEnvironment | None = PrivateAttr(default=None)
    """The environment of `train.environment`, with the content of its file; set by `within`."""
    _files: OwnFiles | None = PrivateAttr(default=None)
    """The files of `train.files`; set by `within`."""
    _file_name: str | None = PrivateAttr(default=None)
    """Name of the pipeline's file; set by `within`."""

    @model_validator(mode="after")
    def _synthetic_data_are_declared(self) -> Self:
        """Keep synthetic and real data apart: a model trained on random pixels would have a wrong lineage."""
        options, is_synthetic = self.train.options, self.data.is_synthetic
        override = self.train.overrides.get("synthetic_records")
        rules = (
            (
                is_synthetic != bool(options.synthetic_records),
                "data.format synthetic and train.options.synthetic_records need each other",
            ),
            (
                override is not None and not (is_synthetic and (override.minimum or 0) >= 1),
                "train.overrides.synthetic_records needs data.format synthetic and a minimum of at least 1",
            ),
            (
                is_synthetic and not (options.image_height and options.image_width and options.image_channels),
                "train.options must set image_height, image_width and image_channels, because there is no manifest",
            ),
            (
                is_synthetic and self.register_ is not None,
                "register is not allowed with synthetic data; remove the section",
            ),
        )
        for is_broken, problem in rules:
            if is_broken:
                raise ValueError(problem)
        return self

    @model_validator(mode="after")
    def _first_attempt_has_time(self) -> Self:
        if problem := self._too_long():
            raise ValueError(problem)
        return self

    def _too_long(self) -> str | None:
        """Return why the first attempt may exceed the pipeline's node-hours."""
        hours, max_hours = self.train.num_nodes * self.train.timeout_s / 3600, self.attempts.max_node_hours
        if max_hours is None or hours <= max_hours:
            return None
        return f"attempts.max_node_hours must be at least {hours:g}: num_nodes times timeout_s"

    def with_label(self) -> Self:
        """Return the pipeline with the label that it trains on as the one of ``data``, if the file states none."""
        name = self.train.options.label_feature
        feature = self.data.features.get(name)
        if self.data.label_feature or feature is None or feature.kind != "int64" or feature.shape:
            return self
        return self.model_copy(update={"data": self.data.model_copy(update={"label_feature": name})})

    def on(self, clusters: Clusters) -> Self:
        """Return the pipeline with the machines of its clusters. Raises PipelineError with all that does not fit."""
        machines: dict[str, Machines] = {}
        problems: list[str] = []
        places = [("train.cluster", self.train.cluster)]
        places += [(f"attempts.other_clusters.{n}", name) for n, name in enumerate(self.attempts.other_clusters)]
        for place, name in places:
            try:
                machines[name] = clusters.machines(name)
            except ValueError as error:
                problems.append(f"{place}: {error}")
            else:
                problems += (f"{place}: {problem}" for problem in self._misfits(machines[name]))
        if problems:
            raise PipelineError(*problems)
        placed = self.model_copy()
        placed._machines = machines  # noqa: SLF001 (its own class)
        return placed

    def within(
        self,
        environment: OwnEnvironment | None = None,
        files: OwnFiles | None = None,
        file_name: str | None = None,
    ) -> Self:
        """Return the pipeline with what was read for it: its environment, its files, or the name of its own file."""
        placed = self.model_copy()
        placed._environment = environment or self._environment  # noqa: SLF001 (its own class)
        placed._files = files or self._files  # noqa: SLF001
        placed._file_name = file_name or self._file_name  # noqa: SLF001
        return placed

    @property
    def has_own_outcomes(self) -> bool:
        """Whether a recipient sets its own outcomes; otherwise no progress is sent."""
        return any(one.outcomes != DEFAULT_OUTCOMES for one in self.notify)

    @property
    def environment(self) -> OwnEnvironment | None:
        """The pipeline's own environment; None for Landfall's."""
        return self._environment

    @property
    def file_name(self) -> str:
        """Name of the pipeline's file; before it is known, the name that `landfall init` gives to a file."""
        return self._file_name or f"{self.dataset}.yaml"

    @property
    def files(self) -> OwnFiles | None:
        """The files that the pipeline brings; None for none."""
        return self._files

    def misfits(self) -> Iterator[str]:
        """Yield what its limits and its clusters do not allow, once its machines are known."""
        if too_long := self._too_long():
            yield too_long
        for machines in self._machines.values():
            yield from self._misfits(machines)

    def _misfits(self, machines: Machines) -> Iterator[str]:
        """Yield the pipeline's demands that a cluster does not meet."""
        hours, name = self.train.num_nodes * self.train.timeout_s / 3600, machines.cluster
        if self.train.num_nodes > machines.max_nodes:
            yield (
                f"train.num_nodes is {self.train.num_nodes}, cluster {name} has at most {machines.max_nodes} nodes; "
                "raise its max_nodes in clusters.yaml"
            )
        if self.attempts.max_cost is None:
            return
        if machines.price_per_node_hour is None:
            yield f"attempts.max_cost needs price_per_node_hour for the sizes of {name} in clusters.yaml"
        elif name == self.train.cluster and hours * machines.price_per_node_hour > self.attempts.max_cost:
            cost = hours * machines.price_per_node_hour
            yield f"attempts.max_cost must be at least {cost:g}, which one attempt may cost on {machines.vm_size}"

    @property
    def machines(self) -> Machines:
        """The machines of the pipeline's cluster, once they are known."""
        return self._machines[self.train.cluster]

    def machines_on(self, cluster: str) -> Machines | None:
        """Return the machines of a cluster that the pipeline names, None for any other."""
        return self._machines.get(cluster)

    @property
    def options(self) -> TrainingOptions:
        """The options of the training on the pipeline's cluster."""
        own = self.train.options_by_gpu.get(self.machines.gpu or "")
        return own.instead_of(self.train.options) if own else self.train.options
