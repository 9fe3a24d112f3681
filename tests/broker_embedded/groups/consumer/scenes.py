"""What members of consumer groups (KIP-848) say, scene by scene: a real Kafka and ours must answer alike.

`consumer_answers.json` has what an Apache Kafka 4.3.1 answered; `make test-kafka` checks that it still does, and with
PYCLIENT_RECORD=1 writes the file anew.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from uuid import UUID

from pyclient import errors
from tests.broker_embedded.groups.consumer.mixed_scenes import MIXED
from tests.broker_embedded.groups.consumer.mixed_talk import MixedTalk
from tests.broker_embedded.groups.consumer.talk import ConsumerTalk
from tests.broker_embedded.groups.group_talk import Record, told

ANSWERS = Path(__file__).with_name("consumer_answers.json")
SETTINGS = {"group.consumer.assignment.interval.ms": "0"}
"""The scenes do not wait between two target assignments."""

FORWARD = UUID(int=77)


def requests_that_make_no_sense(talk: ConsumerTalk) -> None:
    for version in (0, 1):
        talk.beat("a", 0, version=version)
        talk.beat("a", 0, version=version, rebalance_timeout_ms=1000, owns={})
        talk.beat("a", 0, version=version, rebalance_timeout_ms=1000, subscribed_topic_names=[talk.topic])
        talk.enter("a", version=version, owns={talk.topic: [0]})
        talk.enter("a", version=version, group_id="")
        talk.enter("a", version=version, instance_id="")
        talk.enter("a", version=version, rack_id="")
        talk.enter("a", version=version, server_assignor="")
        talk.enter("a", version=version, server_assignor="sticky")
        talk.beat("a", 1, version=version, member_id="")
        talk.beat("a", -1, version=version, member_id="")
        talk.beat("a", -2, version=version)
        talk.beat("a", -3, version=version)
    talk.enter("a", version=1, member_id="")
    talk.enter("a", version=1, subscribed_topic_regex="", rebalance_timeout_ms=0)
    talk.beat("a", -1)
    talk.group_is()


def nothing_to_read(talk: ConsumerTalk) -> None:
    talk.enter("a", subscribed_topic_names=[])
    talk.group_is()
    talk.enter("b", subscribed_topic_names=[])
    talk.group_is()
    talk.beat("b", -1)
    talk.enter("b", "missing")
    talk.group_is()


def strangers(talk: ConsumerTalk) -> None:
    talk.beat("a", 2)
    talk.beat("a", -1)
    talk.beat("a", -2, instance_id="one")
    talk.group_is()
    talk.group_is(version=0)
    talk.list_types()
    talk.delete()
    talk.enter("a", version=0, member_id="")
    talk.beat("b", 2)
    talk.beat("b", -1)
    talk.beat("b", 2, instance_id="one")
    talk.beat("b", -1, instance_id="one")
    talk.beat("b", -2, instance_id="one")


def one_member(talk: ConsumerTalk) -> None:
    talk.enter("a", rack_id="r1", server_assignor="range")
    talk.group_is(include_authorized_operations=True)
    talk.group_is(version=0)
    talk.beat("a", 2)
    talk.beat("a", 2, owns={talk.topic: [0, 1, 2, 3]})
    talk.beat("a", 2, owns={talk.topic: [0, 1, 2, 3]}, rebalance_timeout_ms=5000, subscribed_topic_names=[talk.topic])
    talk.beat("a", 2, server_assignor="uniform")
    talk.group_is()
    talk.list_types()
    talk.beat("a", 2, subscribed_topic_names=[talk.other, talk.topic, talk.topic])
    talk.group_is()
    talk.beat("a", 3, subscribed_topic_names=[talk.other])
    talk.group_is()
    talk.beat("a", 3, owns={talk.other: [0, 1]})
    talk.beat("a", 4, subscribed_topic_names=[])
    talk.beat("a", 4, owns={})
    talk.group_is()
    talk.describe(version=5)
    talk.describe(version=6)
    talk.delete()
    talk.beat("a", -1)
    talk.group_is()
    talk.list_types()
    talk.delete()
    talk.group_is()


def two_members(talk: ConsumerTalk) -> None:
    talk.enter("a", talk.other)
    talk.enter("b", talk.other)
    talk.group_is()
    talk.beat("b", 3)
    first = talk.beat("a", 2)
    kept = talk.parts(first.assignment)["<other>"]
    talk.group_is()
    talk.beat("a", 2)
    talk.beat("b", 3)
    talk.beat("a", 2, owns={talk.other: kept})
    talk.group_is()
    talk.beat("b", 3)
    talk.group_is()
    talk.beat("a", -1)
    talk.group_is()
    talk.beat("b", 3)
    talk.beat("b", 4)
    talk.group_is()


def a_third_member_while_two_move(talk: ConsumerTalk) -> None:
    talk.enter("a")
    talk.enter("b")
    first = talk.parts(talk.beat("a", 2).assignment)["<topic>"]
    talk.enter("c", talk.other)
    talk.group_is()
    talk.beat("a", 2, owns={talk.topic: first})
    talk.group_is()
    talk.beat("b", 3)
    talk.beat("a", 4)
    talk.beat("c", 4)
    talk.group_is()


def member_epochs(talk: ConsumerTalk) -> None:
    talk.enter("a")
    talk.enter("a")
    talk.beat("a", 3)
    talk.beat("a", 2, subscribed_topic_names=[talk.topic, talk.other])
    talk.beat("a", 2)
    talk.beat("a", 2, owns={talk.topic: [0]})
    talk.beat("a", 2, owns={talk.topic: [0], talk.other: [1]})
    talk.beat("a", 2, owns={talk.topic: [0, 17]})
    talk.beat("a", 3, subscribed_topic_names=[talk.other])
    talk.beat("a", 3, owns={talk.other: [0, 1]})
    talk.beat("a", 2, owns={talk.other: [0]})
    talk.enter("a")
    talk.group_is()


def joins_again_with_epoch_zero(talk: ConsumerTalk) -> None:
    talk.enter("a")
    talk.beat("a", 2, subscribed_topic_names=[talk.topic, talk.other])
    talk.beat("a", 3, subscribed_topic_names=[talk.topic])
    talk.beat("a", 3, owns={talk.topic: [0, 1, 2, 3]})
    talk.group_is()
    talk.enter("a")
    talk.beat("a", -1)
    talk.enter("a")
    talk.group_is()


def static_members(talk: ConsumerTalk) -> None:
    talk.enter("a", instance_id="one")
    talk.enter("b", instance_id="one")
    talk.beat("b", 2, instance_id="one")
    talk.beat("b", -1, instance_id="one")
    talk.beat("a", 2, instance_id="one")
    talk.beat("a", 2, instance_id="two")
    talk.beat("a", 2)
    talk.enter("d")
    talk.beat("a", -2, instance_id="one")
    talk.group_is()
    talk.beat("d", 3)
    talk.beat("a", 2, instance_id="one")
    talk.enter("c", instance_id="one")
    talk.group_is()
    talk.beat("a", 2, instance_id="one")
    talk.beat("c", 3, instance_id="one", owns={talk.topic: [0, 1]})
    talk.beat("c", -1, instance_id="one")
    talk.beat("d", 3)
    talk.group_is()
    talk.enter("e", talk.other, instance_id="one")
    talk.beat("e", -2, instance_id="one")
    talk.enter("e", talk.other, instance_id="one")
    talk.beat("e", -2, instance_id="one")
    talk.enter("f", talk.topic, instance_id="one")
    talk.group_is()


def a_member_that_does_not_revoke(talk: ConsumerTalk) -> None:
    talk.enter("a", rebalance_timeout_ms=300)
    talk.enter("b")
    talk.beat("a", 2)
    talk._until(lambda: talk.beat("a", 2, quiet=True).error_code == errors.UnknownMemberId.code)
    talk.group_is()
    talk.beat("b", 3)
    talk.group_is()


def assignors(talk: ConsumerTalk) -> None:
    talk.enter("a", talk.topic, talk.other, server_assignor="range")
    talk.enter("b", talk.topic, talk.other)
    talk.group_is()
    talk.enter("c", talk.topic, talk.other, server_assignor="uniform")
    talk.enter("d", talk.topic, talk.other, server_assignor="uniform")
    talk.beat("d", -1)
    talk.beat("c", -1)
    talk.beat("b", 3, server_assignor="range")
    talk.group_is()


def topics_that_come_and_grow(talk: ConsumerTalk) -> None:
    talk.enter("a", "missing-" + talk.topic)
    talk.group_is()
    talk.create("missing-" + talk.topic)
    talk._until(lambda: talk.beat("a", 2, quiet=True).member_epoch == 3)
    talk.group_is()
    talk.grow("missing-" + talk.topic, 3)
    talk._until(lambda: talk.beat("a", 3, quiet=True).member_epoch == 4)
    talk.group_is()


def regular_expressions(talk: ConsumerTalk) -> None:
    talk.enter("a", subscribed_topic_names=None, subscribed_topic_regex="*", says=False)
    talk.enter("a", subscribed_topic_names=None, subscribed_topic_regex="(?=x)", says=False)
    talk.enter("a", subscribed_topic_names=None, subscribed_topic_regex=r"(x)\1", says=False)
    talk.group_is()
    regex = talk.topic[:-1] + "[0-9a-f]"
    talk.enter("a", subscribed_topic_names=None, subscribed_topic_regex=regex, quiet=True)
    talk.reads("a", talk.topic)
    talk.beat("a", talk.epoch("a"), subscribed_topic_regex="nothing-like-that", quiet=True)
    talk.reads("a")
    talk.beat("a", talk.epoch("a"), subscribed_topic_regex="", subscribed_topic_names=[talk.other], quiet=True)
    talk.reads("a", talk.other)
    talk.beat("a", talk.epoch("a"), subscribed_topic_regex=regex, quiet=True)
    talk.reads("a", talk.other, talk.topic)


def offsets(talk: ConsumerTalk) -> None:
    for version in (2, 8, 9, 10):
        talk.commit_as("a", 2, version=version)
    talk.fetch_as("a", 2)
    talk.enter("a")
    for version in (2, 8, 9, 10):
        talk.commit_as("a", 2, version=version)
    talk.commit_as("", -1)
    talk.commit_as("a", -1)
    talk.commit_as("a", 1)
    talk.commit_as("a", 3)
    talk.commit_as("stranger", 2)
    talk.commit_as("a", 2, partition=9)
    talk.commit_as("a", 2, topic="missing")
    talk.commit_as("a", 2, version=10, topic_id=FORWARD)
    for version in (8, 9, 10):
        talk.fetch_as(None, -1, version=version)
        talk.fetch_as(None, -1, version=version, every=True)
    for member, epoch in (("a", 2), ("a", 1), ("a", 3), ("a", -1), ("stranger", 2)):
        talk.fetch_as(member, epoch)
    talk.fetch_as("a", 2, version=10, ids=[FORWARD, talk.id_of(talk.topic)])
    talk.offset_delete("a")
    talk.beat("a", 2, subscribed_topic_names=[talk.topic, talk.other])
    talk.commit_as("a", 2)
    talk.commit_as("a", 2, topic=talk.other)
    talk.commit_as("a", 3, topic=talk.other)
    talk.delete()
    talk.beat("a", -1)
    talk.commit_as("a", 3)
    talk.commit_as("", -1)
    talk.offset_delete("a")
    talk.fetch_as(None, -1, every=True)
    talk.delete()
    talk.fetch_as(None, -1, every=True)


def committing_while_moving(talk: ConsumerTalk) -> None:
    talk.enter("a", talk.other)
    talk.enter("b", talk.other)
    kept = talk.parts(talk.beat("a", 2).assignment)["<other>"]
    talk.commit_as("a", 2, topic=talk.other, partition=0)
    talk.commit_as("a", 2, topic=talk.other, partition=1)
    talk.beat("a", 2, owns={talk.other: kept})
    talk.commit_as("a", 2, topic=talk.other, partition=kept[0])
    talk.commit_as("a", 2, topic=talk.other, partition=1 - kept[0])
    talk.commit_as("a", 3, topic=talk.other, partition=1 - kept[0])
    talk.beat("b", 3)
    talk.commit_as("b", 2, topic=talk.other, partition=1 - kept[0])
    talk.commit_as("b", 3, topic=talk.other, partition=1 - kept[0])


SCENES: tuple[Callable[[MixedTalk], None], ...] = (
    requests_that_make_no_sense,
    nothing_to_read,
    strangers,
    one_member,
    two_members,
    a_third_member_while_two_move,
    member_epochs,
    joins_again_with_epoch_zero,
    static_members,
    a_member_that_does_not_revoke,
    assignors,
    topics_that_come_and_grow,
    regular_expressions,
    offsets,
    committing_while_moving,
    *MIXED,
)


def play(scene: Callable[[MixedTalk], None], bootstrap_servers: str) -> Record:
    """What everybody was told, in order."""
    return told(MixedTalk(bootstrap_servers), scene)
