"""`landfall up`: what it says of pipelines that cannot be used, and where a program finds the twin."""

from __future__ import annotations

import json
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from cli.demo.narration import TimedLines
from cli.main import landfall
from cli.up import describe_outages, nodes_in_words


def test_pipelines_out_of_service_are_named_with_their_problems() -> None:
    """Otherwise an upload to which nothing happens is the first sign."""
    pipelines: list[dict[str, Any]] = [
        {"dataset": None, "state": "out_of_service", "problems": ["x.yaml: not valid YAML"]},
        {"dataset": "digits", "state": "out_of_service", "problems": ["digits.yaml: train: is required"]},
        {"dataset": "cats", "state": "in_service", "problems": []},
    ]
    assert [
        "Out of service: a file whose dataset cannot be read",
        "  x.yaml: not valid YAML",
        "Out of service: dataset digits",
        "  digits.yaml: train: is required",
        "Edit and save the files: they are read again. Settings are read only when the twin starts.",
    ] == list(describe_outages(pipelines))


def test_a_whole_folder_needs_no_words() -> None:
    """Most starts are like that."""
    assert [] == list(describe_outages([{"dataset": "cats", "state": "in_service", "problems": []}]))


def test_simulated_nodes_are_announced_with_the_reason() -> None:
    """What the machine allows decides, so the way to change it is said at the start."""
    why = "network namespaces cannot be used: there is no ip(8): install iproute2"
    assert f"simulated, without addresses of their own: {why}" == nodes_in_words(why)
    assert "hosts in network namespaces of this machine" == nodes_in_words(None)


ADDRESSES = {
    "storage_ports": {"blob": 1, "queue": 2, "table": 3},
    "pages": "http://127.0.0.1:4/",
    "function_app": "http://127.0.0.1:4",
    "azure_ml": "https://localhost:5",
    "nodes": nodes_in_words(None),
    "event_grid": "http://127.0.0.1:6",
    "folder": "/twin",
}


def test_with_json_standard_output_has_the_addresses_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """People read the same, and that it is ready, on standard error."""
    twin = SimpleNamespace(check_running=lambda: None)
    monkeypatch.setattr("cli.up.running_twin", lambda _options, say: nullcontext(say("starting") or twin))
    monkeypatch.setattr("cli.up.addresses", lambda _twin: ADDRESSES)
    monkeypatch.setattr("cli.up.out_of_service", lambda _twin: ["Out of service: dataset digits"])
    monkeypatch.setattr("cli.up.watch_until_interrupted", lambda _twin, _say: None)
    shown = CliRunner().invoke(landfall, ["up", "--json"])
    assert (0, ADDRESSES) == (shown.exit_code, json.loads(shown.stdout))
    for text in (
        "starting",
        "ports: blob 1, queue 2, table 3",
        "Out of service: dataset digits",
        "Ready.",
        "Stopped.",
    ):
        assert text in shown.stderr


def test_the_lines_of_a_demo_leave_standard_output_to_its_report(capsys: pytest.CaptureFixture[str]) -> None:
    """`landfall demo --json` prints them in this way."""
    TimedLines(stderr=True).say("starting")
    captured = capsys.readouterr()
    assert ("", True) == (captured.out, "starting" in captured.err)
