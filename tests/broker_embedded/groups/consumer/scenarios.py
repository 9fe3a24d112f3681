"""Scenarios of members of consumer groups (KIP-848): Kafka and the embedded broker must answer the same.

`consumer_answers.json` has the answers of Apache Kafka 4.3.1; `make test-kafka` compares them with a running Kafka, and
records the file with PYCLIENT_RECORD=1.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from uuid import UUID

from pyclient import errors
from tests.broker_embedded.groups.consumer.harness import ConsumerHarness
from tests.broker_embedded.groups.consumer.mixed_harness import MixedHarness
from tests.broker_embedded.groups.consumer.mixed_scenarios import MIXED
from tests.broker_embedded.groups.group_harness import Record, run_scenario
from tests.waiting import until

ANSWERS = Path(__file__).with_name("consumer_answers.json")
SETTINGS = {"group.consumer.assignment.interval.ms": "0"}
"""The scenarios do not wait between two target assignments."""

FORWARD = UUID(int=77)


def requests_that_make_no_sense(harness: ConsumerHarness) -> None:
    for version in (0, 1):
        harness.beat("a", 0, version=version)
        harness.beat("a", 0, version=version, rebalance_timeout_ms=1000, owns={})
        harness.beat("a", 0, version=version, rebalance_timeout_ms=1000, subscribed_topic_names=[harness.topic])
        harness.enter("a", version=version, owns={harness.topic: [0]})
        harness.enter("a", version=version, group_id="")
        harness.enter("a", version=version, instance_id="")
        harness.enter("a", version=version, rack_id="")
        harness.enter("a", version=version, server_assignor="")
        harness.enter("a", version=version, server_assignor="sticky")
        harness.beat("a", 1, version=version, member_id="")
        harness.beat("a", -1, version=version, member_id="")
        harness.beat("a", -2, version=version)
        harness.beat("a", -3, version=version)
    harness.enter("a", version=1, member_id="")
    harness.enter("a", version=1, subscribed_topic_regex="", rebalance_timeout_ms=0)
    harness.beat("a", -1)
    harness.group_is()


def nothing_to_read(harness: ConsumerHarness) -> None:
    harness.enter("a", subscribed_topic_names=[])
    harness.group_is()
    harness.enter("b", subscribed_topic_names=[])
    harness.group_is()
    harness.beat("b", -1)
    harness.enter("b", "missing")
    harness.group_is()


def strangers(harness: ConsumerHarness) -> None:
    harness.beat("a", 2)
    harness.beat("a", -1)
    harness.beat("a", -2, instance_id="one")
    harness.group_is()
    harness.group_is(version=0)
    harness.list_types()
    harness.delete()
    harness.enter("a", version=0, member_id="")
    harness.beat("b", 2)
    harness.beat("b", -1)
    harness.beat("b", 2, instance_id="one")
    harness.beat("b", -1, instance_id="one")
    harness.beat("b", -2, instance_id="one")


def one_member(harness: ConsumerHarness) -> None:
    harness.enter("a", rack_id="r1", server_assignor="range")
    harness.group_is(include_authorized_operations=True)
    harness.group_is(version=0)
    harness.beat("a", 2)
    harness.beat("a", 2, owns={harness.topic: [0, 1, 2, 3]})
    harness.beat(
        "a", 2, owns={harness.topic: [0, 1, 2, 3]}, rebalance_timeout_ms=5000, subscribed_topic_names=[harness.topic]
    )
    harness.beat("a", 2, server_assignor="uniform")
    harness.group_is()
    harness.list_types()
    harness.beat("a", 2, subscribed_topic_names=[harness.other, harness.topic, harness.topic])
    harness.group_is()
    harness.beat("a", 3, subscribed_topic_names=[harness.other])
    harness.group_is()
    harness.beat("a", 3, owns={harness.other: [0, 1]})
    harness.beat("a", 4, subscribed_topic_names=[])
    harness.beat("a", 4, owns={})
    harness.group_is()
    harness.describe(version=5)
    harness.describe(version=6)
    harness.delete()
    harness.beat("a", -1)
    harness.group_is()
    harness.list_types()
    harness.delete()
    harness.group_is()


def two_members(harness: ConsumerHarness) -> None:
    harness.enter("a", harness.other)
    harness.enter("b", harness.other)
    harness.group_is()
    harness.beat("b", 3)
    first = harness.beat("a", 2)
    kept = harness.parts(first.assignment)["<other>"]
    harness.group_is()
    harness.beat("a", 2)
    harness.beat("b", 3)
    harness.beat("a", 2, owns={harness.other: kept})
    harness.group_is()
    harness.beat("b", 3)
    harness.group_is()
    harness.beat("a", -1)
    harness.group_is()
    harness.beat("b", 3)
    harness.beat("b", 4)
    harness.group_is()


def a_third_member_while_two_move(harness: ConsumerHarness) -> None:
    harness.enter("a")
    harness.enter("b")
    first = harness.parts(harness.beat("a", 2).assignment)["<topic>"]
    harness.enter("c", harness.other)
    harness.group_is()
    harness.beat("a", 2, owns={harness.topic: first})
    harness.group_is()
    harness.beat("b", 3)
    harness.beat("a", 4)
    harness.beat("c", 4)
    harness.group_is()


def member_epochs(harness: ConsumerHarness) -> None:
    harness.enter("a")
    harness.enter("a")
    harness.beat("a", 3)
    harness.beat("a", 2, subscribed_topic_names=[harness.topic, harness.other])
    harness.beat("a", 2)
    harness.beat("a", 2, owns={harness.topic: [0]})
    harness.beat("a", 2, owns={harness.topic: [0], harness.other: [1]})
    harness.beat("a", 2, owns={harness.topic: [0, 17]})
    harness.beat("a", 3, subscribed_topic_names=[harness.other])
    harness.beat("a", 3, owns={harness.other: [0, 1]})
    harness.beat("a", 2, owns={harness.other: [0]})
    harness.enter("a")
    harness.group_is()


def joins_again_with_epoch_zero(harness: ConsumerHarness) -> None:
    harness.enter("a")
    harness.beat("a", 2, subscribed_topic_names=[harness.topic, harness.other])
    harness.beat("a", 3, subscribed_topic_names=[harness.topic])
    harness.beat("a", 3, owns={harness.topic: [0, 1, 2, 3]})
    harness.group_is()
    harness.enter("a")
    harness.beat("a", -1)
    harness.enter("a")
    harness.group_is()


def static_members(harness: ConsumerHarness) -> None:
    harness.enter("a", instance_id="one")
    harness.enter("b", instance_id="one")
    harness.beat("b", 2, instance_id="one")
    harness.beat("b", -1, instance_id="one")
    harness.beat("a", 2, instance_id="one")
    harness.beat("a", 2, instance_id="two")
    harness.beat("a", 2)
    harness.enter("d")
    harness.beat("a", -2, instance_id="one")
    harness.group_is()
    harness.beat("d", 3)
    harness.beat("a", 2, instance_id="one")
    harness.enter("c", instance_id="one")
    harness.group_is()
    harness.beat("a", 2, instance_id="one")
    harness.beat("c", 3, instance_id="one", owns={harness.topic: [0, 1]})
    harness.beat("c", -1, instance_id="one")
    harness.beat("d", 3)
    harness.group_is()
    harness.enter("e", harness.other, instance_id="one")
    harness.beat("e", -2, instance_id="one")
    harness.enter("e", harness.other, instance_id="one")
    harness.beat("e", -2, instance_id="one")
    harness.enter("f", harness.topic, instance_id="one")
    harness.group_is()


def a_static_member_that_missed_the_answer_to_its_join(harness: ConsumerHarness) -> None:
    harness.enter("a", instance_id="one", quiet=True)
    harness.enter("a", instance_id="one")
    harness.enter("a", instance_id="one", version=0)
    harness.enter("b", instance_id="two")
    harness.beat("a", 2, instance_id="one", owns={harness.topic: [2, 3]})
    harness.beat("b", 3, instance_id="two")
    harness.group_is()
    harness.enter("a", instance_id="one")
    harness.beat("b", -2, instance_id="one")
    harness.beat("c", -2, instance_id="one")
    harness.beat("a", -2, instance_id="one")
    harness.beat("a", -2, instance_id="one")
    harness.group_is()
    harness.enter("a", instance_id="one")
    harness.group_is()
    harness.beat("b", 3, instance_id="two")
    for epoch in (4, 3, 1, 0):
        harness.commit_as("a", epoch, partition=2)
    harness.commit_as("a", 1, partition=0)


def a_member_that_does_not_revoke(harness: ConsumerHarness) -> None:
    harness.enter("a", rebalance_timeout_ms=300)
    harness.enter("b")
    harness.beat("a", 2)
    until(lambda: harness.beat("a", 2, quiet=True).error_code == errors.UnknownMemberId.code)
    harness.group_is()
    harness.beat("b", 3)
    harness.group_is()


def assignors(harness: ConsumerHarness) -> None:
    harness.enter("a", harness.topic, harness.other, server_assignor="range")
    harness.enter("b", harness.topic, harness.other)
    harness.group_is()
    harness.enter("c", harness.topic, harness.other, server_assignor="uniform")
    harness.enter("d", harness.topic, harness.other, server_assignor="uniform")
    harness.beat("d", -1)
    harness.beat("c", -1)
    harness.beat("b", 3, server_assignor="range")
    harness.group_is()


def topics_that_come_and_grow(harness: ConsumerHarness) -> None:
    harness.enter("a", "missing-" + harness.topic)
    harness.group_is()
    harness.create("missing-" + harness.topic)
    until(lambda: harness.beat("a", 2, quiet=True).member_epoch == 3)
    harness.group_is()
    harness.grow("missing-" + harness.topic, 3)
    until(lambda: harness.beat("a", 3, quiet=True).member_epoch == 4)
    harness.group_is()


def regular_expressions(harness: ConsumerHarness) -> None:
    harness.enter("a", subscribed_topic_names=None, subscribed_topic_regex="*", says=False)
    harness.enter("a", subscribed_topic_names=None, subscribed_topic_regex="(?=x)", says=False)
    harness.enter("a", subscribed_topic_names=None, subscribed_topic_regex=r"(x)\1", says=False)
    harness.group_is()
    regex = harness.topic[:-1] + "[0-9a-f]"
    harness.enter("a", subscribed_topic_names=None, subscribed_topic_regex=regex, quiet=True)
    harness.reads("a", harness.topic)
    harness.beat("a", harness.epoch("a"), subscribed_topic_regex="nothing-like-that", quiet=True)
    harness.reads("a")
    harness.beat("a", harness.epoch("a"), subscribed_topic_regex="", subscribed_topic_names=[harness.other], quiet=True)
    harness.reads("a", harness.other)
    harness.beat("a", harness.epoch("a"), subscribed_topic_regex=regex, quiet=True)
    harness.reads("a", harness.other, harness.topic)


def offsets(harness: ConsumerHarness) -> None:
    for version in (2, 8, 9, 10):
        harness.commit_as("a", 2, version=version)
    harness.fetch_as("a", 2)
    harness.enter("a")
    for version in (2, 8, 9, 10):
        harness.commit_as("a", 2, version=version)
    harness.commit_as("", -1)
    harness.commit_as("a", -1)
    harness.commit_as("a", 1)
    harness.commit_as("a", 3)
    harness.commit_as("stranger", 2)
    harness.commit_as("a", 2, partition=9)
    harness.commit_as("a", 2, topic="missing")
    harness.commit_as("a", 2, version=10, topic_id=FORWARD)
    for version in (8, 9, 10):
        harness.fetch_as(None, -1, version=version)
        harness.fetch_as(None, -1, version=version, every=True)
    for member, epoch in (("a", 2), ("a", 1), ("a", 3), ("a", -1), ("stranger", 2)):
        harness.fetch_as(member, epoch)
    harness.fetch_as("a", 2, version=10, ids=[FORWARD, harness.id_of(harness.topic)])
    harness.offset_delete("a")
    harness.beat("a", 2, subscribed_topic_names=[harness.topic, harness.other])
    harness.commit_as("a", 2)
    harness.commit_as("a", 2, topic=harness.other)
    harness.commit_as("a", 3, topic=harness.other)
    harness.delete()
    harness.beat("a", -1)
    harness.commit_as("a", 3)
    harness.commit_as("", -1)
    harness.offset_delete("a")
    harness.fetch_as(None, -1, every=True)
    harness.delete()
    harness.fetch_as(None, -1, every=True)


def committing_while_moving(harness: ConsumerHarness) -> None:
    harness.enter("a", harness.other)
    harness.enter("b", harness.other)
    kept = harness.parts(harness.beat("a", 2).assignment)["<other>"]
    harness.commit_as("a", 2, topic=harness.other, partition=0)
    harness.commit_as("a", 2, topic=harness.other, partition=1)
    harness.beat("a", 2, owns={harness.other: kept})
    harness.commit_as("a", 2, topic=harness.other, partition=kept[0])
    harness.commit_as("a", 2, topic=harness.other, partition=1 - kept[0])
    harness.commit_as("a", 3, topic=harness.other, partition=1 - kept[0])
    harness.beat("b", 3)
    harness.commit_as("b", 2, topic=harness.other, partition=1 - kept[0])
    harness.commit_as("b", 3, topic=harness.other, partition=1 - kept[0])


SCENARIOS: tuple[Callable[[MixedHarness], None], ...] = (
    requests_that_make_no_sense,
    nothing_to_read,
    strangers,
    one_member,
    two_members,
    a_third_member_while_two_move,
    member_epochs,
    joins_again_with_epoch_zero,
    static_members,
    a_static_member_that_missed_the_answer_to_its_join,
    a_member_that_does_not_revoke,
    assignors,
    topics_that_come_and_grow,
    regular_expressions,
    offsets,
    committing_while_moving,
    *MIXED,
)


def replay(scenario: Callable[[MixedHarness], None], bootstrap_servers: str) -> Record:
    """Return the answers of a scenario, in order."""
    return run_scenario(MixedHarness(bootstrap_servers), scenario)
