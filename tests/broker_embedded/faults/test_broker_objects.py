"""Brokers as objects: killed, stopped, frozen, started again; faults and time stay with the cluster."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pyclient import errors
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.errors import ClientError, ClosedError, ConfigError
from pyclient.protocol.messages.init_producer_id import InitProducerIdRequest
from pyclient.protocol.messages.metadata import MetadataRequest
from tests.broker_embedded.topics import create

ASK = MetadataRequest(topics=[])
WRITERS = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
MODES = pytest.mark.parametrize("processes", [False, True], ids=["thread", "process"])


@MODES
def test_killed_or_stopped_broker_comes_back_with_its_port_and_data(
    connect: Any, produce: Any, batch: Any, processes: bool
) -> None:
    with EmbeddedCluster(processes=processes) as cluster:
        [broker] = cluster.brokers
        address, seen = broker.address, [broker.state]
        create(connect(cluster), "orders")
        for end in (broker.kill, broker.stop):
            client = connect(cluster)
            assert produce(client, "orders", batch(b"a")).error_code == 0
            end()
            seen.append(broker.state)
            assert client.is_closed()
            assert not cluster.alive
            clean = Path(broker.data_dir, ".kafka_cleanshutdown").exists()
            assert clean == (end == broker.stop)
            with pytest.raises(ClientError, match="has to run"):
                cluster.advance_time(1)
            broker.start()
            seen.append(broker.state)
        assert (broker.address, broker.id, cluster.bootstrap_servers) == (address, 1, address)
        assert seen == ["running", "down", "running", "down", "running"]
        assert produce(connect(cluster), "orders", batch(b"a")).base_offset == 2


@MODES
def test_a_paused_broker_takes_connections_and_answers_when_it_goes_on(connect: Any, processes: bool) -> None:
    with EmbeddedCluster(processes=processes) as cluster:
        [broker] = cluster.brokers
        client = connect(cluster)
        assert client.call(ASK, 1).controller_id == 1
        broker.pause()
        broker.pause()
        assert (broker.state, broker.alive, cluster.alive) == ("paused", True, True)
        late = connect(cluster)
        sent = [each.send(ASK, 1) for each in (client, late)]
        client.socket.settimeout(0.1)
        with pytest.raises(TimeoutError):
            client.socket.recv(1)
        with pytest.raises(ClientError, match=r"paused>: it has to run to be asked"):
            cluster.faults.drop("Metadata")
        broker.resume()
        broker.resume()
        client.socket.settimeout(30)
        assert [each.receive(MetadataRequest, 1)[1] for each in (client, late)] == sent
        assert broker.state == "running"


@MODES
@pytest.mark.parametrize("end", ["kill", "stop", "restart", "close"])
def test_a_paused_broker_can_be_ended(connect: Any, processes: bool, end: str) -> None:
    with EmbeddedCluster(processes=processes) as cluster:
        client = connect(cluster)
        cluster.brokers[0].pause()
        getattr(cluster if end == "close" else cluster.brokers[0], end)()
        assert client.is_closed()
        if end == "restart":
            assert connect(cluster).call(ASK, 1).controller_id == 1


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as running:
        yield running


def test_broker_that_does_not_run_refuses_pause_and_calls() -> None:
    cluster = EmbeddedCluster()
    with pytest.raises(ClientError, match="nothing to pause"):
        cluster.brokers[0].pause()
    with pytest.raises(ClientError, match="new>: it has to run"):
        cluster.faults.drop("Metadata")
    with pytest.raises(ClosedError, match="not started"):
        cluster.brokers[0].stop()
    cluster.start().close()
    with pytest.raises(ClosedError, match="closed"):
        cluster.brokers[0].kill()
    with pytest.raises(ClosedError, match="closed"):
        cluster.wait_topic("t")


@MODES
def test_fault_that_was_removed_by_http_does_not_return(connect: Any, processes: bool) -> None:
    with EmbeddedCluster(processes=processes) as cluster:
        [broker] = cluster.brokers
        removed = cluster.faults.fail("Metadata", errors.UnknownServerError, times=None)
        [known] = broker.call("GET", "/faults")["faults"]
        broker.call("DELETE", f"/faults/{known['id']}")
        broker.kill()
        broker.start()
        connect(cluster).call(MetadataRequest(topics=None), 13)
        assert (removed.hits(), removed.over) == (0, True)


@MODES
@pytest.mark.parametrize("end", ["kill", "stop"])
def test_faults_stay_when_their_broker_is_started_again(connect: Any, processes: bool, end: str) -> None:
    code = errors.CoordinatorLoadInProgress.code
    with EmbeddedCluster(processes=processes) as cluster:
        [broker] = cluster.brokers
        over = cluster.faults.fail("Metadata", errors.UnknownServerError)
        three = cluster.faults.fail("InitProducerId", code, times=3, skip=1)
        endless = cluster.faults.delay("InitProducerId", 0.0, times=None)
        client = connect(cluster)
        client.call(MetadataRequest(topics=None), 13)
        assert [client.call(WRITERS, 4).error_code for _ in range(2)] == [0, code]
        getattr(broker, end)()
        assert (over.hits(), three.hits(), endless.hits()) == (1, 1, 2)
        broker.start()
        client = connect(cluster)
        assert [client.call(WRITERS, 4).error_code for _ in range(3)] == [code, code, 0]
        assert (over.hits(), three.hits(), endless.hits()) == (1, 3, 5)
        assert (over.over, three.over, endless.over) == (True, True, False)
        assert three.wait(3) == 3
        over.cancel()
        cluster.faults.clear()
        assert not len(cluster.faults)
        assert endless.hits() == 5
        assert client.call(WRITERS, 4).error_code == 0
        assert endless.hits() == 5


def test_a_fault_may_be_cancelled_while_its_broker_is_down(connect: Any) -> None:
    with EmbeddedCluster() as cluster:
        with cluster.faults.disconnect("Metadata", times=None) as fault:
            cluster.brokers[0].kill()
        assert fault.over
        cluster.brokers[0].start()
        assert connect(cluster).call(ASK, 1).controller_id == 1


@MODES
def test_a_fault_is_cancelled_or_released_while_its_broker_is_paused(connect: Any, processes: bool) -> None:
    with EmbeddedCluster(processes=processes) as cluster:
        [broker] = cluster.brokers
        client = connect(cluster)
        failing = cluster.faults.fail("InitProducerId", errors.UnknownServerError, times=None)
        held = cluster.faults.hold("Metadata")
        client.send(ASK, 1)
        held.wait()
        cluster.requests.start()
        broker.pause()
        failing.cancel()
        held.release()
        cluster.requests.stop()
        with pytest.raises(ClientError, match=r"resume\(\) it first"):
            cluster.faults.drop("Metadata")
        assert (held.hits(), held.held, held.over) == (1, 1, True)
        broker.resume()
        assert client.receive(MetadataRequest, 1)[0].controller_id == 1
        assert client.call(WRITERS, 4).error_code == 0
        assert (held.hits(), held.held, held.over) == (1, 0, True)
        with pytest.raises(ClientError, match="is off"):
            cluster.requests.query()


@MODES
def test_fault_released_in_a_pause_that_ends_in_a_crash_does_not_return(connect: Any, processes: bool) -> None:
    with EmbeddedCluster(processes=processes) as cluster:
        [broker] = cluster.brokers
        fault = cluster.faults.hold("Metadata", times=None)
        broker.pause()
        fault.release()
        broker.kill()
        broker.start()
        assert connect(cluster).call(ASK, 1).controller_id == 1
        assert fault.over


@MODES
def test_fault_added_while_its_broker_is_down_hits_the_first_requests(connect: Any, processes: bool) -> None:
    with EmbeddedCluster(processes=processes) as cluster:
        [broker] = cluster.brokers
        broker.kill()
        fault = cluster.faults.fail("InitProducerId", errors.UnknownServerError, times=1)
        never = cluster.faults.drop("InitProducerId")
        with pytest.raises(ConfigError, match="times is '3'"):
            cluster.faults.drop("Metadata", times="3")  # type: ignore[arg-type]
        assert (fault.hits(), fault.held, fault.over) == (0, 0, False)
        never.cancel()
        broker.start()
        client = connect(cluster)
        assert [client.call(WRITERS, 4).error_code for _ in range(2)] == [errors.UnknownServerError.code, 0]
        assert (fault.hits(), fault.over, len(cluster.faults)) == (1, True, 1)


def test_a_wait_for_the_last_hit_does_not_overlook_it(connect: Any) -> None:
    with EmbeddedCluster() as cluster:
        client = connect(cluster)
        for _ in range(50):
            fault = cluster.faults.delay("Metadata", 0.0)
            client.send(ASK, 1)
            assert fault.wait(timeout=20) == 1
            client.receive(MetadataRequest, 1)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda cluster: cluster.advance_time("5"), "seconds is '5'"),
        (lambda cluster: cluster.wait_group(5), "group is 5"),
        (lambda cluster: cluster.wait_group("g", 5), "state is 5"),
        (lambda cluster: cluster.wait_group("g", ["Empty", 5]), "state is"),
        (lambda cluster: cluster.wait_group("g", timeout="x"), "timeout is 'x'"),
        (lambda cluster: cluster.wait_topic(None), "topic is None"),
        (lambda cluster: cluster.wait_topic("t", records="many"), "records is 'many'"),
        (lambda cluster: cluster.compact_now(5), "topic is 5"),
        (lambda cluster: cluster.requests.query(client=5), "client is 5"),
        (lambda cluster: cluster.requests.query(partition="a"), "partition is 'a'"),
        (lambda cluster: cluster.requests.query(answered=3), "answered is 3"),
        (lambda cluster: cluster.requests.wait_request(count="x"), "count is 'x'"),
        (lambda cluster: cluster.requests.wait_request(timeout="x"), "timeout is 'x'"),
        (lambda cluster: cluster.faults.drop("Metadata").wait("x"), "n is 'x'"),
        (lambda cluster: cluster.faults.drop("Metadata").wait(timeout=-1), "timeout is -1"),
    ],
)
def test_invalid_argument_is_refused_by_its_name(cluster: Any, call: Any, expected: str) -> None:
    cluster.requests.start()
    with pytest.raises(ConfigError, match=expected):
        call(cluster)
    cluster.advance_time(0)


def test_time_stays_advanced_when_the_broker_is_started_again() -> None:
    with EmbeddedCluster(control_port=0) as cluster:
        cluster.advance_time(5_000)
        before = cluster.brokers[0].call("GET", "/broker")
        cluster.brokers[0].restart()
        after = cluster.brokers[0].call("GET", "/broker")
        assert before["advanced_seconds"] == after["advanced_seconds"] == 5_000
        assert after["time_ms"] >= before["time_ms"]
        assert after["control_url"] == before["control_url"]


def test_a_control_port_that_cannot_be_had_is_an_error_that_names_it() -> None:
    with pytest.raises(ConfigError, match="control_port is 70000"):
        EmbeddedCluster(control_port=70_000)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for processes in (False, True):
            with pytest.raises(ClientError, match=f"the controls cannot be served on 127.0.0.1:{port}"):
                EmbeddedCluster(control_port=port, processes=processes).start()
