"""Read a job of Azure Batch AI (2017 to 2019), and tell the settings that a pipeline can express from the others.

The members are those of the service's REST API, version 2018-05-01; its command line read the same files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from cli.errors import CliError
from cli.importing.command_line import read_command_line, split_words
from function_app.config.environments import IMAGE
from shared.safe_text import shown

MAX_JOB_BYTES = 1 << 20
WEEK_S = 7 * 24 * 3600
"""Batch AI's limit for a job that states no limit."""
_MPI = {
    "horovodSettings": "Horovod",
    "customMpiSettings": "MPI",
    "customToolkitSettings": "a command line",
    "pyTorchSettings": "PyTorch",
    "chainerSettings": "Chainer",
}
_TENSORFLOW = "tensorFlowSettings"
_OTHERS = ("cntkSettings", "caffeSettings", "caffe2Settings")
_ARGUMENTS = {_TENSORFLOW: "masterCommandLineArgs"}
"""Members with a script's arguments, where they are not ``commandLineArgs``."""
_SETTINGS = frozenset(
    {
        *("processCount", "commandLine", "commandLineArgs", "pythonScriptFilePath", "pythonInterpreterPath"),
        *("communicationBackend", "masterCommandLineArgs", "workerCount", "parameterServerCount"),
    }
)
_VARIABLE = re.compile(r"\$\{?(AZ_BATCH(?:AI)?_\w+)")
_SHELL = re.compile(r"[$`\x00-\x1f\x7f]")
_MAX_ARGUMENTS = 200
_MAX_VARIABLES = 100
_MAX_CHARS = 4096
"""Limits of a pipeline's arguments and variables."""
_DURATION = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:\.\d+)?S)?)?")
_CLOCK = re.compile(r"(?:(\d+)\.)?(\d+):(\d\d):(\d\d)(?:\.\d+)?")
_PIP = re.compile(r"\bpip3?\s+install\s+([^;&|]+)")
_NAME = re.compile(r"(?!OMPI_COMM_WORLD_)[A-Za-z_][A-Za-z0-9_]{0,127}")
_MAX_SHOWN_CHARS = 200


@dataclass(frozen=True, kw_only=True)
class NotMapped:
    """A setting of the job that the pipeline does not have."""

    member: str
    """Its path in the job."""
    what: str
    instead: str
    """What to do about it."""


@dataclass(kw_only=True)
class ImportedJob:
    """The settings that a pipeline takes over from a job."""

    num_nodes: int
    script: str
    """The path on Batch AI's node."""
    num_processes: int = 1
    arguments: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    timeout_s: int = WEEK_S
    shm_size: str = ""
    distribution: str = "mpi"
    image: str = ""
    """The image by digest; empty for Landfall's own image."""
    not_mapped: list[NotMapped] = field(default_factory=list)

    def leave(self, member: str, what: str, instead: str) -> None:
        """Record a setting that has no counterpart."""
        text = what if len(what) <= _MAX_SHOWN_CHARS else f"{what[:_MAX_SHOWN_CHARS]}…"
        self.not_mapped.append(NotMapped(member=member, what=text, instead=instead))


def read_job(content: bytes, name: str) -> ImportedJob:
    """Return the settings that a pipeline takes over. Raises CliError if this is not a job that can be converted."""
    properties = _properties(content, name)
    kits = [kit for kit in (*_MPI, _TENSORFLOW, *_OTHERS) if properties.get(kit) is not None]
    if len(kits) != 1:
        seen = f"has {' and '.join(kits)}" if kits else "has no settings of a tool kit, such as horovodSettings"
        raise CliError(f"{name}: is not a Batch AI job: it {seen}. Pass the JSON that created the job.")
    if kits[0] in _OTHERS:
        raise CliError(
            f"{name}: {kits[0]} started a tool kit of its own, which Landfall does not. "
            "Convert the script to Horovod first: docs/scripts.md."
        )
    settings = _mapping(properties[kits[0]], kits[0], name)
    if kits[0] == _TENSORFLOW:
        _refuse_parameter_servers(settings, properties, name)
    job = ImportedJob(num_nodes=_number(properties.get("nodeCount", 1), "nodeCount", name), script="")
    _take_settings(job, kits[0], settings, name)
    _take_environment(job, properties, name)
    _take_limits(job, properties, name)
    _leave_container(job, _mapping(properties.get("containerSettings") or {}, "containerSettings", name))
    _leave_preparation(job, _mapping(properties.get("jobPreparation") or {}, "jobPreparation", name))
    _leave_directories(job, properties, name)
    _leave_others(job, properties, kits[0])
    return job


