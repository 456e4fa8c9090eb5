"""A suite that was started in the background of a script ignores Ctrl-C, and so would every process that it starts."""

from __future__ import annotations

import signal

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
