import uuid

from hypothesis import given
from hypothesis import strategies as st

from pyclient.cluster.metadata import EMPTY, NO_LEADER, snapshot
from pyclient.errors import LeaderNotAvailable, TopicAuthorizationFailed
from tests.cluster.scripts import TOPIC_ID, broker, metadata, partition, topic

NODES = [broker(1, 9092), broker(2, 9093, rack="r")]


def test_snapshot_has_nodes_leaders_and_partition_counts():
    taken = snapshot(EMPTY, metadata(NODES, [topic("a", [partition(1, 2), partition(0, 1)])], controller=2), 5.0)
    assert taken.leader("a", 0) == 1
    assert taken.leader("a", 1) == 2
    assert taken.partition_count("a") == 2
    assert [info.partition for info in taken.topics["a"].partitions] == [0, 1]
    assert (taken.controller_id, taken.cluster_id, taken.fetched_at) == (2, "the-cluster", 5.0)
    assert taken.nodes[2].address == "127.0.0.1:9093"
    assert taken.nodes[2].rack == "r"


def test_unknown_topics_and_partitions_have_no_leader():
    taken = snapshot(EMPTY, metadata(NODES, [topic("a", [partition(0, 1)])]), 0.0)
    assert taken.leader("b", 0) == NO_LEADER
    assert taken.leader("a", 1) == NO_LEADER
    assert taken.leader("a", -1) == NO_LEADER
    assert taken.partition_count("b") is None
    assert EMPTY.partition_count("a") is None


def test_impossible_nodes_are_dropped():
    hostile = [
        broker(-1, 9092),
        broker(3, 0),
        broker(4, 70_000),
        broker(5, -1),
        broker(6, 9092, host=""),
        broker(7, 9092, host=" "),
        broker(1, 1, host="a-second-node-1"),
    ]
    taken = snapshot(EMPTY, metadata(NODES + hostile), 0.0)
    assert set(taken.nodes) == {1, 2}
    assert taken.nodes[1].port == 9092


def test_leader_that_is_no_node_is_ignored():
    for leader in (-1, 99, -2):
        taken = snapshot(EMPTY, metadata(NODES, [topic("a", [partition(0, leader)])], controller=leader), 0.0)
        assert taken.leader("a", 0) == NO_LEADER
        assert taken.controller_id == -1
        assert taken.partition_count("a") == 1


def test_partition_numbers_with_gaps_are_unknown_partitions():
    for numbers in ([1], [0, 2], [0, 2**31 - 1], [-1, 0], [-1]):
        taken = snapshot(EMPTY, metadata(NODES, [topic("a", [partition(n, 1) for n in numbers])]), 0.0)
        assert taken.partition_count("a") is None
        assert taken.topics["a"].error_code == LeaderNotAvailable.code


def test_duplicate_partition_counts_once():
    taken = snapshot(EMPTY, metadata(NODES, [topic("a", [partition(0, 1), partition(0, 2)])]), 0.0)
    assert taken.partition_count("a") == 1
    assert taken.leader("a", 0) == 1


def test_topics_without_name_are_dropped_and_errors_are_kept():
    taken = snapshot(EMPTY, metadata(NODES, [topic(None), topic(""), topic("secret", error_code=29)]), 0.0)
    assert set(taken.topics) == {"secret"}
    assert taken.topics["secret"].error_code == TopicAuthorizationFailed.code


def after(first, second, topic_id=TOPIC_ID):
    known = snapshot(EMPTY, metadata(NODES, [topic("a", [first])]), 0.0)
    return snapshot(known, metadata(NODES, [topic("a", [second], topic_id=topic_id)]), 1.0).topics["a"].partitions[0]


def test_older_leader_epoch_does_not_replace_newer_one():
    assert after(partition(0, 1, epoch=5), partition(0, 2, epoch=4)).leader == 1
    assert after(partition(0, 1, epoch=5), partition(0, 2, epoch=5)).leader == 2
    assert after(partition(0, 1, epoch=5), partition(0, 2, epoch=6)).leader == 2


def test_recreated_topic_starts_with_new_leader_epochs():
    assert after(partition(0, 1, epoch=5), partition(0, 2, epoch=0), uuid.UUID(int=8)).leader == 2


def test_newest_response_wins_without_epochs_or_ids():
    assert after(partition(0, 1, epoch=5), partition(0, 2, epoch=-1)).leader == 2
    zero = uuid.UUID(int=0)
    known = snapshot(EMPTY, metadata(NODES, [topic("a", [partition(0, 1, epoch=5)], topic_id=zero)]), 0.0)
    taken = snapshot(known, metadata(NODES, [topic("a", [partition(0, 2, epoch=1)], topic_id=zero)]), 0.0)
    assert taken.leader("a", 0) == 2


def test_known_leader_that_left_the_cluster_is_dropped():
    known = snapshot(EMPTY, metadata(NODES, [topic("a", [partition(0, 2, epoch=5)])]), 0.0)
    taken = snapshot(known, metadata(NODES[:1], [topic("a", [partition(0, 1, epoch=4)])]), 1.0)
    assert taken.leader("a", 0) == NO_LEADER


small = st.integers(-2, 4)
any_partition = st.builds(partition, small, small, st.integers(-2, 3), st.sampled_from([0, 5, 9999]))
any_topic = st.builds(
    topic, st.sampled_from([None, "", "a", "b"]), st.lists(any_partition, max_size=5), st.sampled_from([0, 3, 17])
)
any_broker = st.builds(broker, small, st.sampled_from([-1, 0, 1, 9092, 65535, 65536]), st.sampled_from(["", "h"]))
any_metadata = st.builds(metadata, st.lists(any_broker, max_size=5), st.lists(any_topic, max_size=4), small)


@given(st.lists(any_metadata, max_size=4))
def test_snapshot_of_random_responses_is_consistent(responses):
    taken = EMPTY
    for response in responses:
        taken = snapshot(taken, response, 0.0)
        for node_id, node in taken.nodes.items():
            assert node_id == node.node_id >= 0
            assert 0 < node.port < 65536
            assert node.host
        for name, info in taken.topics.items():
            assert name == info.name
            assert [each.partition for each in info.partitions] == list(range(len(info.partitions)))
            for each in info.partitions:
                assert each.leader == NO_LEADER or each.leader in taken.nodes
        assert taken.controller_id == -1 or taken.controller_id in taken.nodes
