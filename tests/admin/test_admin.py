import asyncio
import gc
import os
import threading
import typing
import uuid
import warnings

import pytest

from pyclient import Admin, AsyncAdmin, NewTopic, errors
from pyclient.admin import AdminConfig, AdminOptions
from pyclient.config import ClientConfig
from pyclient.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from pyclient.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from pyclient.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from pyclient.protocol.messages.metadata import MetadataRequest
from pyclient.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.cluster.scripts import TOPIC_ID, broker, metadata, partition, run, topic
from tests.forks import fork
from tests.garbage import Cycle, loop_threads_first
from tests.net.scripted import CLOSE, SILENCE, ScriptedBroker
from tests.patience import retry_until_error_async


def create_topics_response(*results):
    return CreateTopicsResponse(
        topics=[CreatableTopicResult(name=name, error_code=code, error_message=text) for name, code, text in results]
    )


def set_topics(only, *topics):
    """Make the broker's metadata contain these topics, and error 3 for others."""
    known = {each.name: each for each in topics}

    def answer(request, version, correlation_id):
        names = known if request.topics is None else [each.name for each in request.topics]
        found = [known.get(name) or topic(name, error_code=3) for name in names]
        return metadata([broker(1, only.port)], found)

    only.answers[MetadataRequest] = answer


def admin_of(only, **options):
    return AsyncAdmin(only.address, retry_backoff_ms=5, retry_backoff_max_ms=10, **options)


def with_broker(scenario, **options):
    """Run the scenario with a scripted broker and an admin client of it."""

    async def wrapped():
        only = ScriptedBroker()
        set_topics(only)
        async with admin_of(only, **options) as admin:
            await scenario(only, admin)
        only.stop()

    run(wrapped())


def requests_of(only, kind):
    return [each for each in only.requests if isinstance(each, kind)]


def test_create_topics_waits_until_topics_have_leaders():
    metadata_requests = []

    async def scenario(only, admin):
        def growing(request, version, correlation_id):
            if requests_of(only, CreateTopicsRequest):
                metadata_requests.append(len(metadata_requests))
            states = [[topic("t", error_code=3)], [topic("t", [partition(0, -1)])], [topic("t", [partition(0, 1)])]]
            return metadata([broker(1, only.port)], states[min(len(metadata_requests), 3) - 1])

        only.answers[MetadataRequest] = growing
        only.answers[CreateTopicsRequest] = create_topics_response(("t", 0, None))
        [description] = (await admin.create_topics([NewTopic("t", configs={"retention.ms": 5})])).values()
        assert (description.name, description.topic_id, description.internal) == ("t", TOPIC_ID, False)
        assert description.partitions[0].leader == 1
        assert len(metadata_requests) == 3
        [request] = requests_of(only, CreateTopicsRequest)
        assert request.timeout_ms == 60_000
        [asked] = request.topics
        assert (asked.num_partitions, asked.replication_factor) == (-1, -1)
        assert [(each.name, each.value) for each in asked.configs] == [("retention.ms", "5")]

    with_broker(scenario)


def test_created_topic_is_described_although_another_node_does_not_show_it():
    async def scenario():
        behind, ahead = ScriptedBroker(), ScriptedBroker()
        nodes = [broker(1, behind.port), broker(2, ahead.port)]
        for each, shown in ((behind, topic("t", error_code=3)), (ahead, topic("t", [partition(0, 2)]))):
            each.answers[MetadataRequest] = lambda *_, shown=shown: metadata(nodes, [shown], controller=2)
        ahead.answers[CreateTopicsRequest] = create_topics_response(("t", 0, None))
        async with admin_of(behind) as admin:
            await admin.create_topics([NewTopic("t")])
            for _ in range(20):
                assert (await admin.describe_topics(["t"]))["t"].partitions[0].leader == 2
            ahead.drop()  # the node that is left does not know the topic
            ahead.stop()
            with pytest.raises(errors.UnknownTopicOrPartition):
                await admin.describe_topics(["t"])
        behind.stop()

    run(scenario())


def test_create_topics_sends_assignments_and_validate_only():
    async def scenario(only, admin):
        only.answers[CreateTopicsRequest] = create_topics_response(("t", 0, None))
        topics = [NewTopic("t", assignments={0: [1, 2], 1: (2, 1)})]
        assert await admin.create_topics(topics, validate_only=True, timeout=30) == {}
        [request] = requests_of(only, CreateTopicsRequest)
        assert request.validate_only
        assert 15_000 < request.timeout_ms <= 30_000
        assignments = [(each.partition_index, each.broker_ids) for each in request.topics[0].assignments]
        assert assignments == [(0, [1, 2]), (1, [2, 1])]

    with_broker(scenario)


