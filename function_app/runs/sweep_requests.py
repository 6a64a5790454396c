"""Requests for option sweeps: every run is checked and planned before the first one is put into the queue."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from function_app.config.pipelines import Pipeline, is_own_script
from function_app.domain.errors import LedgerConflictError, OptionSweepError, OverrideError
from function_app.domain.jobs import TAG, Plan, digest, plan_run, spec_to_json, with_tags
from function_app.domain.option_sweeps import SWEEP_PREFIX, OptionSweep, SweepRun, check_bound
from function_app.domain.records import DatasetVersion, Generation
from function_app.runs.admission import refuse_held
from function_app.runs.mistakes import check_script, refuse_bad_script, refuse_misfit, with_script_errors
from function_app.runs.option_sweeps import document_path, read_sweep, start_run, verdict_of
from function_app.runs.requests import KeyedRequest, closing_of, is_finite, overridden, queue_run
from function_app.runs.submission import MAX_NAMES
from function_app.services import RunServices
from shared.configuration import suggestion
from shared.job_arguments import TrainingOptions

SWEEP_TAG = TAG + "sweep_id"
"""The tag of a job that belongs to an option sweep."""


@dataclass(frozen=True, kw_only=True)
class SweepRequest:
    """A request for an option sweep."""

    version: DatasetVersion
    option_sets: Sequence[Mapping[str, Any]]
    """Overrides of each run, in addition to ``overrides``."""
    max_node_hours: float
    trigger: str
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """Overrides of all runs."""
    num_nodes: int = 1
    """Nodes of each run."""
    forced_by: str | None = None
    """The key of a request that trains again even if the same was trained before."""
    key: str | None = None
    """The same key always means the same sweep."""

    @property
    def keyed(self) -> KeyedRequest | None:
        """The request under its key."""
        if self.key is None:
            return None
        content = {
            "version": str(self.version),
            "overrides": dict(self.overrides),
            "options": [dict(each) for each in self.option_sets],
            "num_nodes": self.num_nodes,
            "max_node_hours": self.max_node_hours,
            "force": self.forced_by is not None,
        }
        return KeyedRequest(key=self.key, content=content)


def request_sweep(request: SweepRequest, services: RunServices) -> tuple[OptionSweep, bool]:
    """Plan an option sweep and put its first run into the queue; return it, and whether it is new.

    Raises what `request_run` raises, and OptionSweepError.
    """
    first = request.keyed.first_run(services) if request.keyed else None
    if first is not None:
        queue_run(first, services)
        return read_sweep(str(first.sweep_id), services.documents), False
    pipeline = services.pipeline_of(request.version.dataset)
    check_bound(len(request.option_sets), request.num_nodes, pipeline.train.timeout_s, request.max_node_hours)
    variants = list(_variants(_on_nodes(pipeline, request.num_nodes), request))
    metric, higher_is_better = _compared_by(pipeline)
    generation = closing_of(pipeline, request.version, services)
    sweep_id, plans = _plans(variants, generation, request, services)
    runs = zip(request.option_sets, plans, strict=True)
    sweep = OptionSweep(
        sweep_id=sweep_id,
        dataset=request.version.dataset,
        version=request.version.version,
        generation=generation.number,
        fingerprint=generation.fingerprint,
        pipeline=pipeline.pipeline,
        trigger=request.trigger,
        asked_at=services.clock(),
        forced_by=request.forced_by,
        max_node_hours=request.max_node_hours,
        metric=metric,
        higher_is_better=higher_is_better,
        runs=tuple(SweepRun(options=dict(own), spec=spec_to_json(plan.spec)) for own, plan in runs),
    )
    return _claimed(sweep, request, services)


def _claimed(sweep: OptionSweep, request: SweepRequest, services: RunServices) -> tuple[OptionSweep, bool]:
    """Write the sweep down and start its first run; of several callers one is new."""
    if not services.documents.write_once(document_path(sweep.sweep_id), sweep.to_json()):
        sweep = read_sweep(sweep.sweep_id, services.documents)
    first = request.keyed.claim(sweep.runs[0].run_id, services) if request.keyed else None
    if first is not None:
        queue_run(first, services)
        return read_sweep(str(first.sweep_id), services.documents), False
    run, is_new = start_run(sweep, 1, services)
    if is_new:
        text = f"option sweep {sweep.sweep_id}: {len(sweep.runs)} runs, at most {sweep.max_node_hours:.4g} node-hours"
        services.history.record(str(sweep.dataset_version), "sweep_planned", text, sweep_id=sweep.sweep_id)
    else:
        queue_run(run, services)
    return sweep, is_new


# -- what each run trains -------------------------------------------------------------------------------------
_Variant = tuple[Pipeline, TrainingOptions]


def _variants(pipeline: Pipeline, request: SweepRequest) -> Iterator[_Variant]:
    """Yield the pipeline and the options of each run.

    Raises OverrideError naming the option and its limit, and OptionSweepError for one that is stated twice.
    """
    for own in request.option_sets:
        if twice := sorted(request.overrides.keys() & own.keys()):
            raise OptionSweepError(
                f"{twice[0][:100]} is set for all runs and also differs among them: state it only in the sweep"
            )
        overrides = {**request.overrides, **own}
        if is_own_script(pipeline.train.script):
            yield with_arguments(pipeline, overrides), pipeline.options
        else:
            yield pipeline, overridden(pipeline, overrides)


def with_arguments(pipeline: Pipeline, values: Mapping[str, Any]) -> Pipeline:
    """Return a pipeline whose script gets other numbers for some of its `train.arguments`. Raises OverrideError.

    Only numbers may replace numbers, because a caller's text would become part of a command line.
    """
    words = list(pipeline.train.arguments)
    flags = ((n, word.partition("=")[0]) for n, word in enumerate(words) if word[:1] == "-" and not _is_number(word))
    known = {flag.lstrip("-").replace("-", "_"): n for n, flag in flags}
    for name, value in values.items():
        place = known.get(name.lstrip("-").replace("-", "_"))
        if place is None:
            offered = ", ".join(sorted(known)) or "none"
            near = suggestion(name[:100], known)
            raise OverrideError(name, f" is not in train.arguments of the pipeline, which has {offered}{near}")
        flag, separator, own = words[place].partition("=")
        if not separator:
            own = words[place + 1] if place + 1 < len(words) else ""
        if not (
            _is_number(own) and isinstance(value, int | float) and not isinstance(value, bool) and is_finite(value)
        ):
            raise OverrideError(name, f": expected a number in place of {own[:100]!r}, got {str(value)[:100]!r}")
        if separator:
            words[place] = f"{flag}={json.dumps(value)}"
        else:
            words[place + 1] = json.dumps(value)
    return pipeline.model_copy(update={"train": pipeline.train.model_copy(update={"arguments": tuple(words)})})


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _on_nodes(pipeline: Pipeline, num_nodes: int) -> Pipeline:
    """Return the pipeline with another number of nodes. Raises OptionSweepError if it does not allow as many."""
    machines = pipeline.machines
    if not 1 <= num_nodes <= machines.max_nodes:
        raise OptionSweepError(
            f"num_nodes: expected 1 to {machines.max_nodes}, which cluster {machines.cluster} has; got {num_nodes}"
        )
    changed = pipeline.model_copy(update={"train": pipeline.train.model_copy(update={"num_nodes": num_nodes})})
    if problems := list(changed.misfits()):  # the copy was not validated
        raise OptionSweepError(f"num_nodes {num_nodes}: {'; '.join(problems)}")
    return changed


def _plans(
    variants: Sequence[_Variant], generation: Generation, request: SweepRequest, services: RunServices
) -> tuple[str, list[Plan]]:
    """Return the sweep's id and its runs' jobs, all of which fit the data and their script's rules."""
    pipeline = variants[0][0]
    arguments = [variant.train.arguments for variant, _ in variants]
    check = check_script(pipeline, services.read_script, services.read_modules, arguments)
    if request.forced_by is None:
        refuse_held(generation, services.ledger)
        refuse_bad_script(pipeline, check)
    for variant, options in variants:
        refuse_misfit(variant, options, generation, services.documents)
    names = [plan_run(each, generation, services.workspace, options=own).logical_run for each, own in variants]
    _refuse_equal(names)
    sweep_id = _unspent_id(names, generation, request, services)
    plans = (plan_run(each, generation, services.workspace, options=own, again=sweep_id) for each, own in variants)
    return sweep_id, [with_tags(with_script_errors(plan, check), {SWEEP_TAG: sweep_id}) for plan in plans]


