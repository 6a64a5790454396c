"""What users, tables and promises can see, frozen in the JSON files beside this one; prose is not.

A test fails where the code no longer gives what its file holds. Where the change is meant, write the files again with
``.venv/bin/python -m tests.golden.test_golden`` and look at their difference.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

import click
import httpx
import pytest

from cli.main import landfall
from function_app.adapters.dead_letters import DEAD_LETTER_CONTAINER, POISON_SUFFIX
from function_app.adapters.queues import StorageRequestQueue
from function_app.bootstrap import QUEUES, build_services
from function_app.config.clusters import Cluster
from function_app.config.pipelines import Pipeline
from function_app.domain.errors import ProblemsError, SettingsError
from function_app.domain.events import RUN_CHANGED
from function_app.domain.failures import EXIT_CODES, REMEDIES, RETRYING, FailureClass, Remedy
from function_app.domain.run_states import SETTLED, TABLE, RunState
from function_app.functions import build_app
from function_app.ingest import drift
from function_app.web.app import MAX_BODY_BYTES, build_web_app
from function_app.web.errors import STATUSES
from horovod_lint.rules import RULES, RuleCode
from shard_validation.reasons import ReasonCode
from shared.exit_codes import ExitCode
from shared.job_arguments import JobArguments
from tests.golden import source_words
from tests.golden.stored import RecordingAccount, documents, jobs, rows

FOLDER = Path(__file__).resolve().parent
AGAIN = "where that is meant, write it again: .venv/bin/python -m tests.golden.test_golden"


# -- what the web app and the host see ----------------------------------------------------------------------
def openapi() -> Any:
    """The document that the web app serves, without prose."""
    answer = _answers([("GET", "/api/openapi.json", b"")], _unused)[0]
    return _without_prose(answer.json())


def http_errors() -> Any:
    """Status and code of each error that the API answers with."""
    asked = {
        "unknown_path": _answers([("GET", "/api/nothing", b"")], _unused),
        "wrong_method": _answers([("DELETE", "/api/runs", b"")], _unused),
        "invalid_body": _answers([("POST", "/api/runs", b"[]")], _unused),
        "large_body": _answers([("POST", "/api/runs", b" " * (MAX_BODY_BYTES + 1))], _unused),
        "unforeseen": _answers([("GET", "/api/runs", b"")], _raising(RuntimeError("x"))),
        "misconfigured": _answers([("GET", "/api/runs", b"")], _raising(ProblemsError("x"))),
    }
    mapped = [_answers([("GET", "/api/runs", b"")], _raising(kind("x"))) for kind in STATUSES]
    codes = sorted([answer.status_code, answer.json()["code"]] for (answer,) in mapped)
    return {
        "mapped": codes,
        "members": sorted(asked["unknown_path"][0].json()),
        **{name: [answer.status_code, answer.json()["code"]] for name, (answer,) in asked.items()},
    }


def triggers() -> Any:
    """The functions that the host indexes, with their bindings."""
    return {
        function.get_function_name(): sorted(map(json.loads, function.get_raw_bindings()), key=json.dumps)
        for function in build_app().get_functions()
    }


def queues() -> Any:
    """Queues, what the host adds for given-up messages, and the container and source name of given-up events."""
    return {
        "queues": sorted(QUEUES),
        "poison": sorted(queue + POISON_SUFFIX for queue in QUEUES),
        "requests": StorageRequestQueue(RecordingAccount())._queue_name,  # type: ignore[arg-type]
        "dead_letter_container": DEAD_LETTER_CONTAINER,
        "run_events": RUN_CHANGED,
    }


def settings() -> Any:
    """The settings that the submitter asks for when none is set, and the names in its source."""
    environ = AskedFor()
    with pytest.raises(SettingsError):
        build_services(environ)
    return {"asked_for": sorted(environ.names), "in_source": source_words.landfall_variables()}


# -- words and numbers that are promised --------------------------------------------------------------------
def failures() -> Any:
    """Failure classes with their remedies, and what each exit code of a job means."""
    return {
        "classes": {str(name): str(REMEDIES[name]) for name in FailureClass},
        "remedies": sorted(map(str, Remedy)),
        "retrying": sorted(map(str, RETRYING)),
        "exit_codes": {str(code): str(failure_class) for code, (failure_class, _) in EXIT_CODES.items()},
    }


def run_states() -> Any:
    """States of a run, and who may cause which transition."""
    return {
        "states": [str(state) for state in RunState],
        "settled": sorted(map(str, SETTLED)),
        "transitions": sorted([str(m.source), str(m.target), sorted(map(str, m.actors))] for m in TABLE),
    }


def pipeline_schema() -> Any:
    """What a pipeline file may hold."""
    return _without_prose(Pipeline.model_json_schema())


def cluster_schema() -> Any:
    """What ``clusters.yaml`` may say of a cluster."""
    return _without_prose(Cluster.model_json_schema())


def training_options() -> Any:
    """The flags of the training with their defaults."""
    arguments = JobArguments(manifest="", data="", report="", model="", checkpoints="").to_argv()
    return dict(zip(arguments[::2], arguments[1::2], strict=True))


def notifications() -> Any:
    """Outcomes of notifications besides the states of a run, and the members of what they hold."""
    return {"outcomes": source_words.outcomes(), "members": source_words.notification_members()}


def history() -> Any:
    """Actions of the history with the names of their details, and the actions of log lines."""
    return {
        "history": source_words.history_actions(),
        "drift": [drift.BLOCKED, drift.WARNED, drift.MEASURED],
        "log": source_words.log_actions(),
    }


def commands() -> Any:
    """Commands and sub-commands with their arguments and options."""
    return dict(_commands("landfall", landfall))


def _commands(name: str, command: click.Command) -> Iterator[tuple[str, Any]]:
    yield name, [_parameter(parameter) for parameter in command.params]
    if isinstance(command, click.Group):
        context = click.Context(command)
        for inner in command.list_commands(context):
            found = command.get_command(context, inner)
            assert found is not None
            yield from _commands(f"{name} {inner}", found)


def _parameter(parameter: click.Parameter) -> Any:
    choices = parameter.type.choices if isinstance(parameter.type, click.Choice) else ()
    return {
        "names": [*parameter.opts, *parameter.secondary_opts],
        "kind": parameter.param_type_name,
        "takes": parameter.type.name,
        "required": parameter.required,
        "many": [parameter.nargs, parameter.multiple],
        "choices": list(map(str, choices)),
        "variable": parameter.envvar,
    }


GOLDEN: Mapping[str, Callable[[], Any]] = {
    "commands": commands,
    "documents": documents,
    "exit_codes": lambda: {code.name: int(code) for code in ExitCode},
    "failures": failures,
    "history": history,
    "http_errors": http_errors,
    "jobs": jobs,
    "lint_rules": lambda: {str(code): str(RULES[code].severity) for code in RuleCode},
    "notifications": notifications,
    "openapi": openapi,
    "pipeline_schema": pipeline_schema,
    "cluster_schema": cluster_schema,
    "queues": queues,
    "reason_codes": lambda: sorted(map(str, ReasonCode)),
    "rows": rows,
    "run_states": run_states,
    "settings": settings,
    "training_options": training_options,
    "training_variables": source_words.training_variables,
    "triggers": triggers,
}


@pytest.mark.parametrize("name", GOLDEN)
def test_the_code_gives_what_the_golden_file_holds(name: str) -> None:
    """A stored or promised word never changes by accident."""
    frozen = json.loads(_file(name).read_text(encoding="utf-8"))
    assert json.loads(_text(GOLDEN[name]())) == frozen, f"tests/golden/{name}.json differs: {AGAIN}"


def test_every_golden_file_is_compared() -> None:
    """A file without a function would freeze nothing."""
    assert sorted(GOLDEN) == sorted(path.stem for path in FOLDER.glob("*.json"))


def write() -> None:
    """Write all golden files from the code as it is."""
    logging.disable()
    for name, read in GOLDEN.items():
        _file(name).write_text(_text(read()), encoding="utf-8")


class AskedFor(dict[str, str]):
    """An environment in which nothing is set; it keeps the names that were asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        self.names.add(key)
        return default


def _answers(requests: list[tuple[str, str, bytes]], services: Callable[[], Any]) -> list[httpx.Response]:
    async def send() -> list[httpx.Response]:
        transport = httpx.ASGITransport(app=build_web_app(services))
        async with httpx.AsyncClient(transport=transport, base_url="http://landfall") as client:
            return [await client.request(method, path, content=body) for method, path, body in requests]

    return asyncio.run(send())


def _unused() -> None:
    """Give no services to a request that does not get as far as to use them."""


def _raising(error: Exception) -> Callable[[], Any]:
    def services() -> NoReturn:
        raise error

    return services


def _without_prose(document: Any) -> Any:
    """Drop descriptions, summaries and titles, but not members that bear such a name."""
    if isinstance(document, list):
        return [_without_prose(item) for item in document]
    if not isinstance(document, dict):
        return document
    prose = {name for name in ("description", "summary", "title") if isinstance(document.get(name), str)}
    return {name: _without_prose(value) for name, value in document.items() if name not in prose}


def _file(name: str) -> Path:
    return FOLDER / f"{name}.json"


def _text(value: Any) -> str:
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False, default=str) + "\n"


if __name__ == "__main__":
    write()