def test_first_error_is_raised_and_names_the_others():
    async def scenario(only, admin):
        only.answers[CreateTopicsRequest] = create_topics_response(
            ("fine", 0, None), ("there", 36, "it exists"), ("odd/name", 17, None), ("new", 9999, None)
        )
        with pytest.raises(errors.TopicAlreadyExists) as error:
            await admin.create_topics([NewTopic(name) for name in ("fine", "there", "odd/name", "new")])
        assert str(error.value) == (
            "creating topic 'there': TopicAlreadyExists: it exists; also creating topic 'odd/name': InvalidTopic;"
            " also creating topic 'new': UnknownErrorCode: unknown error code 9999; done for: fine"
        )
        results = error.value.results
        assert {name: None if each is None else each.code for name, each in results.items()} == {
            "fine": None,
            "there": 36,
            "odd/name": 17,
            "new": 9999,
        }
        assert str(results["odd/name"]) == "creating topic 'odd/name': InvalidTopic"

    with_broker(scenario)


def test_delete_topics_waits_until_topics_are_gone():
    async def scenario(only, admin):
        set_topics(only, topic("t", [partition(0, 1)]))

        def delete(message, version, correlation_id):
            asyncio.get_running_loop().call_later(0.03, set_topics, only)
            return DeleteTopicsResponse(responses=[DeletableTopicResult(name="t", topic_id=TOPIC_ID, error_code=0)])

        only.answers[DeleteTopicsRequest] = delete
        await admin.delete_topics(["t", "t"])
        [request] = requests_of(only, DeleteTopicsRequest)
        assert request.topic_names == ["t"]
        assert ("DeleteTopics", 5) in only.versions
        only.answers[DeleteTopicsRequest] = DeleteTopicsResponse(
            responses=[DeletableTopicResult(name="t", topic_id=TOPIC_ID, error_code=3, error_message="none such")]
        )
        with pytest.raises(errors.UnknownTopicOrPartition, match=r"deleting topic 't'.*none such"):
            await admin.delete_topics(["t"])

    with_broker(scenario)


def test_delete_topics_accepts_topic_recreated_at_once():
    async def scenario(only, admin):
        set_topics(only, topic("t", [partition(0, 1)]))

        def delete(message, version, correlation_id):
            set_topics(only, topic("t", [partition(0, 1)], topic_id=uuid.UUID(int=TOPIC_ID.int + 1)))
            return DeleteTopicsResponse(responses=[DeletableTopicResult(name="t", topic_id=TOPIC_ID, error_code=0)])

        only.answers[DeleteTopicsRequest] = delete
        await admin.delete_topics(["t"])
        only.answers[DeleteTopicsRequest] = DeleteTopicsResponse(
            responses=[DeletableTopicResult(name="t", topic_id=TOPIC_ID, error_code=0)]
        )
        await retry_until_error_async(
            lambda: admin.delete_topics(["t"], timeout=0.3), "was deleted, but not all nodes show it yet"
        )

    with_broker(scenario)


def test_create_partitions_grows_topics_to_total():
    async def scenario(only, admin):
        set_topics(only, topic("t", [partition(0, 1)]))

        def grow(message, version, correlation_id):
            asyncio.get_running_loop().call_later(
                0.03, set_topics, only, topic("t", [partition(0, 1), partition(1, 1)])
            )
            return CreatePartitionsResponse(
                throttle_time_ms=0, results=[CreatePartitionsTopicResult(name="t", error_code=0)]
            )

        only.answers[CreatePartitionsRequest] = grow
        grown = await admin.create_partitions({"t": 2}, assignments={"t": [[1]]})
        assert len(grown["t"].partitions) == 2
        [request] = requests_of(only, CreatePartitionsRequest)
        assert (request.topics[0].count, request.topics[0].assignments[0].broker_ids) == (2, [1])
        only.answers[CreatePartitionsRequest] = CreatePartitionsResponse(
            throttle_time_ms=0, results=[CreatePartitionsTopicResult(name="t", error_code=37, error_message="fewer")]
        )
        with pytest.raises(errors.InvalidPartitions, match="growing topic 't': InvalidPartitions: fewer"):
            await admin.create_partitions({"t": 1})

    with_broker(scenario)