def _refuse_equal(names: Sequence[str]) -> None:
    for number, name in enumerate(names):
        first = names.index(name)
        if first < number:
            raise OptionSweepError(f"runs {first + 1} and {number + 1} have the same options: leave one out")


def _unspent_id(names: Sequence[str], generation: Generation, request: SweepRequest, services: RunServices) -> str:
    """Return the first id of a request that has led, or can still lead, to a comparison."""
    version = generation.dataset_version
    readable = re.sub(r"[^a-zA-Z0-9_-]", "-", f"{version.dataset}-{version.version}")
    for number in range(MAX_NAMES):
        identity = {"runs": names, "generation": generation.number, "by": request.forced_by, "number": number}
        sweep_id = f"{SWEEP_PREFIX}{readable}-{digest(identity)[:12]}"
        verdict = verdict_of(sweep_id, services.ledger)
        if verdict is None or not verdict.is_spent:
            return sweep_id
    raise LedgerConflictError(
        f"{version}: the same option sweep was given up {MAX_NAMES} times; request it with force"
    )


def _compared_by(pipeline: Pipeline) -> tuple[str | None, bool]:
    """Return the metric that decides which run is the best, and whether more of it is better."""
    required = pipeline.register_.require if pipeline.register_ else ()
    if pipeline.register_ and not required:
        raise OptionSweepError(
            f"pipeline {pipeline.pipeline}: register.require has no metric to compare the runs by; add one"
        )
    return (required[0].metric, required[0].at_least is not None) if required else (None, True)
