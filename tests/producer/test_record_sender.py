"""The producer's work per record, in both implementations: open batches, the appender, `send`, and outcome handles."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
import threading
from importlib import import_module
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient.clock import SYSTEM_CLOCK
from pyclient.producer import _pure, implementation
from pyclient.records import HEADER_SIZE, check_crc, partition_for_key, read_header
from pyclient.records import _pure as pure_codec
from pyclient.testing.clock import ManualClock
from pyclient.types import RecordMetadata
from tests.twins import check_interfaces

ROOT = Path(__file__).parents[2]
PARTITIONS = 3

CHANGES = st.one_of(
    st.tuples(st.just("open"), st.integers(0, PARTITIONS - 1)),
    st.tuples(st.just("close"), st.integers(0, PARTITIONS - 1)),
    st.tuples(st.just("stick_to"), st.integers(0, PARTITIONS - 1)),
    st.tuples(
        st.just("append"),
        st.one_of(st.none(), st.integers(-1, PARTITIONS)),
        st.one_of(st.none(), st.binary(max_size=20)),
    ),
)


class Twin:
    """One implementation of the work per record, and the codec that goes with it."""

    def __init__(self, module: ModuleType, codec: ModuleType) -> None:
        self.module, self.codec = module, codec
        self.BatchBuilder: Any = codec.BatchBuilder

    def rows(self, batch: Any) -> list[Any]:
        header = read_header(batch)
        check_crc(batch, 0, header)
        records = self.codec.decode_batch(batch, 0, header, "orders", 3)
        return [(record.timestamp_ms, record.key, record.value, record.headers) for record in records]


def compiled() -> Twin:
    """Return the compiled implementation; skip without it, or fail under PYCLIENT_REQUIRE_ALL=1."""
    try:
        return Twin(import_module("pyclient.producer._speedups"), import_module("pyclient.records._speedups"))
    except ImportError:
        if os.environ.get("PYCLIENT_REQUIRE_ALL") == "1":
            pytest.fail("not compiled: python setup.py build_ext --inplace", pytrace=False)
        pytest.skip("not compiled")


@pytest.fixture(scope="module", params=["c", "py"])
def twin(request: pytest.FixtureRequest) -> Twin:
    return compiled() if request.param == "c" else Twin(_pure, pure_codec)


@pytest.fixture(scope="module")
def twins() -> tuple[Twin, Twin]:
    """Return both implementations, to compare them."""
    return compiled(), Twin(_pure, pure_codec)


def test_list_of_names_is_that_of_the_python_twin(twins: tuple[Any, Any]) -> None:
    own = {name for name, each in vars(_pure).items() if inspect.isclass(each) and each.__module__ == _pure.__name__}
    assert own == set(implementation.__all__)
    for name in implementation.__all__:
        check_interfaces(*(getattr(twin.module, name) for twin in twins))


@pytest.mark.parametrize(
    ("absent", "pure", "chosen"),
    [
        (None, "0", "cython pyclient.producer._speedups"),
        (None, "1", "pure pyclient.producer._pure"),
        ("producer", "0", "cython pyclient.producer._pure"),
        ("records", "0", "pure pyclient.producer._pure"),
    ],
)
def test_compiled_module_is_chosen_if_the_codec_is_compiled(
    twins: tuple[Any, Any], absent: str | None, pure: str, chosen: str
) -> None:
    hidden = f"import sys; sys.modules['pyclient.{absent}._speedups'] = None\n" if absent else ""
    code = "from pyclient.producer import implementation as i; print(i.IMPLEMENTATION, i.OpenBatches.__module__)"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", hidden + code],
        check=True, capture_output=True, text=True, env={**os.environ, "PYCLIENT_PURE": pure}, cwd=ROOT, timeout=60,
    )  # fmt: skip
    assert done.stdout.strip() == chosen


def is_atomic(twin: Any) -> bool:
    return bool(getattr(twin.module, "ATOMIC", False))


def builder(twin: Any, partition: int, room: int = 200) -> Any:
    return twin.BatchBuilder(bytearray(room), f"batch of {partition}")


def open_batches_of(twin: Any, *open_partitions: int, sticky: int = 0) -> Any:
    open_batches = twin.module.OpenBatches()
    open_batches.resize(PARTITIONS)
    open_batches.stick_to(sticky)
    for partition in open_partitions:
        open_batches.open(partition, builder(twin, partition))
    return open_batches


def replay(twin: Any, changes: list[Any]) -> list[Any]:
    """Return the position of each record of a run as (batch, index), or None."""
    open_batches = open_batches_of(twin)
    seen = []
    for change, *arguments in changes:
        if change == "append":
            partition, key = arguments
            handle = open_batches.append(5, key, b"value", None, partition)
            seen.append(None if handle is None else (handle.batch, handle.index))
        elif change == "open":
            open_batches.open(arguments[0], builder(twin, arguments[0]))
        else:
            getattr(open_batches, change)(arguments[0])
    return seen


@given(changes=st.lists(CHANGES, max_size=40))
def test_both_twins_append_record_to_same_batch(twins: tuple[Any, Any], changes: list[Any]) -> None:
    compiled, pure = (replay(twin, changes) for twin in twins)
    assert compiled == pure


def test_record_is_appended_by_partition_key_or_sticky_partition(twin: Any) -> None:
    open_batches = open_batches_of(twin, 0, 1, 2, sticky=2)
    assert open_batches.append(1, None, b"v", None, 1).batch == "batch of 1"
    assert open_batches.append(1, None, b"v", None, None).batch == "batch of 2"
    expected = partition_for_key(b"a key", PARTITIONS)
    assert open_batches.append(1, b"a key", b"v", None, None).batch == f"batch of {expected}"


def test_append_returns_none_without_open_batch_or_partition(twin: Any) -> None:
    open_batches = open_batches_of(twin, 1)
    for partition in (0, 2, PARTITIONS, -1, True, "1"):
        assert open_batches.append(1, None, b"v", None, partition) is None
    assert open_batches.append(1, None, b"v", None, None) is None
    open_batches.close(1)
    assert open_batches.append(1, None, b"v", None, 1) is None
    assert twin.module.OpenBatches().append(1, b"key", b"v", None, None) is None


def sender(twin: Any, clock: Any = SYSTEM_CLOCK, *, direct: bool = True) -> Any:
    class Sender(twin.module.RecordSender):  # type: ignore[misc]
        def __init__(self) -> None:
            self.others: list[tuple[Any, ...]] = []
            self._direct = direct
            self._stamp_with(clock.time_ms, system=clock is SYSTEM_CLOCK)

        def _send(self, *record: Any) -> Any:
            self.others.append(record)
            return self

        def add_done_callback(self, callback: Any) -> None:
            callback("called")

    return Sender()


def test_send_appends_to_open_batch_and_delegates_the_rest(twin: Any) -> None:
    one = sender(twin, ManualClock(epoch_ms=1234))
    one._open_batches["orders"] = open_batches_of(twin, 0)
    handle = one.send("orders", b"value")
    assert (handle.batch, handle.index, handle.timestamp_ms) == ("batch of 0", 0, 1234)
    others: list[Any] = [
        (("orders", b"v"), {"partition": 1}, (None, None, 1, None)),
        (("orders", b"v"), {"headers": MappingProxyType({"a": b""})}, (None, {"a": b""}, None, None)),
        (("orders", b"v"), {"headers": [("a", 5)]}, (None, [("a", 5)], None, None)),
        (("orders", b"v"), {"timestamp_ms": -7}, (None, None, None, -7)),
        (("orders", b"v"), {"timestamp_ms": True}, (None, None, None, True)),
        (("unknown", b"v"), {"key": b"k"}, (b"k", None, None, None)),
        (("orders", "text"), {}, (None, None, None, None)),
        (("orders", b"v" * 500), {}, (None, None, None, None)),
        (([], b"v"), {}, (None, None, None, None)),
    ]
    for arguments, options, rest in others:
        assert one.send(*arguments, **options) is one
        assert one.others.pop() == (*arguments, *rest)
    assert one.send("orders", b"value").index == 1  # none of the delegated ones was written


@pytest.mark.parametrize("headers", [{"a": b"1", "b": None}, [("a", b"1"), ("b", None)], (("a", b"1"), ("b", None))])
def test_headers_and_timestamp_are_written_as_given(twin: Any, headers: Any) -> None:
    one = sender(twin)
    open_batches = one._open_batches["orders"] = twin.module.OpenBatches()
    open_batches.resize(1)
    batch = builder(twin, 0)
    open_batches.open(0, batch)
    assert one.send("orders", b"value", partition=0, headers=headers, timestamp_ms=77).timestamp_ms == 77
    assert twin.rows(batch.seal()) == [(77, None, b"value", (("a", b"1"), ("b", None)))]


def test_send_delegates_when_records_need_serializer_or_partitioner(twin: Any) -> None:
    one = sender(twin, direct=False)
    one._open_batches["orders"] = open_batches_of(twin, 0)
    called: list[object] = []
    assert one.send("orders", b"value", on_delivery=called.append) is one
    assert (len(one.others), called) == (1, ["called"])


def test_records_are_stamped_with_system_time(twin: Any) -> None:
    one = sender(twin)
    one._open_batches["orders"] = open_batches_of(twin, 0)
    before = SYSTEM_CLOCK.time_ms()
    stamp = one.send("orders", b"value").timestamp_ms
    assert before <= stamp <= SYSTEM_CLOCK.time_ms()


def test_concurrent_sends_get_distinct_positions(twin: Any) -> None:
    one = sender(twin)
    one._append_lock = None if is_atomic(twin) else threading.Lock()
    open_batches = open_batches_of(twin)
    open_batches.open(0, twin.BatchBuilder(bytearray(HEADER_SIZE + 8_000 * 20), "batch"))
    one._open_batches["orders"] = open_batches
    places: list[list[int]] = [[] for _ in range(8)]

    def work(mine: list[int]) -> None:
        mine.extend(one.send("orders", b"value").index for _ in range(1000))

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work, args=(mine,)) for mine in places]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert sorted(place for mine in places for place in mine) == list(range(8000))
    assert all(mine == sorted(mine) for mine in places)


class Asked(Exception):
    """Raised when a handle delegates to its subclass."""


def handle_of(twin: Any) -> tuple[Any, Any]:
    class Handle(twin.module.OutcomeHandle):  # type: ignore[misc]
        __slots__ = ()

        def _done(self) -> bool:
            return False

        def _exception(self, timeout: float | None) -> Any:
            raise Asked(timeout)

        _result = _add_done_callback = _exception

    outcome = twin.module.BatchOutcome()
    outcome.topic, outcome.partition, outcome.base_offset, outcome.log_append_time_ms = "orders", 3, 100, -1
    return outcome, Handle(outcome, 7, 50)


def test_handle_of_delivered_batch_returns_metadata(twin: Any) -> None:
    outcome, handle = handle_of(twin)
    outcome.delivered = True
    assert handle.done() is True
    assert handle.exception() is None
    metadata = handle.result()
    assert (type(metadata), metadata) == (RecordMetadata, RecordMetadata("orders", 3, 107, 50))
    outcome.base_offset, outcome.log_append_time_ms = -1, 99
    assert handle.result(0) == RecordMetadata("orders", 3, -1, 99)


def test_handle_of_undelivered_batch_delegates_to_its_subclass(twin: Any) -> None:
    _, handle = handle_of(twin)
    assert handle.done() is False
    for ask, argument in ((handle.exception, 3), (handle.result, 3), (handle.add_done_callback, print)):
        with pytest.raises(Asked) as asked:
            ask(argument)
        assert asked.value.args == (argument,)
    with pytest.raises(TypeError, match=r"callback=3 is not possible: it takes a function"):
        handle.add_done_callback(3)


def test_callback_is_appended_to_existing_callbacks_of_batch(twins: tuple[Any, Any]) -> None:
    outcome, handle = handle_of(twins[0])
    outcome.callbacks = [1, print, None]
    if is_atomic(twins[0]):
        handle.add_done_callback(repr)
        assert outcome.callbacks == [1, print, None, 7, repr, handle]
    else:  # the subclass appends under its lock
        with pytest.raises(Asked):
            handle.add_done_callback(repr)
