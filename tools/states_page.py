"""Write docs/states.md from the one table of states: `python -m tools.states_page`."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "states.md"


def main() -> int:
    """Write the page."""
    sys.path.insert(0, str(ROOT))  # the tools run from anywhere
    from function_app.domain.run_states import states_page

    PAGE.write_text(states_page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
