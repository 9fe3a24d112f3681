"""Producers, consumers and admins behind a proxy that spoils answers: typed errors, no hang, no failure of the loop."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from pyclient import Admin, Consumer, NewTopic, Producer, TopicPartition
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.errors import KafkaError
from tests.fuzz.hostile_proxy import HostileProxy

TOPIC: Final = "fuzz-clients"
CALL_SECONDS: Final = 45.0
"""No call may take longer: the clients' own timeouts are much shorter."""
_QUICK: Final = {"request_timeout_ms": 1000, "retry_backoff_ms": 10, "reconnect_backoff_ms": 10}


@dataclass(slots=True)
class ClientOutcome:
    """The result of a run."""

    seed: int
    answers: int = 0
    episodes: int = 0
    spoiled: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    findings: dict[str, str] = field(default_factory=dict)

    def lines(self) -> list[str]:
        """Return the report."""
        return [
            f"seed {self.seed}: {self.episodes} clients, {self.answers} answers, {self.spoiled.total()} spoiled",
            "spoiled: " + " ".join(f"{name}:{count}" for name, count in sorted(self.spoiled.items())),
            "errors raised: " + " ".join(f"{name}:{count}" for name, count in sorted(self.errors.items())),
            f"findings: {len(self.findings)}",
            *(f"{key}\n{text}" for key, text in self.findings.items()),
        ]


class ErrorsOfLoops(logging.Handler):
    """Keeps what the clients log with an exception: their loops must not fail."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.found: dict[str, str] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record if an unexpected exception is in it."""
        error = record.exc_info[1] if record.exc_info else None
        if error is None or isinstance(error, KafkaError):
            return
        text = "".join(traceback.format_exception(error))
        self.found[f"logged {type(error).__name__}: {record.msg}"] = f"{record.getMessage()}\n{text}"