def _refuse_parameter_servers(settings: Mapping[str, Any], properties: Mapping[str, Any], name: str) -> None:
    """Raise CliError for TensorFlow on several nodes, or with processes that have commands of their own."""
    servers, workers = (settings.get(member) or 0 for member in ("parameterServerCount", "workerCount"))
    if servers or workers not in (0, 1) or properties.get("nodeCount", 1) != 1:
        counts = f"{shown(json.dumps(workers))} workers and {shown(json.dumps(servers))} parameter servers"
        raise CliError(
            f"{name}: {_TENSORFLOW} started {counts}, and Landfall starts the same script on every GPU. "
            "Convert the script to Horovod first: docs/scripts.md."
        )


def _properties(content: bytes, name: str) -> Mapping[str, Any]:
    if len(content) > MAX_JOB_BYTES:
        raise CliError(f"{name}: is larger than {MAX_JOB_BYTES >> 20} MiB, so it is not a Batch AI job.")
    try:
        members = json.loads(content)
    except (ValueError, RecursionError) as error:
        what = str(error) if isinstance(error, ValueError) else "nested too deeply"
        raise CliError(f"{name}: is not JSON: {shown(what)}. Pass the JSON that created the job.") from error
    found = members.get("properties", members) if isinstance(members, dict) else None
    return _mapping(found, "properties", name)


