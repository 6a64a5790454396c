"""``python -m cli`` is ``landfall``."""

from cli.main import main

main()