class ClientCampaign:
    """One broker, and clients one after the other, each behind a proxy of its own."""

    def __init__(self, seed: int, seconds: float, say: Callable[[str], None]) -> None:
        self._rng = Random(seed)
        self._seconds = seconds
        self._say = say
        self._outcome = ClientOutcome(seed)
        self._proxy: HostileProxy | None = None

    def run(self) -> ClientOutcome:
        """Run for the given time."""
        handler = ErrorsOfLoops()
        logging.getLogger().addHandler(handler)
        uncaught, threading.excepthook = threading.excepthook, self._uncaught
        try:
            with EmbeddedCluster(processes=True) as cluster:
                self._fill(cluster.bootstrap_servers)
                until = time.monotonic() + self._seconds
                while time.monotonic() < until:
                    self._episode(int(cluster.bootstrap_servers.rpartition(":")[2]), handler)
        finally:
            threading.excepthook = uncaught
            logging.getLogger().removeHandler(handler)
        return self._outcome

    def _fill(self, address: str) -> None:
        with Admin(bootstrap_servers=address) as admin:
            admin.create_topics([NewTopic(TOPIC, 3, 1)])
        with Producer(bootstrap_servers=address) as producer:
            for number in range(300):
                producer.send(TOPIC, b"%d" % number, partition=number % 3)

    def _episode(self, port: int, handler: ErrorsOfLoops) -> None:
        rng, outcome = self._rng, self._outcome
        outcome.episodes += 1
        seed = rng.getrandbits(32)
        proxy = self._proxy = HostileProxy(port, seed, rng.choice((0.02, 0.1, 0.3, 1.0)))
        client = rng.choice((self._produce, self._consume, self._consume, self._join, self._join, self._administer))
        what = f"{client.__name__.strip('_')} with seed {seed} and rate {proxy.rate:g}"
        failure: list[BaseException] = []
        thread = threading.Thread(target=self._guard, args=(client, proxy.address, failure), daemon=True)
        thread.start()
        thread.join(CALL_SECONDS)
        if thread.is_alive():
            frame = sys._current_frames().get(thread.ident or 0)
            stack = "".join(traceback.format_stack(frame)) if frame is not None else ""
            self._add(f"hang in {client.__name__.strip('_')}", f"{what}\n{stack}")
        for error in failure:
            place = traceback.extract_tb(error.__traceback__)[-1]
            key = f"raised {type(error).__name__} in {place.name}"
            self._add(key, f"{what}\n" + "".join(traceback.format_exception(error)))
        for key, text in handler.found.items():
            self._add(key, f"{what}\n{text}")
        handler.found.clear()
        proxy.close()
        outcome.answers += proxy.answers
        outcome.spoiled += proxy.spoiled

    def _guard(self, client: Callable[[str], None], address: str, failure: list[BaseException]) -> None:
        try:
            client(address)
        except BaseException as error:
            failure.append(error)

    def _add(self, key: str, text: str) -> None:
        if key not in self._outcome.findings:
            assert self._proxy is not None
            text += "\nlast answers spoiled:\n  " + "\n  ".join(self._proxy.log[-8:])
            self._outcome.findings[key] = text
            self._say(f"finding: {key}\n{text}")

    def _uncaught(self, args: Any) -> None:
        self._add(f"uncaught {args.exc_type.__name__} in a thread", "".join(traceback.format_tb(args.exc_traceback)))

    @contextlib.contextmanager
    def _typed(self) -> Any:
        """Count errors of Kafka, which a spoiled answer may lead to; everything else is a finding."""
        try:
            yield
        except KafkaError as error:
            self._outcome.errors[type(error).__name__] += 1

    # -- the clients

    def _produce(self, address: str) -> None:
        with self._typed():
            options: dict[str, Any] = {"delivery_timeout_ms": 2500, "max_block_ms": 1500, "linger_ms": 0, **_QUICK}
            producer = Producer(bootstrap_servers=address, **options)
            futures = []
            for number in range(60):
                with self._typed():
                    futures.append(producer.send(TOPIC, b"hostile-%d" % number, key=b"%d" % number))
            for future in futures:
                with self._typed():
                    future.result(timeout=5)
            with self._typed():
                producer.close(timeout=5)

    def _consume(self, address: str) -> None:
        with self._typed():
            options: dict[str, Any] = {"default_api_timeout_ms": 1500, "auto_offset_reset": "earliest", **_QUICK}
            consumer = Consumer(bootstrap_servers=address, **options)
            consumer.assign([TopicPartition(TOPIC, number) for number in range(3)])
            for _ in range(12):
                with self._typed():
                    list(consumer.poll(timeout=0.1))
            with self._typed():
                consumer.end_offsets([TopicPartition(TOPIC, 0)])
            with self._typed():
                consumer.seek_to_beginning()
                list(consumer.poll(timeout=0.1))
            with self._typed():
                consumer.close()

    def _join(self, address: str) -> None:
        with self._typed():
            options: dict[str, Any] = {"default_api_timeout_ms": 1500, "auto_offset_reset": "earliest", **_QUICK}
            options["group_protocol"] = self._rng.choice(("classic", "consumer"))
            if options["group_protocol"] == "classic":
                options |= {"session_timeout_ms": 2000, "heartbeat_interval_ms": 100}
            group = f"group-{self._rng.randrange(5)}"
            consumer = Consumer(TOPIC, bootstrap_servers=address, group_id=group, **options)
            for _ in range(12):
                with self._typed():
                    list(consumer.poll(timeout=0.2))
            with self._typed():
                consumer.commit()
            with self._typed():
                consumer.committed([TopicPartition(TOPIC, 0)])
            with self._typed():
                consumer.close()

    def _administer(self, address: str) -> None:
        with self._typed():
            admin = Admin(bootstrap_servers=address, default_api_timeout_ms=1500, **_QUICK)
            name = f"made-{self._rng.randrange(1 << 30)}"
            for call in (
                lambda: admin.create_topics([NewTopic(name, 1, 1)]),
                admin.list_topics,
                lambda: admin.describe_topics([TOPIC]),
                admin.list_groups,
                lambda: admin.describe_groups(["group-0"]),
                lambda: admin.delete_topics([name]),
            ):
                with self._typed():
                    call()
            with self._typed():
                admin.close()
