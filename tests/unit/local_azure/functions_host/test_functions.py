from __future__ import annotations

import pytest

from local_azure.functions_host.functions import make_function
from local_azure.functions_host.settings import BindingError


def test_settings_are_put_into_bindings_at_any_depth() -> None:
    """In lists and in the middle of a text; a lone per cent sign stays."""
    binding = {"type": "queueTrigger", "name": "m", "queueName": "a-%Q%-b", "list": ["%Q%", 5], "text": "100 % of"}

    function = make_function("f", "id", [binding], {"Q": "queue"})

    expected = {
        "type": "queueTrigger",
        "name": "m",
        "queueName": "a-queue-b",
        "list": ["queue", 5],
        "text": "100 % of",
    }
    assert expected == function.trigger


def test_a_missing_setting_is_named() -> None:
    """With the function and the text that asks for it."""
    with pytest.raises(BindingError, match="function f has a binding with '%Q%', but the app setting Q is not set"):
        make_function("f", "id", [{"type": "queueTrigger", "name": "m", "queueName": "%Q%"}], {})


def test_a_function_needs_a_trigger() -> None:
    """Outputs alone never run."""
    with pytest.raises(BindingError, match=r"function f should have a trigger, has \['queue'\]"):
        make_function("f", "id", [{"type": "queue", "name": "out"}], {})


@pytest.mark.parametrize(("value", "disabled"), [("true", True), ("1", True), ("false", False), ("", False)])
def test_a_setting_can_disable_a_function(value: str, *, disabled: bool) -> None:
    """As in Azure: `AzureWebJobs.<name>.Disabled`."""
    trigger = {"type": "timerTrigger", "name": "t"}
    function = make_function("f", "id", [trigger], {"AzureWebJobs.f.Disabled": value})

    assert (disabled, not disabled) == (function.disabled, function.trigger_is("timerTrigger"))