def test_topics_are_listed_and_described():
    async def scenario(only, admin):
        set_topics(only, topic("b", [partition(0, 1)]), topic("a", [partition(0, 1)]), topic("__own", internal=True))
        assert await admin.list_topics() == ["a", "b"]
        assert await admin.list_topics(include_internal=True) == ["__own", "a", "b"]
        assert list(await admin.describe_topics(["b", "a"])) == ["b", "a"]
        with pytest.raises(errors.UnknownTopicOrPartition, match=r"describing topic 'c'.*done for: a") as error:
            await admin.describe_topics(["a", "c"])
        assert error.value.results["a"] is None
        assert all(not request.allow_auto_topic_creation for request in requests_of(only, MetadataRequest))

    with_broker(scenario)


def test_describe_topics_waits_until_leaders_are_elected():
    async def scenario(only, admin):
        set_topics(only, topic("t", error_code=5))
        describing = asyncio.ensure_future(admin.describe_topics(["t"]))
        await only.until(lambda: len(requests_of(only, MetadataRequest)) > 3)
        set_topics(only, topic("t", [partition(0, 1)]))
        assert (await describing)["t"].partitions[0].leader == 1

    with_broker(scenario)


@pytest.mark.parametrize("answer", [CLOSE, SILENCE])
def test_timeout_reports_why_cluster_does_not_answer(answer):
    async def scenario(only, admin):
        only.answers[MetadataRequest] = answer
        calls = (
            lambda: admin.list_topics(timeout=1),
            lambda: admin.describe_topics(["a"], timeout=1),
            lambda: admin.create_topics([NewTopic("a")], timeout=1),
            lambda: admin.delete_topics(["a"], timeout=1),
            lambda: admin.create_partitions({"a": 2}, timeout=1),
        )
        says = rf"not done within 1 s: .*{only.address}.*Metadata"
        await asyncio.gather(*(retry_until_error_async(call, says) for call in calls))

    with_broker(scenario, request_timeout_ms=250)


def test_timeout_reports_a_refusal_before_its_cause_is_known():
    async def scenario(only, admin):
        refused = len(only.requests)
        only.answers[MetadataRequest] = CLOSE
        only.answers[SaslHandshakeRequest] = SILENCE
        creating = asyncio.ensure_future(admin.create_topics([NewTopic("a")], timeout=3))
        await only.until(lambda: any(isinstance(each, SaslHandshakeRequest) for each in only.requests[refused:]))
        with pytest.raises(errors.KafkaTimeout, match=r"CreateTopics on the controller.*no answer to Metadata"):
            await creating

    with_broker(scenario)


def test_invalid_arguments_are_refused_before_any_request():
    with pytest.raises(TypeError, match="a topic's name is a string, not 5"):
        NewTopic(5)
    with pytest.raises(ValueError, match="either assignments, or partitions"):
        NewTopic("t", 3, assignments={0: [1]})

    async def scenario(only, admin):
        with pytest.raises(TypeError, match=r"give \['orders'\]"):
            await admin.delete_topics("orders")
        with pytest.raises(TypeError, match=r"give \['orders'\]"):
            await admin.describe_topics("orders")

    with_broker(scenario)


def test_closed_admin_raises_closed_error():
    async def scenario():
        admin = AsyncAdmin("127.0.0.1:1")
        assert repr(admin) == "<AsyncAdmin 127.0.0.1:1 open>"
        await admin.close()
        await admin.close()
        assert repr(admin) == "<AsyncAdmin 127.0.0.1:1 closed>"
        with pytest.raises(errors.ClosedError, match="the admin client is closed"):
            await admin.list_topics()

    run(scenario())
    admin = Admin("127.0.0.1:1")
    admin.close()
    admin.close()
    assert repr(admin) == "<Admin 127.0.0.1:1 closed>"
    with pytest.raises(errors.ClosedError, match="the admin client is closed"):
        admin.list_topics()


def test_constructor_checks_options():
    for make in (Admin, AsyncAdmin):
        with pytest.raises(errors.ConfigError, match="did you mean default_api_timeout_ms"):
            make("127.0.0.1:1", default_api_timeout=5)
        with pytest.raises(errors.ConfigError, match="bootstrap_servers is missing"):
            make()
        with pytest.raises(errors.ConfigError, match="given twice"):
            make("127.0.0.1:1", config={"bootstrap.servers": "127.0.0.1:2"})
    assert "127.0.0.1:2" in repr(Admin(config={"bootstrap.servers": "127.0.0.1:2"}))


