"""Generate the synchronous clients from the asyncio ones: `python -m tools.sync_clients`, with `--check` compare only.

The tokens `async` and `await` are removed, names are replaced as in `NAMES`, and passages that differ, mostly
docstrings, as in a client's `passages`. What else differs is a module that both clients import.
"""

from __future__ import annotations

import argparse
import difflib
import io
import re
import subprocess
import sys
import tokenize
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
NAMES: Final = {
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "__anext__": "__next__",
    "aclosing": "closing",
    "AsyncIterator": "Iterator",
}


_ASYNCIO_NOTES: Final = """
    Callbacks of a `RebalanceListener` and a function given as `on_deserialization_error` may be `async def`. Heartbeats
    are sent from the same loop, so code that blocks it for longer than `session_timeout_ms` loses the partitions. There
    is no thread, except that host names, unlike numeric addresses, are resolved in a short-lived one,
    `pyclient-dns-<host>`, because the system's resolver only blocks.
"""


_ASYNCIO_PROCESS: Final = """\
    `process` is a function, a coroutine function or an asynchronous generator. It is called for one record after
    another; if the task is cancelled, the transaction is aborted.

"""


@dataclass(frozen=True)
class Client:
    """An asyncio client's file, the file to generate, and what differs between them."""

    source: str
    target: str
    names: dict[str, str]
    passages: dict[str, str]
    spans: tuple[tuple[str, str, str], ...] = ()
    """(first words, words after the end, the replacement): longer passages."""


_PRODUCER: Final = '''\
class Producer(RecordSender[DeliveryFuture]):
    """Send records to Kafka; any number of threads may share one producer.

        with Producer("localhost:9092", linger_ms=5) as producer:
            future = producer.send("orders", b"...", key=b"42")
            print(future.result(timeout=10).offset)

    Options are Kafka's, with `_` for `.` (`ProducerConfig` lists them), as keywords or as a Kafka-style `config`
    dictionary; an invalid one raises `ConfigError`. The constructor does not wait for the cluster. Defaults are safe:
    with acks="all" and idempotence, retries neither lose, duplicate nor reorder records.

    A call interrupted by Ctrl-C may leave the outcome of its record unknown, if no future of it was returned: it may be
    delivered (of a `send_many`, any of its rows). The producer stays usable and loses nothing else; an interrupted
    `flush` or `close` can be called again.
    """

'''
_COMPILED_SEND: Final = '''\
    send = RecordSender.send
    """Compiled, if the codec is: it appends a record to an open batch, without a lock, and calls `_send` for all else.

    A call of Python code for each record would take longer than that append (docs/measurements.md, "Calls of send").
    """

'''

CLIENTS: Final = (
    Client(
        "pyclient/admin/async_admin.py",
        "pyclient/admin/admin.py",
        names={"AsyncAdmin": "Admin", "AsyncRunner": "ThreadRunner"},
        passages={
            '"""The asyncio admin client."""': '"""The synchronous admin client."""',
            "describes and deletes groups.\n": "describes and deletes groups. Thread-safe.\n",
            ">>> async with": ">>> with",
            "...     await admin.": "...     admin.",
            "Close the connections. Idempotent": "Close the connections and end the thread. Idempotent",
            "use it in `async with`, or await close()": "use it in `with`, or call close()",
        },
    ),
    Client(
        "pyclient/producer/async_producer.py",
        "pyclient/producer/producer.py",
        names={
            "AsyncProducer": "Producer",
            "AsyncRunner": "ThreadRunner",
            "RecordAppender": "RecordSender",
            "asynccontextmanager": "contextmanager",
        },
        passages={
            "`AsyncProducer`: the asynchronous API, on the caller's event loop.": "`Producer`: the synchronous API.",
            "from pyclient.producer.async_runner import AsyncRunner\n": "",
            "import EXIT_SECONDS\n": "import EXIT_SECONDS, ThreadRunner\n",
            "    check_callback,\n": "",
            "self._plain = self._config.plain": "self._plain = self._direct = self._config.plain",
            "        call_after": "        self._attach(self._runner.client)\n        call_after",
            "self._open_batches = client.": ("self._fast_path, self._open_batches = self._runner.fast_path, client."),
            "self._open_batches = {}, {}": "self._open_batches, self._fast_path = {}, {}, None",
            "AsyncIterator, Callable, Mapping": "AsyncIterator, Mapping",
            "`async with` block": "`with` block",
            "use `async with`, or": "use `with`, or",
            '"an AsyncProducer holds': '"a Producer holds',
        },
        spans=(
            ("class AsyncProducer(", "    def __init__", _PRODUCER),
            ("    async def start(", "    async def _started(", ""),
            ("    async def send(", "    async def _send(", _COMPILED_SEND),
        ),
    ),
    Client(
        "pyclient/consumer/async_consumer.py",
        "pyclient/consumer/consumer.py",
        names={"AsyncConsumer": "Consumer", "AsyncRunner": "ThreadRunner"},
        passages={
            '"""`AsyncConsumer`: the asyncio API."""': '"""`Consumer`: the synchronous API."""',
            " on the caller's event loop; used by one task at a time": "; used by one thread at a time",
            "        async with AsyncConsumer(": "        with AsyncConsumer(",
            "            async for record in": "            for record in",
            "`records = await consumer": "`records = consumer",
            _ASYNCIO_NOTES: "",
            # an asynchronous generator has no `yield from`
            """                for raw in chunk.iterator:
                    yield cast("Record[Any, Any]", raw)
""": """                yield from cast("AsyncIterator[Record[Any, Any]]", chunk.iterator)
""",
            "use it in `async with`, or await close()": "use it in `with`, or call close()",
        },
    ),
    Client(
        "pyclient/processing/async_processing.py",
        "pyclient/processing/processing.py",
        names={
            "async_process_transactionally": "process_transactionally",
            "async_outputs_of": "outputs_of",
            "async_pause": "pause",
            "asyncio": "threading",
            "AsyncConsumer": "Consumer",
            "AsyncProcess": "Process",
            "AsyncProducer": "Producer",
        },
        passages={
            '"""`async_process_transactionally`: the asyncio': '"""`process_transactionally`: the synchronous',
            "        async def process(record):\n": "        def process(record):\n",
            "await total_of(record.value)": "total_of(record.value)",
            "        await async_process_transactionally(consumer": "        async_process_transactionally(consumer",
            _ASYNCIO_PROCESS: "",
        },
    ),
)


