import pytest

from pyclient.cluster.client import ClusterClient
from pyclient.errors import ConnectionFailed, GroupAuthorizationFailed, MalformedMessage
from pyclient.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from pyclient.protocol.messages.metadata import MetadataRequest
from tests.cluster.clients import cluster_of, has_nodes, started
from tests.cluster.scripts import broker, config, metadata, run
from tests.net.scripted import CLOSE, RANGES, SILENCE, ScriptedBroker
from tests.patience import retry_until_error_async


def found(key, node_id=1, host="127.0.0.1", port=1, error_code=0, message=None):
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(key=key, node_id=node_id, host=host, port=port, error_code=error_code, error_message=message)
        ]
    )


def asking(answers, scenario, **options):
    """Run the scenario with a client of a broker that gives these FindCoordinator responses, and repeats the last."""
    answers = list(answers)

    async def wrapped():
        only = ScriptedBroker(
            {FindCoordinatorRequest: lambda *_: answers.pop(0) if len(answers) > 1 else answers[0]}, **options
        )
        only.answers[MetadataRequest] = metadata([broker(1, only.port)])
        client = ClusterClient(config(only.address))
        await client.start()
        await scenario(client, only)
        await client.close()
        only.stop()

    run(wrapped())


def test_coordinator_is_cached_until_forgotten():
    async def scenario(client, only):
        for _ in range(3):
            assert await client.find_coordinator("g", timeout=30) == 4
        assert only.count(FindCoordinatorRequest) == 1
        [request] = [each for each in only.requests if isinstance(each, FindCoordinatorRequest)]
        assert (request.coordinator_keys, request.key_type) == (["g"], 0)
        client.forget_coordinator("g", kind=1)
        await client.find_coordinator("g", timeout=30)
        assert only.count(FindCoordinatorRequest) == 1
        client.forget_coordinator("g")
        await client.find_coordinator("g", timeout=30)
        assert only.count(FindCoordinatorRequest) == 2

    asking([found("g", node_id=4)], scenario)


def test_coordinator_missing_in_metadata_can_be_connected_to():
    async def scenario(client, only):
        only.answers[FindCoordinatorRequest] = found("g", node_id=9, port=only.port)
        node_id = await client.find_coordinator("g", timeout=30)
        connection = await client.connection(node_id, purpose="coordinator")
        assert (connection.node_id, connection.address) == (9, only.address)

    asking([CLOSE], scenario)


def test_find_coordinator_of_older_version_has_one_key():
    async def scenario(client, only):
        assert await client.find_coordinator("tx", kind=1, timeout=30) == 1
        [request] = [each for each in only.requests if isinstance(each, FindCoordinatorRequest)]
        assert (request.key, request.key_type) == ("tx", 1)

    old = FindCoordinatorResponse(node_id=1, host="h", port=1)
    asking([old], scenario, ranges={**RANGES, 10: (0, 3)})


@pytest.mark.parametrize(
    "unavailable",
    [
        found("g", error_code=15),
        found("g", error_code=14),
        found("g", node_id=-1),
        found("g", port=0),
        found("g", port=70_000),
        found("g", host=""),
        CLOSE,
    ],
)
def test_unavailable_coordinator_is_looked_up_again(unavailable):
    async def scenario(client, only):
        assert await client.find_coordinator("g", timeout=30) == 1
        assert only.count(FindCoordinatorRequest) == 3

    asking([unavailable, unavailable, found("g")], scenario)


def test_timeout_of_find_coordinator_reports_reason():
    async def scenario(client, only):
        text = await retry_until_error_async(
            lambda: client.find_coordinator("g", timeout=0.3), rf"{only.address} answered \w+ \(none yet\)"
        )
        assert text.startswith("finding the coordinator of group 'g': not done within 0.3 s: ")

    asking([found("g", error_code=15, message="none yet")], scenario)


def test_find_coordinator_raises_refusal_at_once():
    async def scenario(client, only):
        with pytest.raises(GroupAuthorizationFailed, match=r"group 'g'.*not you"):
            await client.find_coordinator("g", timeout=30)
        assert only.count(FindCoordinatorRequest) == 1

    asking([found("g", error_code=30, message="not you")], scenario)


