"""A process with one client of a chaos run, which ends after SIGTERM.

`python -m tests.chaos.client_process KIND NAME OPTIONS`: KIND is one of `KINDS`, OPTIONS has the further arguments of
its class in JSON. Each event is a line of its output, which is written before the client goes on: it counts also if
the process is killed in the next moment.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any, Final

from tests.chaos.history import line_of
from tests.chaos.their_wide_workload import TheirMember
from tests.chaos.wide_workload import GroupMember
from tests.chaos.workload import Notes, OurSender, TheirSender, Worker

FAILURE: Final = "failure"
KINDS: Final[dict[str, Callable[..., Worker]]] = {
    kind.__name__: kind for kind in (OurSender, TheirSender, GroupMember, TheirMember)
}
_OUTPUT: Final = 1
_LOOK_SECONDS: Final = 0.5


class PipedNotes(Notes):
    """Writes events and failures to the output of the process, and keeps none."""

    def add(self, *events: Any) -> None:
        self._write("".join(f"{line_of(event)}\n" for event in events))

    def fail(self, client: str, error: BaseException) -> None:
        self._write(f"{json.dumps({FAILURE: f'{client}: {error!r}'})}\n")

    def _write(self, lines: str) -> None:
        content = lines.encode()
        with self._lock:
            while content:
                try:
                    content = content[os.write(_OUTPUT, content) :]
                except BrokenPipeError:
                    os._exit(1)  # the run has ended


def main() -> None:
    kind, name, options = sys.argv[1:]
    worker = KINDS[kind](name, PipedNotes(), **json.loads(options))
    signal.signal(signal.SIGTERM, lambda *_: worker.stop())
    worker.start()
    # A signal that the system gives to another thread, as it may just after SIGCONT, does not wake this one; Python
    # calls the handler here all the same, but only when this thread runs again.
    while not worker.ends_within(_LOOK_SECONDS):
        pass


if __name__ == "__main__":
    main()
