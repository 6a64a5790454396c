"""Timer: what events have missed."""

from __future__ import annotations

from azure.functions import Blueprint, TimerRequest

from function_app.bootstrap import services

blueprint = Blueprint()


@blueprint.function_name("reconcile")
@blueprint.timer_trigger(arg_name="timer", schedule="%LANDFALL_RECONCILE_SCHEDULE%", run_on_startup=False)
def reconcile(timer: TimerRequest) -> None:
    """Compare the ledger with storage and Azure ML, and repair the difference."""
    from function_app.steps.sweep import sweep

    del timer  # a late tick does the same as one in time
    sweep(services())