def test_find_coordinator_rejects_response_about_other_key():
    async def scenario(client, only):
        with pytest.raises(MalformedMessage, match="has no entry for 'g'"):
            await client.find_coordinator("g", timeout=30)

    asking([found("another")], scenario)


def test_coordinators_on_lost_node_are_forgotten():
    async def scenario(client, only):
        await client.wait_metadata(has_nodes, 30)
        assert await client.find_coordinator("g", timeout=30) == 1
        await client.connection(1)
        before = only.count(MetadataRequest)
        only.drop()
        await only.until(lambda: only.count(MetadataRequest) > before)
        await client.find_coordinator("g", timeout=30)
        assert only.count(FindCoordinatorRequest) == 2

    asking([found("g")], scenario)


def test_unreachable_coordinator_is_looked_up_again():
    async def scenario(client, only):
        node_id = await client.find_coordinator("g", timeout=30)
        with pytest.raises(ConnectionFailed):
            await client.connection(node_id)
        only.answers[FindCoordinatorRequest] = found("g")
        assert await client.find_coordinator("g", timeout=30) == 1

    asking([found("g", node_id=9, port=1)], scenario)


# ---- which node is asked


@pytest.fixture(autouse=True)
def _next_node_waits(monkeypatch):
    """Let no machine be so busy that a second node is asked before the first one answers."""
    monkeypatch.setattr("pyclient.cluster.coordinators.NEXT_NODE_SECONDS", 60)


def naming(names, scenario):
    """Run the scenario with a client of nodes 1, 2, ..., of which each names one of these as the coordinator of g.

    It is connected to the first.
    """

    async def wrapped():
        nodes = [ScriptedBroker() for _ in names]
        cluster_of(*nodes)
        for node, name in zip(nodes, names, strict=True):
            node.answers[FindCoordinatorRequest] = found("g", node_id=name, port=nodes[name - 1].port)
        client = await started(nodes[0].address)
        await client.wait_metadata(has_nodes, 30)
        await scenario(client, *nodes)
        await client.close()
        for node in nodes:
            node.stop()

    run(wrapped())


async def lookups(client, times):
    """Find the coordinator of g `times` times, and forget it after each; return the coordinators."""
    named = []
    for _ in range(times):
        named.append(await client.find_coordinator("g", timeout=30))
        client.forget_coordinator("g")
    return named


def test_lookups_after_failures_take_turns():
    async def scenario(client, stale, right):
        await client.connection(2)
        assert await lookups(client, 4) in ([1, 2, 1, 2], [2, 1, 2, 1])
        assert (stale.count(FindCoordinatorRequest), right.count(FindCoordinatorRequest)) == (2, 2)

    naming([1, 2], scenario)


def test_lookup_after_a_failure_connects_to_another_node():
    async def scenario(client, stale, right):
        assert await lookups(client, 2) == [1, 2]

    naming([1, 2], scenario)


def test_lookup_falls_back_to_the_only_node_that_answers():
    async def scenario(client, stale, right):
        right.stop()
        assert await lookups(client, 3) == [1, 1, 1]
        right.restart()

    naming([1, 2], scenario)


def test_lookups_reach_a_node_that_no_request_needed_before():
    async def scenario(client, stale, also_stale, right):
        await client.connection(2)
        assert await lookups(client, 2) == [1, 1]
        await right.until(lambda: right.accepted)
        await client.connection(3)
        assert await lookups(client, 1) == [3]

    naming([1, 1, 3], scenario)


def test_lookup_that_names_no_coordinator_is_repeated_at_another_node():
    async def scenario(client, stale, right):
        stale.answers[FindCoordinatorRequest] = found("g", error_code=15)
        assert await lookups(client, 1) == [2]
        assert stale.count(FindCoordinatorRequest) == 1

    naming([1, 2], scenario)


def test_node_that_does_not_answer_does_not_hold_up_a_lookup(monkeypatch):
    monkeypatch.setattr("pyclient.cluster.coordinators.NEXT_NODE_SECONDS", 0.01)

    async def scenario(client, silent, right):
        silent.answers[FindCoordinatorRequest] = SILENCE
        assert await lookups(client, 1) == [2]
        assert silent.count(FindCoordinatorRequest) == 1

    naming([1, 2], scenario)
