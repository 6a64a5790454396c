"""The challenge: whether a trained model is worse or better than the current one on the same examples."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import Any

from function_app.config.registration import Compare, Register
from function_app.domain.model_versions import ModelVersion
from function_app.domain.records import RunRecord
from function_app.registry.examples import (
    ExampleResults,
    ExamplesError,
    check_agrees,
    check_same_content,
    check_same_examples,
    read_examples,
)
from function_app.registry.gate import GateError
from function_app.registry.paired import CONFIDENCE, Interval, seed_of
from function_app.services import RunServices
from shared.training_report import TrainingReport

MAX_INTERVALS = 20
MAX_NAME_CHARS = 100
"""Maximum length of the JSON of a metric's name that is stored; `register` names no longer ones."""
MAX_REASON_CHARS = 1000


@dataclass(frozen=True, kw_only=True)
class Challenge:
    """The comparison of a trained model with the current one."""

    version: str
    """The current model's, as is ``run_id``."""
    run_id: str
    metric: str | None
    difference: Interval | None
    """How much better the trained model is, negative if it is worse; None if unknown."""
    num_examples: int
    of_examples: int
    """How many were evaluated; the first number is a sample of them."""
    words: str
    """For people: "2.1 points better, 95 % between 1.4 and 2.8", or why there is no comparison."""

    def to_json(self) -> dict[str, Any]:
        """Return JSON-ready members."""
        return {**asdict(self), "confidence": CONFIDENCE}


def own_intervals(run: RunRecord, report: TrainingReport, services: RunServices) -> dict[str, list[float]]:
    """Return each metric of a run with its interval, [value, low, high]; empty without results of each example."""
    try:
        results = read_examples(run, services.run_outputs)
        found = {}
        known = [name for name in results.metrics if name in report.metrics and has_short_name(name)]
        for metric in known[:MAX_INTERVALS]:
            check_agrees(results, metric, report.metrics[metric])
            interval = results.interval(metric, seed_of(run.run_id, metric))
            found[metric] = [report.metrics[metric], interval.low, interval.high]
    except ExamplesError:
        return {}
    return found


def compare_with(
    current: ModelVersion, run: RunRecord, report: TrainingReport, register: Register, services: RunServices
) -> Challenge | None:
    """Compare a trained model with the current one. None if the pipeline does not ask for it.

    Raises GateError if the trained model is worse than the pipeline allows.
    """
    rule = register.compare
    metric = compared_metric(register)
    if rule is None or metric is None:
        return None
    nothing = Challenge(
        version=current.version,
        run_id=current.run_id,
        metric=metric,
        difference=None,
        num_examples=0,
        of_examples=0,
        words="",
    )
    try:
        own, other = _paired(current, run, report, metric, services)
        higher = is_higher_better(metric, register)
        difference = _oriented(
            own.interval(metric, seed_of(run.run_id, current.run_id, metric), other), higher=higher
        )
    except ExamplesError as error:
        words = f"not compared with version {current.version}, the current one: {error}"
        return replace(nothing, words=words[:MAX_REASON_CHARS])
    compared = replace(
        nothing, difference=difference, num_examples=len(own.keys), of_examples=own.num_examples,
        words=_sentence(metric, difference, current, own),
    )  # fmt: skip
    _refuse_worse(compared, rule)
    return compared


def _paired(
    current: ModelVersion, run: RunRecord, report: TrainingReport, metric: str, services: RunServices
) -> tuple[ExampleResults, ExampleResults]:
    """Return the results of both runs on the same examples. Raises ExamplesError."""
    other_run = services.ledger.run(current.run_id)
    if other_run is None:
        raise ExamplesError(f"run {current.run_id}, which trained it, is not on record")
    own, other = read_examples(run, services.run_outputs), read_examples(other_run, services.run_outputs)
    check_same_examples(run, own, other_run, other)
    check_same_content(run, other_run, own.shards, services.documents)
    for one, results, stated in ((run, own, report.metrics), (other_run, other, other_run.metrics)):
        if metric not in stated:
            raise ExamplesError(f"run {one.run_id} reports no {metric}")
        check_agrees(results, metric, stated[metric])
    return own, other


def has_short_name(metric: str) -> bool:
    """Whether a metric's name is short enough to be stored: a user's script may write names of any length."""
    return len(json.dumps(metric)) - len('""') <= MAX_NAME_CHARS


def compared_metric(register: Register) -> str | None:
    """Return the metric that models are compared by: the pipeline's choice, or that of the first condition."""
    if register.compare is not None and register.compare.metric is not None:
        return register.compare.metric
    return register.require[0].metric if register.require else None


def is_higher_better(metric: str, register: Register) -> bool:
    """Whether a higher value is better, from the metric's condition or otherwise its name."""
    for require in register.require:
        if require.metric == metric:
            return require.at_least is not None
    return not metric.endswith(("loss", "error"))


def _oriented(interval: Interval, *, higher: bool) -> Interval:
    return interval if higher else Interval(value=-interval.value, low=-interval.high, high=-interval.low)


def _refuse_worse(compared: Challenge, rule: Compare) -> None:
    """Raise GateError if the interval does not allow what the pipeline demands."""
    found = compared.difference
    if found is None:
        return
    if rule.accept == "better":
        allowed, demanded = found.low > (rule.margin or 0), f"better by more than {rule.margin or 0:g}"
    elif rule.margin is None:
        allowed, demanded = found.high >= 0, "not worse"
    else:
        allowed, demanded = found.low >= -rule.margin, f"worse by at most {rule.margin:g}"
    if not allowed:
        raise GateError(f"{compared.words}; register.compare demands: {demanded}", comparison=compared.to_json())


def _sentence(metric: str, difference: Interval, current: ModelVersion, own: ExampleResults) -> str:
    number = f"{len(own.keys):,} examples"
    if own.num_examples > len(own.keys):
        number = f"{len(own.keys):,} of {own.num_examples:,} examples"
    words = in_words(difference, is_share=own.is_share(metric))
    return f"{metric} {words} (the current version {current.version} on the same {number})"


def in_words(difference: Interval, *, is_share: bool) -> str:
    """Return a difference for people: "2.1 points better, 95 % between 1.4 and 2.8"."""
    scale, unit = (100, " points") if is_share else (1, "")
    value, low, high = (scale * each for each in (difference.value, difference.low, difference.high))
    so = f"{_number(value)}{unit} {'better' if value > 0 else 'worse'}" if value else "as good"
    level = f"{CONFIDENCE:.0%}".replace("%", " %")
    if low >= 0:
        return f"{so}, {level} between {_number(low)} and {_number(high)}"
    if high <= 0:
        return f"{so}, {level} between {_number(high)} and {_number(low)} worse"
    return f"{so}, {level} between {_number(low)} worse and {_number(high)} better"


def _number(value: float) -> str:
    value = abs(value)
    return f"{value:.1f}" if value >= 1 or not value else f"{value:.2g}"