def test_typed_keywords_are_options_of_dataclass():
    names = set(typing.get_type_hints(AdminConfig)) - {"bootstrap_servers"}
    assert set(typing.get_type_hints(AdminOptions)) == names
    assert names > set(typing.get_type_hints(ClientConfig)) - {"bootstrap_servers"}


@pytest.fixture
def broker_address():
    """Yield the address of a scripted broker in a thread of its own."""
    ready, address = threading.Event(), []

    async def serve():
        only = ScriptedBroker()
        set_topics(only, topic("t", [partition(0, 1)]))
        address.append(only.address)
        stopping = asyncio.Event()
        address.append((asyncio.get_running_loop(), stopping))
        ready.set()
        await stopping.wait()
        only.stop()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    assert ready.wait(30)
    yield address[0]
    loop, stopping = address[1]
    loop.call_soon_threadsafe(stopping.set)
    thread.join()


def test_sync_admin_calls_shared_implementation(broker_address):
    with Admin(broker_address) as admin:
        assert admin.list_topics() == ["t"]
        assert admin.describe_topics(["t"])["t"].partitions[0].leader == 1
        with pytest.raises(errors.UnknownTopicOrPartition):
            admin.describe_topics(["u"])
        health = admin.health()
        assert health.connected == health.nodes == (broker_address,)
        assert repr(admin) == f"<Admin {broker_address} open>"
    assert admin.health().connected == ()
    with pytest.raises(errors.ClosedError):
        admin.list_topics()


def test_sync_admin_is_thread_safe(broker_address):
    with Admin(broker_address) as admin:
        results = []
        threads = [threading.Thread(target=lambda: results.append(admin.list_topics())) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert results == [["t"]] * 8


def test_unclosed_admin_warns_and_its_thread_ends(broker_address):
    before = set(threading.enumerate())
    admin = Admin(broker_address)
    admin.list_topics()
    [thread] = [thread for thread in set(threading.enumerate()) - before if thread.name == "pyclient-admin"]
    with pytest.warns(ResourceWarning, match=r"<Admin .* open> was not closed"):
        del admin
        gc.collect()
    thread.join(30)
    assert not thread.is_alive()
    gc.collect()  # an unclosed socket would cause a warning now


def test_admin_in_a_cycle_is_closed_whatever_is_collected_first(broker_address):
    with loop_threads_first("pyclient.admin.runners"):
        before = set(threading.enumerate())
        cycle = Cycle(Admin(broker_address))
        cycle.held.list_topics()
        [thread] = [thread for thread in set(threading.enumerate()) - before if thread.name == "pyclient-admin"]
        with pytest.warns(ResourceWarning, match=r"<Admin .* open> was not closed"):
            del cycle
            gc.collect()
        thread.join(30)
        assert not thread.is_alive()
        gc.collect()  # an unclosed socket would cause a warning now


def test_unclosed_async_admin_warns():
    async def scenario():
        only = ScriptedBroker()
        set_topics(only)
        admin = admin_of(only)
        await admin.list_topics()
        with pytest.warns(ResourceWarning, match=r"<AsyncAdmin .* open> was not closed"):
            del admin
            gc.collect()
        await only.until(lambda: only.ended == only.accepted)
        only.stop()

    run(scenario())


def test_unused_admin_does_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Admin("127.0.0.1:1")
        gc.collect()


def test_admin_in_forked_child_raises_and_parent_still_works(broker_address):
    with Admin(broker_address) as admin:
        assert admin.list_topics() == ["t"]
        reading, writing = os.pipe()
        child = fork()
        if child == 0:
            text = "no error"
            try:
                admin.list_topics()
            except errors.ForkError as error:
                text = f"{error}; {admin!r}"
            admin.close()
            os.write(writing, text.encode())
            os._exit(0)
        os.waitpid(child, 0)
        os.close(writing)
        with open(reading) as result:
            output = result.read()
        assert "after fork() create a new client" in output
        assert output.endswith("of another process>")
        assert repr(admin).endswith("open>")
        assert admin.list_topics() == ["t"]


@pytest.mark.parametrize(("timeout", "kind"), [("5", TypeError), (True, TypeError), (-1, ValueError)])
def test_invalid_timeout_is_refused_by_name(broker_address, timeout, kind):
    with Admin(broker_address) as admin, pytest.raises(kind, match=r"timeout=.* is not possible"):
        admin.list_topics(timeout=timeout)
