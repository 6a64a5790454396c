"""``python -m cli`` is ``landfall``."""

import signal

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    # Ctrl-C would show a stack trace of the imports; main() restores Python's handler before it does anything.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from cli.main import main

main()
