"""Clients of a chaos run in processes of their own, which are killed, frozen and started again."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import IO, Any, Final

from pyclient.errors import FencedInstanceId
from tests.chaos.client_process import FAILURE, KINDS
from tests.chaos.history import INFO, Call, ClientFault, Commit, CommitCall, Event, Place, Read, Send, Value, event_of
from tests.chaos.workload import DELIVERY_SECONDS, Notes, Sending, Worker

KILL: Final = "kill"
FREEZE: Final = "freeze"
FENCED: Final = "fenced"
_FENCED_ERROR: Final = FencedInstanceId.__name__
_LIFE_SECONDS: Final = (10.0, 40.0)
_AWAY_SECONDS: Final = 9.0  # at most, between two lives: the session of a member (6 s) is over, or not
_FROZEN_SHARE: Final = 0.3  # of the lives
_FROZEN_SECONDS: Final = (1.0, 10.0)
_LOOK_SECONDS: Final = 0.2
_END_SECONDS: Final = DELIVERY_SECONDS + 20
_POLLS: Final = 1_000_000  # no life has so many


class KilledClient(Worker):
    """A client in a process that is killed about every 30 s; what it notes until then is part of the history.

    Each life has a name of its own, after the client's: `NAME.LIFE`. The lives of a static member share the name, as
    one takes over the partitions of the other in the same generation. `kills` is the seed of the kills.

    A static member of a classic group may be fenced by its former life: the coordinator stores the member id of the new
    one with the next generation, as in Kafka, and when it moves before, its successor knows the former one only. Such a
    member is started again, too.
    """

    def __init__(self, name: str, notes: Notes, kind: str, kills: int, /, **options: Any) -> None:
        super().__init__(name, notes)
        self.is_sender = isinstance(KINDS[kind], type) and issubclass(KINDS[kind], Sending)
        self._kind, self._options = kind, options
        self._random = random.Random(kills)
        self._is_fenced = False

    def work(self) -> None:
        lives = 0
        while not self.stopping.is_set():
            lives += 1
            self._live(lives)
            self.stopping.wait(self._random.uniform(0.0, _AWAY_SECONDS))

    def _live(self, life: int) -> None:
        name = self.name if self._options.get("instance") else f"{self.name}.{life}"
        command = [sys.executable, "-m", "tests.chaos.client_process", self._kind, name, json.dumps(self._options)]
        noted: list[Event] = []
        at_work = threading.Event()
        self._is_fenced = False
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            reading = threading.Thread(target=self._read, args=(process.stdout, noted, life, at_work))
            reading.start()
            try:
                killed = self._begins(at_work) and self._disturb(process, reading)
                if not killed:
                    process.terminate()
                    process.wait(_END_SECONDS)
            finally:
                ended = time.monotonic()
                process.kill()
                reading.join()
        if killed:
            unknown = list(unknown_outcomes(noted, ended))
            how = FENCED if self._is_fenced else KILL
            self.notes.add(*unknown, ClientFault(name, how, ended, ended, len(unknown)))
        elif process.returncode and (noted or process.returncode != -signal.SIGTERM):  # that ends it before it begins
            raise ChildProcessError(f"{name} ended with {process.returncode}")

    def _begins(self, at_work: threading.Event) -> bool:
        """Wait for the first event, as interpreters begin slowly. Return False if the run ends before."""
        while not at_work.wait(_LOOK_SECONDS):
            if self.stopping.is_set():
                return False
        return True

    def _disturb(self, process: subprocess.Popen[str], reading: threading.Thread) -> bool:
        """Freeze the process at times, until it is to be killed. Return False if the run ends before."""
        if self._random.random() < _FROZEN_SHARE:
            if self.stopping.wait(self._random.uniform(*_LIFE_SECONDS) / 2):
                return False
            began = time.monotonic()
            process.send_signal(signal.SIGSTOP)
            self.stopping.wait(self._random.uniform(*_FROZEN_SECONDS))
            process.send_signal(signal.SIGCONT)
            self.notes.add(ClientFault(self.name, FREEZE, began, time.monotonic()))
        if self.stopping.wait(self._random.uniform(*_LIFE_SECONDS)):
            return False
        if process.poll() is not None:
            reading.join()  # only its last line may say that it was fenced
            if not self._is_fenced:
                raise ChildProcessError(f"{self.name} ended with {process.returncode} by itself")
        return True

    def _read(self, output: IO[str], noted: list[Event], life: int, at_work: threading.Event) -> None:
        for line in output:
            if not line.endswith("\n"):
                break  # the process was killed while it wrote the line
            if line.startswith(f'{{"{FAILURE}"'):
                failure = json.loads(line)[FAILURE]
                self._is_fenced = bool(self._options.get("instance")) and _FENCED_ERROR in failure
                if not self._is_fenced:
                    self.notes.fail(self.name, RuntimeError(failure))
                continue
            event = event_of(line)
            if isinstance(event, Read):
                event = replace(event, poll=life * _POLLS + event.poll)
            noted.append(event)
            self.notes.add(event)
            at_work.set()
        at_work.set()  # it has ended


def unknown_outcomes(noted: Iterable[Event], killed: float) -> Iterator[Send | Commit]:
    """Yield outcomes for the sends and commits of a client that were begun, and had none when it was killed.

    A commit has no known generation: the member may have sent it in a later one than it had when it began.
    """
    calls: dict[Value, Call] = {}
    commits: dict[tuple[float | None, Place], Commit] = {}
    for event in noted:
        match event:
            case Call():
                calls[event.value] = event
            case Send():
                calls.pop(event.value, None)
            case CommitCall():
                for place, offset in zip(event.places, event.offsets, strict=True):
                    commits[event.at, place] = Commit(
                        event.group, event.member, -1, place, offset, killed, event.at, INFO
                    )
            case Commit():
                commits.pop((event.began, event.place), None)
    for call in calls.values():
        yield Send(
            call.value, call.place, call.kind, INFO, None, call.at, killed, call.transaction, "its client was killed"
        )
    yield from commits.values()
