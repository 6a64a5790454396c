from __future__ import annotations

import socket
from pathlib import Path

import pytest

from local_azure.azurite import Azurite
from tests.contract.local_azure.dev_host import fixture_settings, start_dev_host, start_dev_host_process
from tests.contract.local_azure.functions_host.conftest import open_queue
from tests.support.processes import child_environment, free_port, start_module

pytestmark = [pytest.mark.azurite, pytest.mark.xdist_group("functions_host")]

HTTP_ONLY = """
import azure.functions as func
import os
app = func.FunctionApp()

@app.route(route="say")
def say(req: func.HttpRequest) -> str:
    return os.environ["WORD"] + os.environ["OTHER"]
"""


def _refused(app_folder: Path, **settings: str) -> str:
    """Start an app that cannot start; return the host's message."""
    process = start_dev_host_process(app_folder, settings, "--storage-patience-s", "0.5", root=app_folder)
    assert 1 == process.await_end()
    (line,) = [line for line in process.output().splitlines() if line.startswith("dev host: ")]
    return line


def _write(app_folder: Path, source: str) -> None:
    (app_folder / "function_app.py").write_text(source, encoding="utf-8")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (
            "import nowhere_at_all\n",
            "No module named 'nowhere_at_all' (at function_app.py, line 1: import nowhere_at_all)",
        ),
        ("x = 1\ndef broken(:\n", "SyntaxError: invalid syntax (function_app.py, line 2)"),
        pytest.param(
            *(
                "raise RuntimeError('no setting X')\n",
                "RuntimeError: no setting X (at function_app.py, line 1: raise",
            ),
            marks=pytest.mark.slow,
        ),
        pytest.param("import sys\nsys.exit('bye')\n", "SystemExit: bye", marks=pytest.mark.slow),
        ("x = 1\n", "Could not find top level function app instances in function_app.py."),
        pytest.param(
            *("import azure.functions as f\na = f.FunctionApp()\nb = f.FunctionApp()\n", "More than one FunctionApp"),
            marks=pytest.mark.slow,
        ),
        ("import azure.functions as f\na = f.FunctionApp()\n", "its app object has no functions"),
    ],
)
def test_an_app_that_cannot_be_indexed_is_explained_in_one_line(app_folder: Path, source: str, expected: str) -> None:
    """The exit code is 1, and a single line names the exception and the place that raised it."""
    _write(app_folder, source)

    assert expected in _refused(app_folder)


def test_a_missing_root_file_is_named(app_folder: Path) -> None:
    """A package of the same name does not replace function_app.py."""
    (app_folder / "function_app").mkdir()
    (app_folder / "function_app" / "__init__.py").write_text("", encoding="utf-8")

    assert "the file function_app.py is missing there" in _refused(app_folder)


def test_a_setting_that_a_binding_names_must_be_there(app_folder: Path) -> None:
    """The message has the function, the binding's text and the setting."""
    _write(
        app_folder,
        "import azure.functions as f\na = f.FunctionApp()\n"
        "@a.timer_trigger(arg_name='t', schedule='%WHEN%')\ndef tick(t: f.TimerRequest) -> None: ...\n",
    )

    assert "function tick has a binding with '%WHEN%', but the app setting WHEN is not set" in _refused(app_folder)


def test_storage_that_does_not_answer_is_named(app_folder: Path) -> None:
    """After a while the host names the setting and the address that it waited for."""
    port = free_port()
    storage = f"DefaultEndpointsProtocol=http;AccountName=a;AccountKey=AAAA;QueueEndpoint=http://127.0.0.1:{port}/a;"
    _write(
        app_folder,
        "import azure.functions as f\na = f.FunctionApp()\n"
        "@a.queue_trigger(arg_name='m', queue_name='q', connection='Store')\n"
        "def take(m: f.QueueMessage) -> None: ...\n",
    )

    said = _refused(app_folder, Store=storage)

    assert f"queue q of setting Store: storage at 127.0.0.1:{port}/a did not answer within" in said


def test_a_port_that_is_taken_is_named(app_folder: Path) -> None:
    """The check comes before the import of the app."""
    _write(app_folder, "raise RuntimeError\n")
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        process = start_module(
            "local_azure.functions_host",
            *("--root", str(app_folder), "--port", str(port)),
            log=app_folder / "log",
            environment=child_environment(),
        )
        assert 1 == process.await_end()

    assert f"dev host: port {port} on 127.0.0.1 cannot be used: Address already in use" in process.output()


def test_local_settings_are_read_and_the_environment_wins(app_folder: Path) -> None:
    """An app without queues needs no storage; its settings come from the file and the environment overrides them."""
    _write(app_folder, HTTP_ONLY)
    (app_folder / "local.settings.json").write_text('{"Values": {"WORD": "file", "OTHER": "file"}}', encoding="utf-8")
    settings = {"WORD": "environment ", "FIXTURE_JOURNAL": str(app_folder / "journal")}

    host = start_dev_host(app_folder, settings, root=app_folder)
    answer = host.request("GET", "/api/say")

    assert (200, "environment file") == (answer.status_code, answer.text)
    assert 0 == host.process.stop()


def test_a_running_invocation_is_finished_before_the_end(azurite: Azurite, tmp_path: Path) -> None:
    """After SIGTERM the invocation ends, its message is deleted, and the host exits with 0."""
    host = start_dev_host(tmp_path, fixture_settings(azurite.connection_string(), "stopping", tmp_path / "journal"))
    queue = open_queue(azurite, "stopping")
    queue.send("sleep 1 to the end")
    host.wait_for_bodies("sleep 1 to the end")

    assert 0 == host.process.stop()
    assert ["sleep 1 to the end"] == [entry["body"] for entry in host.journalled("slept")]
    assert 0 == queue.client.get_queue_properties().approximate_message_count


def test_an_invocation_that_outlives_the_grace_is_left_to_the_next_host(azurite: Azurite, tmp_path: Path) -> None:
    """The host exits in time with 0, and the message is still in the queue."""
    settings = fixture_settings(azurite.connection_string(), "outliving", tmp_path / "journal")
    host = start_dev_host(tmp_path, settings, "--grace-s", "0.2")
    queue = open_queue(azurite, "outliving")
    queue.send("sleep 60")
    host.wait_for_bodies("sleep 60")

    assert 0 == host.process.stop()
    assert [] == host.journalled("slept")
    assert 1 == queue.client.get_queue_properties().approximate_message_count
    assert "gave up on ['take'] after 0.2 s" in host.process.output()
