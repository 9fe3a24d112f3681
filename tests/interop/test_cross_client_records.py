"""Each client reads the other clients' records byte for byte from our broker; groups and commits carry over too."""

from __future__ import annotations

import pytest

from pyclient.broker_embedded import EmbeddedCluster
from tests.interop.peers import CODECS, PEERS, Message, Peer

# deprecation warnings of the other clients
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning:kafka"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:aiokafka"),
]

NOW = 1_790_000_000_000

MESSAGES = (
    Message(b"key", b"value", (), NOW),
    Message(None, b"no key", (), NOW + 1),
    Message(b"no value", None, (), NOW + 2),
    Message(b"", b"", (), NOW + 3),
    Message(
        "schl\u00fcssel".encode(),
        "\u4f60\u597d".encode(),
        (("trace", b"1"), ("trace", b"2"), ("h\u00e9", b"")),
        NOW + 4,
    ),
    Message(b"bytes", bytes(range(256)), (("raw", bytes(range(255, -1, -1))),), NOW + 5),
    Message(b"long", b"0123456789abcdef" * 8192, (), NOW + 6),
    *(Message(b"k%d" % n, b"value number %d" % n, (("n", b"%d" % n),), NOW + n) for n in range(7, 300)),
)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("writer", PEERS, ids=lambda peer: peer.name)
def test_every_client_reads_records_written_by_this_one(
    writer: Peer, codec: str, kafka_cluster: EmbeddedCluster, kafka_topic: str
) -> None:
    servers = kafka_cluster.bootstrap_servers
    writer.produce(servers, kafka_topic, codec, MESSAGES)
    for reader in PEERS:
        assert reader.consume(servers, kafka_topic, len(MESSAGES)) == list(MESSAGES), reader.name


@pytest.mark.parametrize("member", PEERS, ids=lambda peer: peer.name)
def test_group_continues_from_offsets_committed_by_this_client(
    member: Peer, kafka_cluster: EmbeddedCluster, kafka_topic: str
) -> None:
    servers, group = kafka_cluster.bootstrap_servers, f"group-of-{kafka_topic}"
    member.produce(servers, kafka_topic, "none", MESSAGES)
    read = member.read_in_group(servers, kafka_topic, group, 100)
    assert read == list(MESSAGES[:100])
    for peer in PEERS:
        assert peer.committed(servers, kafka_topic, group) == 100, peer.name
    done = 100
    for successor in PEERS:
        assert successor.read_in_group(servers, kafka_topic, group, 40) == list(MESSAGES[done : done + 40])
        done += 40
        assert member.committed(servers, kafka_topic, group) == done, successor.name
