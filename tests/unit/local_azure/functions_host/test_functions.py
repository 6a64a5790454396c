from __future__ import annotations

from pathlib import Path

import pytest

from local_azure.functions_host.functions import describe_failure, describe_no_functions, failing_line, make_function
from local_azure.functions_host.settings import BindingError
from local_azure.functions_host.worker import PROTOS


def test_settings_are_put_into_bindings_at_any_depth() -> None:
    """They are replaced in lists and within a text; a single per cent sign stays."""
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
    """The error has the function and the text that names it."""
    with pytest.raises(BindingError, match="function f has a binding with '%Q%', but the app setting Q is not set"):
        make_function("f", "id", [{"type": "queueTrigger", "name": "m", "queueName": "%Q%"}], {})


def test_a_function_needs_a_trigger() -> None:
    """Outputs alone never run."""
    with pytest.raises(BindingError, match=r"function f must have a trigger, not \['queue'\]"):
        make_function("f", "id", [{"type": "queue", "name": "out"}], {})


@pytest.mark.parametrize(("value", "disabled"), [("true", True), ("1", True), ("false", False), ("", False)])
def test_a_setting_can_disable_a_function(value: str, *, disabled: bool) -> None:
    """Azure uses the same name: `AzureWebJobs.<name>.Disabled`."""
    trigger = {"type": "timerTrigger", "name": "t"}
    function = make_function("f", "id", [trigger], {"AzureWebJobs.f.Disabled": value})

    assert (disabled, not disabled) == (function.disabled, function.trigger_is("timerTrigger"))


TRACE = """Traceback (most recent call last):
  File "/opt/runtime/loader.py", line 10, in index
    importlib.import_module(name)
  File "/srv/app/function_app.py", line 3, in <module>
    from function_app.functions import app
  File "/srv/app/.venv/lib/site-packages/pkg/__init__.py", line 7, in <module>
    import missing
ModuleNotFoundError: No module named 'missing'
"""


def test_the_innermost_line_of_the_app_is_shown() -> None:
    """It is not the runtime's or an installed package's, even inside the app's folder."""
    assert "function_app.py, line 3: from function_app.functions import app" == failing_line(Path("/srv/app"), TRACE)


def test_without_a_line_of_the_app_the_innermost_is_shown() -> None:
    """Better a package's line than none."""
    assert failing_line(Path("/elsewhere"), TRACE).endswith("pkg/__init__.py, line 7: import missing")
    assert "" == failing_line(Path("/elsewhere"), "no frames")


def test_the_runtimes_advice_is_cut_off() -> None:
    """It adds a link and the whole search path to every import error."""
    message = "ModuleNotFoundError: No module named 'missing'. Cannot find module. Please check … sys.path: /a /b"
    said = describe_failure(Path("/srv/app"), PROTOS.RpcException(message=message, stack_trace=""))

    assert "the app in /srv/app cannot be indexed: ModuleNotFoundError: No module named 'missing'" == said


def test_a_missing_folder_is_distinguished_from_a_missing_file(tmp_path: Path) -> None:
    """Each with its own words."""
    assert f"the app's folder {tmp_path / 'x'} does not exist" == describe_no_functions(tmp_path / "x")
    assert "the file function_app.py is missing there" in describe_no_functions(tmp_path)