def generate(client: Client) -> str:
    """Return the synchronous client's source."""
    text = (ROOT / client.source).read_text()
    for old, new in client.passages.items():
        if old not in text:
            raise ValueError(f"{client.source}: a passage to replace is not there: {old!r}")
        text = text.replace(old, new)
    for start, end, new in client.spans:
        first = text.index(start)
        text = text[:first] + new + text[text.index(end, first) :]
    text = _without_keywords(text)
    names = NAMES | client.names
    text = re.sub(rf"\b({'|'.join(map(re.escape, names))})\b", lambda found: names[found[0]], text)
    header = f"# Generated from {client.source} by `make sync-clients`; edit that file instead.\n"
    return _formatted(header + text, client.target)


def _without_keywords(text: str) -> str:
    """Return the source without `async` and `await`; those in strings and comments stay."""
    lines = text.splitlines(keepends=True)
    tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    for token, following in zip(reversed(tokens[:-1]), reversed(tokens[1:]), strict=True):
        if token.type == tokenize.NAME and token.string in ("async", "await"):
            if following.start[0] != token.start[0]:
                raise ValueError(f"line {token.start[0]}: {token.string} at the end of a line")
            row, line = token.start[0] - 1, lines[token.start[0] - 1]
            lines[row] = line[: token.start[1]] + line[following.start[1] :]
    return re.sub(r"\((self\.\w+\((?:[^()]|\([^()]*\))*\))\)\.", r"\1.", "".join(lines))  # `(await f()).x`


def _formatted(text: str, target: str) -> str:
    ruff = (sys.executable, "-m", "ruff")
    for command in (("check", "--select", "I,RUF100", "--fix-only", "--quiet"), ("format", "--quiet")):
        call = subprocess.run(
            [*ruff, *command, "--stdin-filename", str(ROOT / target), "-"],
            input=text, capture_output=True, text=True, check=False, cwd=ROOT,
        )  # fmt: skip
        if call.returncode:
            raise RuntimeError(f"ruff {command[0]} rejects the generated {target}: {call.stderr}")
        text = call.stdout
    return text


def main() -> int:
    """Write the synchronous clients, or with `--check` return 1 if one of them is not up to date."""
    parser = argparse.ArgumentParser(description="Generate the synchronous clients from the asyncio ones.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file is not up to date")
    check = parser.parse_args().check
    stale = False
    for client in CLIENTS:
        target = ROOT / client.target
        before, after = target.read_text() if target.exists() else "", generate(client)
        if before == after:
            continue
        if not check:
            target.write_text(after)
            continue
        stale = True
        changes = difflib.unified_diff(before.splitlines(), after.splitlines(), client.target, "generated", lineterm="")
        sys.stderr.write("\n".join(changes) + f"\n{client.target} is not up to date: run `make sync-clients`\n")
    return int(stale)


if __name__ == "__main__":
    raise SystemExit(main())
