"""Output folders as Azure ML mounts them: what programs of a job may do there, and what other nodes see of it."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from local_azure.azure_ml.mounts import LIBRARY_VARIABLE, SOURCE, MountRules, build_library, mount_variables

SOUND = MountRules(delay_s=600.0, cached_s=600.0, errors_permille=0)
"""No errors, and a delay that no test waits for."""

Run = Callable[..., str]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library, built as the emulator builds it."""
    built = build_library(tmp_path_factory.mktemp("library"))
    if built is None:
        pytest.skip("there is no C compiler")
    return built


@pytest.fixture
def run(library: Path, tmp_path: Path) -> Run:
    """Run a program on a node of a job with the output ``out`` and the input ``in``; return what it prints."""
    (tmp_path / "out").mkdir()
    (tmp_path / "in" / "folder").mkdir(parents=True)
    (tmp_path / "in" / "weights").write_text("w")
    opened_at: list[str] = []

    def run(code: str, node: int = 0, rules: MountRules = SOUND, command: tuple[str, ...] = ()) -> str:
        mount = mount_variables(library, [tmp_path / "out"], tmp_path / "mount", rules, inputs=[tmp_path / "in"])
        opened_at.append(mount["LANDFALL_MOUNT_OPENED_AT"])
        mount["LANDFALL_MOUNT_OPENED_AT"] = opened_at[0]  # all programs of a test are one job
        ended = subprocess.run(
            command or [sys.executable, "-c", PRELUDE + textwrap.dedent(code)],
            env={**os.environ, **mount, "LD_PRELOAD": mount[LIBRARY_VARIABLE], "OMPI_COMM_WORLD_RANK": str(node)},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        )
        return ended.stdout.strip()

    return run


PRELUDE = """
import errno, mmap, os, pathlib
out = pathlib.Path("out")
def tried(call, *arguments):
    try:
        call(*arguments)
    except OSError as error:
        return errno.errorcode[error.errno]
    return "done"
"""


def test_a_file_that_is_written_from_start_to_end_is_there_when_it_is_closed(run: Run, tmp_path: Path) -> None:
    """Until then not even this node sees it, and storage never has a part of it."""
    printed = run("""
        with open("out/a.txt", "w") as file:
            file.write("whole")
            file.flush()
            print(os.listdir("out"), os.path.exists("out/a.txt"))
        print(os.listdir("out"), open("out/a.txt").read())
    """)
    assert "[] False\n['a.txt'] whole" == printed
    assert [tmp_path / "out" / "a.txt"] == list((tmp_path / "out").iterdir())


def test_no_file_of_several_threads_is_lost(run: Run) -> None:
    """A descriptor's number may be another thread's file as soon as it is closed."""
    printed = run("""
        import threading
        def write(thread):
            for number in range(500):
                os.close(os.open(f"out/{thread}-{number}", os.O_WRONLY | os.O_CREAT))
        threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print(len(os.listdir("out")))
    """)
    assert "4000" == printed


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("os.rename, 'out/new', 'out/old'", "EEXIST"),
        ("os.replace, 'out/new', 'out/old'", "EEXIST"),
        ("os.rename, 'out/new', 'out/other'", "done"),
        ("os.rename, 'elsewhere', 'out/other'", "EXDEV"),
        ("os.rename, 'out/folder', 'out/other'", "ENOTSUP"),
        ("open, 'out/old', 'a'", "ENOTSUP"),
        ("open, 'out/other', 'a'", "ENOTSUP"),
        ("open, 'out/old', 'r+b'", "ENOTSUP"),
        ("open, 'out/old', 'w'", "EEXIST"),
        ("os.truncate, 'out/old', 1", "ENOTSUP"),
        ("os.link, 'out/old', 'out/other'", "EPERM"),
        ("os.symlink, 'old', 'out/other'", "EPERM"),
        ("os.unlink, 'out/old'", "done"),
        ("open, 'out/none/other', 'w'", "ENOENT"),
    ],
)
def test_what_a_blob_cannot_do_fails(run: Run, tmp_path: Path, call: str, expected: str) -> None:
    """Everything that exists is unchanged."""
    (tmp_path / "out" / "folder").mkdir()
    for name in ("elsewhere", "out/new", "out/old"):
        (tmp_path / name).write_text(name)
    assert expected == run(f"print(tried({call}))")
    assert "out/old" == (tmp_path / "out" / "old").read_text() if expected != "done" else True


@pytest.mark.parametrize(
    "call",
    [
        "open, 'in/weights', 'a'",
        "open, 'in/weights', 'r+b'",
        "open, 'in/new', 'w'",
        "os.open, 'in/new', os.O_CREAT",
        "os.rename, 'in/weights', 'in/other'",
        "os.rename, 'elsewhere', 'in/other'",
        "os.unlink, 'in/weights'",
        "os.truncate, 'in/weights', 0",
        "os.symlink, 'weights', 'in/other'",
        "os.mkdir, 'in/other'",
        "os.rmdir, 'in/folder'",
    ],
)
def test_an_input_is_read_only(run: Run, tmp_path: Path, call: str) -> None:
    """This includes root, as which the twin may run; reading continues as before."""
    (tmp_path / "elsewhere").write_text("x")
    assert "EROFS w" == run(f"print(tried({call}), open('in/weights').read())")
    assert ["folder", "weights"] == sorted(path.name for path in (tmp_path / "in").iterdir())


