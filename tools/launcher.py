"""Put `landfall` beside the environment's python.

Not an installed package: its modules would have to be named in pyproject.toml, and a `shared` or `tests` in
site-packages would shadow this clone's.
"""

from __future__ import annotations

import shlex
from pathlib import Path

SCRIPT = "import sys; sys.path.insert(0, {root!r}); from cli.main import main; main()"


def write_launcher(root: Path, venv: Path) -> Path:
    """Write `venv`/bin/landfall unless it is there as it should be; return its path."""
    launcher = venv / "bin" / "landfall"
    script = SCRIPT.format(root=str(root))
    # A shell script, as a "#!" line takes neither long paths nor spaces; -P keeps the working directory out of it.
    words = ["exec", shlex.quote(str(venv / "bin" / "python")), "-P", "-c", shlex.quote(script), '"$@"']
    text = "#!/bin/sh\n" + " ".join(words) + "\n"
    if not launcher.is_file() or launcher.read_text() != text:
        launcher.write_text(text)
        launcher.chmod(0o755)
    return launcher
