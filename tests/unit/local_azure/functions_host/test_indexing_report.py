from __future__ import annotations

from pathlib import Path

from local_azure.functions_host.functions import describe_failure, describe_no_functions, failing_line
from local_azure.functions_host.worker import PROTOS

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
    """Not the runtime's and not an installed package's, even inside the app's folder."""
    assert "function_app.py, line 3: from function_app.main import app" == failing_line(Path("/srv/app"), TRACE)


def test_without_a_line_of_the_app_the_innermost_is_shown() -> None:
    """Better a package's line than none."""
    assert failing_line(Path("/elsewhere"), TRACE).endswith("pkg/__init__.py, line 7: import missing")
    assert "" == failing_line(Path("/elsewhere"), "no frames")


def test_the_runtimes_advice_is_cut_off() -> None:
    """It adds a link and the whole search path to every import error."""
    message = "ModuleNotFoundError: No module named 'missing'. Cannot find module. Please check … sys.path: /a /b"
    said = describe_failure(Path("/srv/app"), PROTOS.RpcException(message=message, stack_trace=""))

    assert "the app in /srv/app cannot be indexed: ModuleNotFoundError: No module named 'missing'" == said


def test_a_missing_folder_is_told_from_a_missing_file(tmp_path: Path) -> None:
    """Each with its own words."""
    assert f"the app's folder {tmp_path / 'x'} does not exist" == describe_no_functions(tmp_path / "x")
    assert "the file function_app.py is missing there" in describe_no_functions(tmp_path)
