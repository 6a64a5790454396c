"""Checks that the fields of a pipeline file do not contradict each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal, get_args, get_origin, get_type_hints

from function_app.config.clusters import Machines
from function_app.config.pipelines import Feature, Pipeline, is_own_script
from function_app.config.registration import Requirement
from function_app.domain.failures import RETRYING, Remedy
from shared.configuration import mistakes, suggestion, unreported_metrics
from shared.job_arguments import TrainingOptions

_SHARES = ("accuracy", "top5_accuracy", "auc")
"""Metrics between 0 and 1."""
_WITHOUT_BFLOAT16 = frozenset({"V100", "T4"})
"""GPUs before Ampere: cuDNN has no convolutions in bfloat16 for them."""


def inconsistencies(pipeline: Pipeline, machines: Sequence[Machines]) -> list[str]:
    """Return each contradiction, beginning with the path of the field to change.

    ``machines`` are those of the pipeline's own cluster, then of its other ones; empty if clusters.yaml is invalid.
    """
    found = [*_of_features(pipeline), *_of_attempts(pipeline)]
    if not is_own_script(pipeline.train.script):  # the user's own script decides what the options mean
        found += [*_of_labels(pipeline), *_of_options(pipeline, machines), *_of_overrides(pipeline)]
        found += [*_of_precision(pipeline, machines), *_of_halving(pipeline)]
        options = _options_on(pipeline, machines[0]) if machines else pipeline.train.options
        metrics = [require.metric for require in pipeline.register_.require] if pipeline.register_ else []
        found += [*unreported_metrics(options, metrics), *_of_bounds(pipeline)]
    return list(dict.fromkeys(found))


def _of_bounds(pipeline: Pipeline) -> Iterator[str]:
    """Yield bounds that no model can meet, such as a percentage for a metric that is a share."""
    for number, require in enumerate(pipeline.register_.require if pipeline.register_ else ()):
        yield from (f"register.require.{number}: {problem}" for problem in _unreachable(require))


def _unreachable(require: Requirement) -> Iterator[str]:
    if require.at_least is not None and require.at_least > 1 and require.metric.removeprefix("val_") in _SHARES:
        share = f"; {require.at_least:g} percent is {require.at_least / 100:g}" if require.at_least <= 100 else ""  # noqa: PLR2004
        yield f"{require.metric} is between 0 and 1, so it is never at least {require.at_least:g}{share}"
    if require.at_most is not None and require.at_most < 0:
        yield f"{require.metric} is 0 or more, so it is never at most {require.at_most:g}"


def _of_features(pipeline: Pipeline) -> Iterator[str]:
    """Yield requirements on a feature that do not apply to its kind, or that no value meets."""
    for name, feature in pipeline.data.features.items():
        yield from (f"data.features.{name}.{problem}" for problem in _meaningless(feature))
    drift = pipeline.data.drift
    if drift.max_label_distance > 1:
        yield (
            f"data.drift.max_label_distance: is a share, so that {drift.max_label_distance:g} is never exceeded; "
            "write a number from 0 to 1"
        )


def _meaningless(feature: Feature) -> Iterator[str]:
    is_number = feature.kind != "bytes" or feature.encoding == "raw"
    for field in ("minimum", "maximum"):
        if getattr(feature, field) is not None and not is_number:
            yield f"{field}: bounds numbers, and the values are {feature.encoding or 'bytes'}; remove it"
    for value in feature.allowed:
        if isinstance(value, str) if feature.kind != "bytes" else feature.encoding not in ("text", None):
            yield f"allowed: {str(value)[:36]!r} is not a value of kind {feature.kind}{_encoded(feature)}; remove it"
        elif not isinstance(value, str) and not _is_within(value, feature):
            yield f"allowed: {value:g} is not between minimum and maximum"


def _encoded(feature: Feature) -> str:
    return f" with encoding {feature.encoding}" if feature.encoding else ""


def _is_within(value: float, feature: Feature) -> bool:
    low, high = feature.minimum, feature.maximum
    return (low is None or value >= low) and (high is None or value <= high)


def _of_labels(pipeline: Pipeline) -> Iterator[str]:
    compared, trained = pipeline.data.label_feature, pipeline.train.options.label_feature
    if compared is not None and compared != trained:
        yield (
            f"data.label_feature: is {compared[:36]}, and train.options.label_feature is {trained[:36]}; drift would "
            "be measured on a different feature than the one trained on"
        )


def _of_options(pipeline: Pipeline, machines: Sequence[Machines]) -> Iterator[str]:
    data, num_nodes = pipeline.data, pipeline.train.num_nodes
    for one in machines or (None,):
        world_size = num_nodes * one.processes_per_node if one else None
        options = _options_on(pipeline, machines[0]) if machines else pipeline.train.options
        for text in mistakes(options, features=data.feature_specs(), splits=data.splits, world_size=world_size):
            yield f"train.options.{text}"


def _options_on(pipeline: Pipeline, machines: Machines) -> TrainingOptions:
    own = pipeline.train.options_by_gpu.get(machines.gpu or "")
    return own.instead_of(pipeline.train.options) if own else pipeline.train.options


def _of_overrides(pipeline: Pipeline) -> Iterator[str]:
    """Yield allowed texts with which a request would be accepted but its training would fail."""
    options, data = pipeline.train.options, pipeline.data
    hints = get_type_hints(TrainingOptions)
    before = set(mistakes(options, features=data.feature_specs(), splits=data.splits))
    for name, limit in pipeline.train.overrides.items():
        for text in (one for one in limit.allowed if isinstance(one, str)):
            choices = get_args(hints[name]) if get_origin(hints[name]) is Literal else ()
            if choices and text not in choices:
                known = f"there are {', '.join(choices)}{suggestion(text, choices)}"
                yield f"train.overrides.{name}.allowed: there is no {name} {text[:36]!r}; {known}"
                continue
            change: dict[str, Any] = {name: text}
            try:
                changed = replace(options, **change)
            except ValueError as error:
                yield f"train.overrides.{name}.allowed: with {text[:36]!r}, {error}"
                continue
            for problem in mistakes(changed, features=data.feature_specs(), splits=data.splits):
                if problem not in before:
                    yield f"train.overrides.{name}.allowed: with {text[:36]!r}, {problem}"


def _of_precision(pipeline: Pipeline, machines: Sequence[Machines]) -> Iterator[str]:
    for one in machines:
        if one.gpu in _WITHOUT_BFLOAT16 and _options_on(pipeline, machines[0]).mixed_precision == "bfloat16":
            yield (
                f"train.options.mixed_precision: cluster {one.cluster} has {one.gpu}, which has no bfloat16; write "
                f"float16, or set it only for other GPUs in train.options_by_gpu"
            )


def _of_halving(pipeline: Pipeline) -> Iterator[str]:
    for failure, remedy in pipeline.attempts.remedies.items():
        is_one = pipeline.train.options.per_process_batch_size == 1
        if remedy is Remedy.SMALLER_BATCH and is_one and not pipeline.attempts.other_clusters:
            yield f"attempts.remedies.{failure}: per_process_batch_size 1 cannot be halved; write another remedy"


def _of_attempts(pipeline: Pipeline) -> Iterator[str]:
    attempts, own = pipeline.attempts, pipeline.train.cluster
    for number, name in enumerate(attempts.other_clusters):
        if name == own or name in attempts.other_clusters[:number]:
            what = "is the pipeline's own cluster" if name == own else "is listed twice"
            yield f"attempts.other_clusters.{number}: {name} {what}; each is tried once, so remove it"
    if attempts.other_clusters and attempts.max == 1:
        yield "attempts.other_clusters: attempts.max is 1, so no other cluster is ever tried; raise it"
    for failure, remedy in attempts.remedies.items():
        if remedy in RETRYING and attempts.max == 1:
            yield f"attempts.remedies.{failure}: attempts.max is 1, so {remedy} never happens; raise it"
        elif remedy is Remedy.OTHER_SIZE and not attempts.other_clusters:
            yield f"attempts.remedies.{failure}: other_size needs a cluster in attempts.other_clusters"