@pytest.mark.parametrize(
    "write",
    [
        "file.seek(0); file.write(b'x'); file.flush()",
        "os.pwrite(file.fileno(), b'x', 2)",
        "os.lseek(file.fileno(), 1, 0); os.write(file.fileno(), b'x')",
        "os.ftruncate(file.fileno(), 1)",
        "mmap.mmap(file.fileno(), 4)",
    ],
)
def test_a_write_elsewhere_than_at_the_end_fails(run: Run, write: str) -> None:
    """Whether Python or a C library asks for it."""
    printed = run(f"""
        file = open("out/a", "w+b")
        file.write(b"four")
        file.flush()
        def write():
            {write}
        print(tried(write))
    """)
    assert printed in ("ENOTSUP", "ENODEV")


def test_writes_of_the_c_library_are_seen_too(run: Run, tmp_path: Path) -> None:
    """A stream of C's own, as TensorFlow and HDF5 use them: append, seek, then a whole file."""
    run("""
        import ctypes
        c = ctypes.CDLL(None, use_errno=True)
        c.fopen.restype = ctypes.c_void_p
        assert c.fopen(b"out/a", b"a") is None and ctypes.get_errno() == errno.ENOTSUP
        file = ctypes.c_void_p(c.fopen(b"out/b", b"w"))
        c.fwrite(b"whole", 1, 5, file)
        assert c.fseek(file, 0, 0) == -1
        assert c.fclose(file) == 0
    """)
    assert {"b": "whole"} == {path.name: path.read_text() for path in (tmp_path / "out").iterdir()}


def test_a_shell_may_redirect_into_an_output_once(run: Run, tmp_path: Path) -> None:
    """This includes the output of a program that the shell becomes."""
    run(
        "",
        command=("/bin/bash", "-c", "echo one > out/a; ls -d . > out/b; echo two >> out/a; exec cat out/a > out/c"),
    )
    assert {"a": "one\n", "b": ".\n", "c": "one\n"} == {p.name: p.read_text() for p in (tmp_path / "out").iterdir()}


def test_a_process_that_is_killed_leaves_no_part_of_a_file(run: Run, tmp_path: Path) -> None:
    """What was not closed was not written."""
    with pytest.raises(subprocess.CalledProcessError):
        run("file = open('out/a', 'w'); file.write('half'); file.flush(); os.kill(os.getpid(), 9)")
    assert [] == list((tmp_path / "out").iterdir())


def test_other_nodes_see_a_file_only_after_a_delay(run: Run, tmp_path: Path) -> None:
    """Its own node sees it at once; what was there when the job started is seen by all."""
    (tmp_path / "out" / "old").write_text("of an earlier attempt")
    run("out.joinpath('new').write_text('x')")
    look = "print(sorted(os.listdir('out')), out.joinpath('new').exists(), tried(open, 'out/new'))"
    assert "['new', 'old'] True done" == run(look, node=0)
    assert "['old'] False ENOENT" == run(look, node=1)
    assert "['new', 'old'] True done" == run(look, node=1, rules=replace(SOUND, delay_s=0.0))


def test_what_was_absent_stays_absent_for_a_while(run: Run) -> None:
    """Attributes are cached: a program that looked too early does not see a file that others see by now."""
    look_early = """
        import subprocess, sys
        def on_another_node(code):
            other = {**os.environ, "OMPI_COMM_WORLD_RANK": "1"}
            return subprocess.run([sys.executable, "-c", code], env=other, check=True)
        early = os.path.exists("out/a")
        on_another_node("open('out/a', 'w').close()")
        print(early, os.path.exists("out/a"), tried(open, "out/a"))
    """
    assert "False False ENOENT" == run(look_early, rules=replace(SOUND, delay_s=0.0))
    assert "True" == run("print(os.path.exists('out/a'))", rules=replace(SOUND, delay_s=0.0))


def test_errors_come_by_seed_and_only_once_for_a_path(run: Run) -> None:
    """A program that retries therefore continues, and a failed test can be repeated."""
    code = "print([tried(out.joinpath(f'{i}').write_text, 'x') for i in range(40)].index('EIO'))"
    always = replace(SOUND, errors_permille=200)
    first, other = run(code, rules=always), run(f"out.joinpath('0').exists(); {code}", rules=replace(always, seed=7))
    assert first != other
    again = "print(tried(out.joinpath('again').write_text, 'x'), tried(out.joinpath('again').write_text, 'x'))"
    assert "EIO done" == run(again, rules=replace(SOUND, errors_permille=1000))


def test_without_a_compiler_outputs_are_plain_folders_and_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What is then not checked is named."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert build_library(tmp_path / "none") is None
    assert "nothing checks that a training writes them as a mount allows" in caplog.text


def test_the_library_compiles_without_a_warning(tmp_path: Path, library: Path) -> None:
    """The warnings are those of -Wall and -Wextra."""
    assert library.exists()
    command = ["cc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-Wno-format-truncation", "-fPIC", "-shared"]
    subprocess.run([*command, "-o", tmp_path / "checked.so", SOURCE], check=True)
