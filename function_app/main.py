"""The function app: its triggers, in the order of the flow."""

from __future__ import annotations

from azure.functions import AuthLevel, FunctionApp

from function_app.triggers import health, http_api, reconcile, run_changed, shard_uploaded, training_requested

TRIGGERS = (shard_uploaded, training_requested, run_changed, reconcile, health, http_api)


def build_app() -> FunctionApp:
    """Return a new app. The host asks it for its functions once, so tests build their own."""
    built = FunctionApp(http_auth_level=AuthLevel.FUNCTION)
    for trigger in TRIGGERS:
        built.register_functions(trigger.blueprint)
    return built


app = build_app()
