"""Health: whether the app could do its work, and no more than that."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from function_app import bootstrap, functions
from tests.support.world import World


def ask() -> tuple[int, dict[str, object]]:
    """Status and body of an answer."""
    from azure.functions import HttpRequest

    function = functions.health.build().get_user_function()
    answer = function(HttpRequest("GET", "/api/health", body=b""))
    return answer.status_code, json.loads(answer.get_body())


def test_a_configured_app_is_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """It names no pipeline: anybody may ask."""
    monkeypatch.setattr(bootstrap, "_built", [World().services])
    assert (200, {"status": "ok"}) == ask()


def test_a_pipeline_out_of_service_is_named_without_what_its_file_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """The app does its work for the others, so it is in use; a value may be a secret in the wrong place."""
    world = World()
    world.add_pipelines("cats")
    problems = {"digits": ("digits.yaml: notify.0: must be topic, got 'https://x.example/?sig=s3'",)}
    broken = {"cats": world.services.pipelines["cats"]}
    services = replace(world.services, pipelines=broken, out_of_service=problems)
    monkeypatch.setattr(bootstrap, "_built", [services])
    expected = {"status": "degraded", "out_of_service": {"digits": ["digits.yaml: notify.0"]}}
    assert (200, expected) == ask()


def test_a_misconfigured_app_says_so_without_saying_how(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everybody may ask; the log has the names of the settings."""
    monkeypatch.setattr(bootstrap, "_built", [])
    for name in ("AzureWebJobsStorage", "DataStorage"):
        monkeypatch.delenv(name, raising=False)
    status, body = ask()
    assert (503, "misconfigured", {"status", "problems", "see"}) == (status, body["status"], set(body))