def _mapping(value: object, member: str, name: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise CliError(f"{name}: {member} is not a JSON object, so it is not a Batch AI job.")
    return value


def _items(value: object, member: str, name: str) -> list[Mapping[str, Any]]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise CliError(f"{name}: {member} is not a list. Pass the JSON that created the job.")
    return [_mapping(item, member, name) for item in value]


def _number(value: object, member: str, name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 10_000:  # noqa: PLR2004
        raise CliError(
            f"{name}: {member} is {shown(json.dumps(value))}, not a number from 1 to 10000. Correct it first."
        )
    return value


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _take_settings(job: ImportedJob, kit: str, settings: Mapping[str, Any], name: str) -> None:
    count = settings.get("processCount")
    job.num_processes = job.num_nodes if count is None else _number(count, f"{kit}.processCount", name)
    if "commandLine" in settings:
        _take_command(job, _text(settings["commandLine"]), kit, name)
    else:
        job.script = _text(settings.get("pythonScriptFilePath"))
        member = _ARGUMENTS.get(kit, "commandLineArgs")
        _take_arguments(job, split_words(_text(settings.get(member)), f"{name}: {kit}.{member}"), kit)
    if not job.script:
        raise CliError(f"{name}: {kit} names no Python script. Landfall runs one; write a script that does the same.")
    _leave_tool_kit(job, kit, settings)
    if interpreter := _text(settings.get("pythonInterpreterPath")):
        job.leave(f"{kit}.pythonInterpreterPath", interpreter, "The image's own python runs the script.")
    for member in sorted(set(settings) - _SETTINGS):
        job.leave(f"{kit}.{member}", json.dumps(settings[member]), "Landfall does not know this setting.")


def _leave_tool_kit(job: ImportedJob, kit: str, settings: Mapping[str, Any]) -> None:
    """Note what the script of another tool kit than Horovod needs."""
    if kit == _TENSORFLOW:
        job.num_processes = 1
        job.leave(
            kit,
            "TensorFlow in one process",
            "Train on one node with one process, and give the lint's horovod_not_used a comment that says so; "
            "or use Horovod for several GPUs (docs/scripts.md).",
        )
    elif kit == "pyTorchSettings" and _text(settings.get("communicationBackend")).lower() != "mpi":
        job.distribution = "pytorch"
        job.leave(
            kit,
            f"PyTorch, connected by {_text(settings.get('communicationBackend')) or 'its own launcher'}",
            "Let the script call init_process_group(init_method='env://'), and publish an image with PyTorch "
            "(landfall publish --image).",
        )
    elif kit in ("pyTorchSettings", "chainerSettings"):
        job.leave(
            kit,
            f"{_MPI[kit]}, started with {_text(settings.get('communicationBackend')) or 'MPI'}",
            "Landfall starts ranks with MPI, and its image has TensorFlow only: use Horovod, and publish an image "
            f"with {_MPI[kit]} (landfall publish --image).",
        )


def _take_command(job: ImportedJob, text: str, kit: str, name: str) -> None:
    """Take over a command line: variables, MPI's processes, and Python with a script and its arguments."""
    member = f"{kit}.commandLine"
    started = read_command_line(text, f"{name}: {member}")
    job.script = started.script
    for what, instead in started.left:
        job.leave(member, what, instead)
    for variable, value in started.variables:
        _take_variable(job, variable, value, member)
    _take_arguments(job, started.arguments, kit)
    if kit == "customToolkitSettings":
        per_node = (started.num_per_node or 1) * job.num_nodes
        job.num_processes = (started.num_processes or per_node) if started.has_launcher else 1


def _take_variable(job: ImportedJob, variable: str, value: str, member: str) -> None:
    if variable.startswith("I_MPI_"):
        job.leave(member, f"{variable}={value}", "Landfall's image has Open MPI, which does not read it.")
    elif _SHELL.search(value) or not _NAME.fullmatch(variable) or len(value) > _MAX_CHARS:
        job.leave(member, f"{variable}={value}", "A pipeline's variables are plain texts. Set it in the script.")
    elif len(job.environment) == _MAX_VARIABLES:
        job.leave(member, f"{variable}={value}", f"A pipeline sets at most {_MAX_VARIABLES} variables.")
    else:
        job.environment[variable] = value


def _take_arguments(job: ImportedJob, words: Sequence[str], kit: str) -> None:
    """Take over arguments, without those that name a folder of Batch AI, and the flags before them."""
    for word in words:
        if not _SHELL.search(word) and len(word) <= _MAX_CHARS and len(job.arguments) < _MAX_ARGUMENTS:
            job.arguments.append(word)
            continue
        found = _VARIABLE.search(word)
        flag = word.partition("=")[0] if word.startswith("-") and "=" in word else ""
        if not flag and job.arguments and job.arguments[-1].startswith("-") and "=" not in job.arguments[-1]:
            flag = job.arguments.pop()
        shown_argument = f"{flag} {word}" if flag and not word.startswith(flag) else word
        instead = (
            _instead_of(found[1], word, flag or "an argument")
            if found
            else "No shell expands arguments. Write the value itself."
        )
        job.leave(kit, shown_argument, instead)


_RANK = (
    'Let the script take its rank from hvd.rank(), or from os.environ["RANK"] with train.distribution: pytorch',
    "Landfall starts the ranks, which find each other without it. Let the script do without",
)
_VARIABLES: Mapping[str, str] = {
    "AZ_BATCHAI_TASK_INDEX": _RANK[0],
    "AZ_BATCHAI_PYTORCH_INIT_METHOD": 'Let the script call init_process_group(init_method="env://")',
    **dict.fromkeys(
        (
            *("AZ_BATCHAI_PS_HOSTS", "AZ_BATCHAI_WORKER_HOSTS", "AZ_BATCHAI_MPI_HOST_FILE", "AZ_BATCHAI_WORKERS"),
            *("AZ_BATCHAI_MPI_MASTER_NODE", "AZ_BATCHAI_HOST_LIST", "AZ_BATCH_HOST_LIST", "AZ_BATCH_MASTER_NODE"),
        ),
        _RANK[1],
    ),
    **dict.fromkeys(
        ("AZ_BATCHAI_JOB_TEMP", "AZ_BATCHAI_JOB_TEMP_DIR"),
        "Let the script make a folder of its own with tempfile",
    ),
    "AZ_BATCHAI_SHARED_JOB_TEMP": 'Let the script use os.environ["LANDFALL_CHECKPOINT"], which all ranks share',
}
"""What a script does instead of getting a variable as an argument, for those that name no input or output."""


def _instead_of(variable: str, word: str, flag: str) -> str:
    """Return what a script does instead of getting a variable as the value of a flag."""
    if variable in _VARIABLES:
        return f"{_VARIABLES[variable]}, instead of {flag}."
    folder = "its folders from LANDFALL_DATA, LANDFALL_OUTPUT and LANDFALL_CHECKPOINT"
    if variable.startswith("AZ_BATCHAI_INPUT_"):
        folder = 'the folder from os.environ["LANDFALL_DATA"]'
    elif variable.startswith("AZ_BATCHAI_OUTPUT_"):
        folder = 'the folder from os.environ["LANDFALL_OUTPUT"], or LANDFALL_CHECKPOINT'
    advice = f"Let the script read {folder}, rather than from {flag}."
    is_file = variable.startswith("AZ_BATCHAI_INPUT_") and PurePosixPath(word).suffix
    weights = " List a file that is no data, such as weights, in train.files, and open it below LANDFALL_FILES."
    return f"{advice}{weights if is_file else ''}"


def _take_environment(job: ImportedJob, properties: Mapping[str, Any], name: str) -> None:
    for each in _items(properties.get("environmentVariables"), "environmentVariables", name):
        _take_variable(job, _text(each.get("name")), _text(each.get("value")), "environmentVariables")
    for each in _items(properties.get("secrets"), "secrets", name):
        job.leave(
            "secrets",
            _text(each.get("name")),
            "Its value is not read. Let the script read it from Key Vault with the cluster's identity.",
        )


def _take_limits(job: ImportedJob, properties: Mapping[str, Any], name: str) -> None:
    constraints = _mapping(properties.get("constraints") or {}, "constraints", name)
    stated = _text(constraints.get("maxWallClockTime"))
    if not stated:
        return
    match = _CLOCK.fullmatch(stated[:_MAX_SHOWN_CHARS]) or _DURATION.fullmatch(stated[:_MAX_SHOWN_CHARS])
    days, hours, minutes, seconds = (int(number or 0) for number in match.groups()) if match else (0, 0, 0, 0)
    seconds += 60 * (minutes + 60 * (hours + 24 * days))
    if seconds:
        job.timeout_s = min(max(60, seconds), 3 * WEEK_S)
    if seconds != job.timeout_s:
        instead = f"timeout_s is {job.timeout_s}; a pipeline's is from 60 seconds to three weeks."
        job.leave("constraints.maxWallClockTime", stated, instead)


def _leave_container(job: ImportedJob, container: Mapping[str, Any]) -> None:
    size = _text(container.get("shmSize")).lower()
    if re.fullmatch(r"[1-9][0-9]{0,4}[bkmg]", size):
        job.shm_size = size
    elif size:
        job.leave("containerSettings.shmSize", size, "Write a size such as 8g into train.shm_size.")
    registry = container.get("imageSourceRegistry")
    if isinstance(registry, dict):
        server = _text(registry.get("serverUrl"))
        image = "/".join(part for part in (server.rstrip("/"), _text(registry.get("image"))) if part)
        if IMAGE.fullmatch(image):
            job.image = image
        else:
            job.leave(
                "containerSettings.imageSourceRegistry",
                image or "an image",
                "A pipeline names an image by digest: write train.environment, {image: REPOSITORY@sha256:DIGEST}. "
                "Without it, Landfall's has TensorFlow 2.18, Keras 3, Horovod 0.28.1 and Open MPI.",
            )
        if registry.get("credentials") is not None:
            job.leave(
                "containerSettings.imageSourceRegistry.credentials",
                "a user and a password or secret",
                "They are not read. Let the workspace's identity pull from the registry.",
            )


def _leave_preparation(job: ImportedJob, preparation: Mapping[str, Any]) -> None:
    command = _text(preparation.get("commandLine"))
    for packages in _PIP.findall(command):
        job.leave(
            "jobPreparation.commandLine",
            f"pip install {packages.strip()}",
            "List them, each with its version, in environments/<file>.txt, and write train.environment, "
            "{requirements: environments/<file>.txt}; or use an image that has them. Landfall's has Horovod.",
        )
    rest = _PIP.sub("", command).strip(" ;&|")
    if rest:
        job.leave(
            "jobPreparation.commandLine",
            rest,
            "Nothing runs on a node before the script. Install into the image, and upload data as a dataset.",
        )


def _leave_directories(job: ImportedJob, properties: Mapping[str, Any], name: str) -> None:
    for each in _items(properties.get("inputDirectories"), "inputDirectories", name):
        what = f"{_text(each.get('id'))}: {_text(each.get('path'))}"
        found = _VARIABLE.match(job.script)
        is_code = found is not None and found[1] == f"AZ_BATCHAI_INPUT_{_text(each.get('id'))}"
        instead = (
            "Copy the script, with the modules that it imports, to scripts/ beside the pipeline."
            if is_code
            else "Pack and upload the data (landfall pack, landfall upload); see data. Weights go into train.files."
        )
        job.leave("inputDirectories", what, instead)
    for each in _items(properties.get("outputDirectories"), "outputDirectories", name):
        what = f"{_text(each.get('id'))}: {_text(each.get('pathPrefix'))}"
        instead = "Write the model into LANDFALL_OUTPUT and checkpoints into LANDFALL_CHECKPOINT, on the root only."
        job.leave("outputDirectories", what, instead)
    volumes = _mapping(properties.get("mountVolumes") or {}, "mountVolumes", name)
    for kind in volumes:
        for each in _items(volumes[kind], f"mountVolumes.{kind}", name):
            what = _text(each.get("azureFileUrl")) or _text(each.get("containerName")) or "a file system"
            where = _text(each.get("relativeMountPath"))
            instead = (
                "Only the dataset version is mounted. Put scripts next to the pipeline, and data into a dataset."
            )
            job.leave(f"mountVolumes.{kind}", f"{what} at {where}", instead)


_REST: Mapping[str, str] = {
    "stdOutErrPathPrefix": "Azure ML keeps the output of every rank with the job.",
    "schedulingPriority": "Runs of a pipeline start in the order of the run queue.",
    "cluster": "clusters.yaml describes the cluster; landfall publish creates it.",
}
_READ = frozenset(
    {
        *("nodeCount", "environmentVariables", "secrets", "constraints", "containerSettings", "jobPreparation"),
        *("inputDirectories", "outputDirectories", "mountVolumes", "$schema"),
    }
)


def _leave_others(job: ImportedJob, properties: Mapping[str, Any], kit: str) -> None:
    for member, value in _other_members(properties, kit):
        what = value if isinstance(value, str) else json.dumps(value)
        job.leave(member, what, _REST.get(member, "Landfall does not know this member."))


def _other_members(properties: Mapping[str, Any], kit: str) -> Iterator[tuple[str, Any]]:
    for member, value in properties.items():
        if member not in _READ and member != kit and value is not None:
            yield member, value
