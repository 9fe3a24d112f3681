"""Groups in the consumer protocol (KIP-848), with both APIs, against the broker of this folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from pyclient import errors
from pyclient.broker_embedded import EmbeddedCluster
from tests.consumer.consumer_factory import ConsumerFactory, EventLog, poll_until, read, shares, values
from tests.consumer.consumer_protocol import ConsumerProtocol, group

__all__ = ["group"]


@pytest.fixture(params=["sync", "async"])
def consumers(request: pytest.FixtureRequest, cluster: EmbeddedCluster) -> Iterator[ConsumerFactory]:
    with ConsumerFactory(request.param, cluster.bootstrap_servers, "consumer") as factory:
        yield factory


class TestOnThisBroker(ConsumerProtocol):
    """The shared tests."""


@pytest.mark.parametrize("fault", ["disconnect", "drop"])
def test_static_member_whose_join_answer_is_lost_joins_again(
    fault: str,
    consumers: ConsumerFactory,
    new_topic: Callable[..., str],
    produce: Callable[..., None],
    group: str,
    cluster: EmbeddedCluster,
) -> None:
    """The broker refuses its next join, because it owns its instance id; it releases the id and joins again."""
    topic = new_topic()
    produce(topic, b"0", b"1", b"2")
    lost = getattr(cluster.faults, fault)("ConsumerGroupHeartbeat", group=group, when="after")
    with cluster.requests.start() as requests:  # before the consumer, which joins from its first moment
        static = consumers(topic, group_id=group, group_instance_id="one", client_id="static", request_timeout_ms=1000)
        assert values(read(static, 3)) == [b"0", b"1", b"2"]
        refusal = errors.UnreleasedInstanceId
        requests.wait_request("ConsumerGroupHeartbeat", client="static", error=refusal)
    assert lost.hits() == 1
    static.commit()
    assert static.committed()[topic, 0].offset == 3
    second = consumers(topic, group_id=group, group_instance_id="one")
    with pytest.raises(errors.UnreleasedInstanceId, match="another consumer with this group_instance_id"):
        poll_until([second], lambda: False)
    assert shares([static]) == [[0]]


def test_static_member_whose_epoch_is_fenced_returns_to_its_partitions(
    consumers: ConsumerFactory, new_topic: Callable[..., str], group: str, cluster: EmbeddedCluster
) -> None:
    """The broker refuses its next join, too: it still owns its instance id."""
    topic = new_topic(2)
    event_logs = EventLog(), EventLog()
    static, other = (consumers(group_id=group, group_instance_id=name, client_id=name) for name in ("one", "two"))
    for consumer, event_log in zip((static, other), event_logs, strict=True):
        consumer.subscribe(topic, listener=event_log)
    poll_until([static, other], lambda: sorted(map(len, shares([static, other]))) == [1, 1])
    [[held], _] = shares([static, other])
    lines, member_id = [len(event_log.lines) for event_log in event_logs], static.health()["member_id"]
    cluster.faults.fail("ConsumerGroupHeartbeat", errors.FencedMemberEpoch, group=group, client="one")
    poll_until([static, other], lambda: len(event_logs[0].lines) == lines[0] + 2)
    assert event_logs[0].lines[lines[0] :] == [f"!{held}", f"+{held}"]
    assert len(event_logs[1].lines) == lines[1]
    assert static.health()["member_id"] == member_id
    static.commit()
