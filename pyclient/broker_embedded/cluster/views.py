"""The topics and groups of a cluster of several brokers, merged from the answers of each broker."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from pyclient.broker_embedded.cluster.broker import checked_timeout
from pyclient.broker_embedded.cluster.faults import POLL_SECONDS
from pyclient.errors import ClientError, ConfigError, InconsistentClusterId, KafkaTimeout

if TYPE_CHECKING:
    from pyclient.broker_embedded.cluster.broker import Broker

View = Mapping[str, Any]

_DEAD: Final = "Dead"


class Views:
    """Asks the brokers of a cluster; `brokers` is the cluster's own list, to which brokers may be added.

    Brokers that are down, also by their own controls, or paused are left out, as long as there is one that is not.
    """

    def __init__(self, brokers: Sequence[Broker]) -> None:
        self._brokers = brokers

    def each(self, method: str, path: str, values: View | None = None) -> dict[int, dict[str, Any]]:
        """Return the answers of the brokers, by node id."""
        given = {name: value for name, value in (values or {}).items() if value is not None}
        if len(self._brokers) == 1:
            return {self._brokers[0].id: self._brokers[0].call(method, path, given)}
        answers: dict[int, dict[str, Any]] = {}
        down: ClientError | None = None
        for broker in [broker for broker in self._brokers if broker.reachable] or self._brokers[:1]:
            try:
                answers[broker.id] = broker.call(method, path, given)
            except ClientError as error:
                if not _is_down(broker, error):
                    raise
                if broker.reachable:
                    down = error
        if down is not None and not answers:
            raise down
        return answers

    def topic(self, name: str) -> dict[str, Any]:
        """Return a topic; one that does not exist has no partitions."""
        from pyclient.broker_embedded.controls.endpoint import NotFound

        views: dict[int, View] = {}
        for broker in self._brokers:
            try:
                views.update(Views([broker]).each("GET", f"/topics/{quoted('topic', name)}"))
            except NotFound:
                continue  # the topic's creation has not reached this broker, or its deletion has
            except ClientError as error:
                if not _is_down(broker, error):
                    raise
        return topic_of(views) if views else {"topic": name, "topic_id": None, "partitions": []}

    def topics(self) -> list[dict[str, Any]]:
        """Return all topics."""
        names = {topic["topic"] for answer in self.each("GET", "/topics").values() for topic in answer["topics"]}
        return [self.topic(name) for name in sorted(names)]

    def partition(self, topic: str, index: int) -> dict[str, Any]:
        """Return a partition. Raise `ConfigError` if it does not exist."""
        found = self.topic(topic)["partitions"]
        for partition in found:
            if partition["partition"] == index:
                return dict(partition)
        raise ConfigError(f"there is no partition {topic}-{index}: the topic has {len(found)} partitions")

    def wait_isr(self, topic: str, index: int, size: int, timeout: float) -> list[int]:
        """Wait until a partition has that many in-sync replicas. Return their ids."""
        seen = until(lambda: self.partition(topic, index), lambda partition: len(partition["isr"]) == size, timeout)
        return list(seen["isr"])

    def in_sync_follower(self, topic: str, index: int, timeout: float) -> int:
        """Wait until a partition has a leader and an in-sync follower. Return the id of one.

        Raise `ConfigError` if it has one replica.
        """
        replicas = self.partition(topic, index)["replicas"]
        if len(replicas) == 1:
            raise ConfigError(f"{topic}-{index} has no follower: its only replica is {replicas[0]}")
        seen = until(
            lambda: self.partition(topic, index),
            lambda partition: partition["leader"] in partition["isr"] and len(partition["isr"]) > 1,
            timeout,
        )
        return int([each for each in seen["isr"] if each != seen["leader"]][-1])

    def controller(self) -> int | None:
        """Return the id of the active controller, in the newest epoch that a broker knows; None if it has none."""
        return controller_of(self.each("GET", "/broker").values())

    def wait_joined(self, ids: Iterable[int], timeout: float) -> None:
        """Wait until the brokers with these ids are unfenced, and all brokers that run know that, and a controller.

        Raise `ConfigError` if the controllers are of another cluster, `KafkaTimeout` with their last refusal of a
        registration.
        """
        wanted = set(ids)

        def read_state() -> dict[str, Any]:
            answers = {
                node_id: answer
                for node_id, answer in self.each("GET", "/broker").items()
                if answer["running"] or node_id in wanted
            }
            refused = {each: answer["refusal"] for each, answer in answers.items() if each in wanted}
            for node_id, refusal in refused.items():
                if refusal is not None and refusal["error"] == InconsistentClusterId.__name__:
                    raise ConfigError(
                        f"broker {node_id} cannot join: {refusal['message']}; give it an empty directory, or "
                        f"controller.quorum.voters of its own cluster"
                    )
            joined = [[node_id, answer["broker_epoch"]] for node_id, answer in answers.items() if node_id in wanted]
            return {
                "refused": {each: refusal["message"] for each, refusal in refused.items() if refusal is not None},
                "not_unfenced": sorted(wanted - {node_id for node_id, epoch in joined if epoch is not None}),
                "without_controller": [each for each, answer in answers.items() if answer["controller_id"] is None],
                "behind": [
                    each for each, answer in answers.items() if any(one not in answer["brokers"] for one in joined)
                ],
            }

        until(read_state, lambda seen: not any(seen.values()), timeout)

    def group(self, group_id: str) -> dict[str, Any]:
        """Return a group; one that does not exist is Dead."""
        return group_of(self.each("GET", f"/groups/{quoted('group', group_id)}").values())

    def wait_group(self, group_id: str, state: str | None, members: int | None, timeout: float) -> dict[str, Any]:
        """Wait until a group matches. Raise `KafkaTimeout`, with the last state, after `timeout` seconds."""
        if len(self._brokers) == 1:
            values = _given(state=state, members=members, timeout=timeout)
            path = f"/groups/{quoted('group', group_id)}/wait"
            return self._brokers[0].call("GET", path, values, timeout=timeout)
        from pyclient.broker_embedded.controls.views import group_condition

        return until(lambda: self.group(group_id), group_condition(state, members), timeout)

    def wait_topic(self, name: str, partitions: int | None, records: int | None, timeout: float) -> dict[str, Any]:
        """Wait until a topic matches. Raise `KafkaTimeout`, with the last state, after `timeout` seconds."""
        if len(self._brokers) == 1:
            values = _given(partitions=partitions, records=records, timeout=timeout)
            path = f"/topics/{quoted('topic', name)}/wait"
            return self._brokers[0].call("GET", path, values, timeout=timeout)
        from pyclient.broker_embedded.controls.views import topic_condition

        return until(lambda: self.topic(name), topic_condition(partitions, records), timeout)


def _is_down(broker: Broker, error: ClientError) -> bool:
    """Return True if a call failed because the broker has ended, by itself or by its own controls."""
    from pyclient.broker_embedded.controls.channel import ProcessEnded
    from pyclient.broker_embedded.controls.endpoint import WrongState

    return not broker.reachable or isinstance(error, WrongState | ProcessEnded)


def until(poll: Callable[[], dict[str, Any]], fits: Callable[[dict[str, Any]], bool], timeout: float) -> dict[str, Any]:
    """Return what `poll` returns, as soon as it fits. Raise `KafkaTimeout`, with the last result, after `timeout`."""
    from pyclient.broker_embedded.controls.views import brief

    end = time.monotonic() + checked_timeout(timeout)
    while not fits(seen := poll()):
        if time.monotonic() >= end:
            raise KafkaTimeout(f"timed out after {timeout:g} s, when the state was {brief(seen)}")
        time.sleep(POLL_SECONDS)  # there is no event for what several brokers say together
    return seen


def topic_of(views: Mapping[int, View]) -> dict[str, Any]:
    """Return a topic from the views of the brokers by node id: each partition as its leader sees it.

    A partition whose leader was not asked is as the broker with the newest leader epoch sees it. `views` is not empty.
    """
    best: dict[int, tuple[tuple[int, bool, int], View]] = {}
    for node_id, view in sorted(views.items()):
        for partition in view["partitions"]:
            weight = partition["leader_epoch"], partition["leader"] == node_id, partition["end_offset"]
            known = best.get(partition["partition"])
            if known is None or weight > known[0]:
                best[partition["partition"]] = weight, partition
    merged = dict(next((view for view in views.values() if view["topic_id"]), next(iter(views.values()))))
    return merged | {"partitions": [best[index][1] for index in sorted(best)]}


def controller_of(answers: Iterable[View]) -> int | None:
    """Return the active controller by what brokers say: that of the newest epoch."""
    known = [(each["controller_epoch"], each["controller_id"]) for each in answers if each["controller_id"] is not None]
    return max(known)[1] if known else None


def group_of(views: Iterable[View]) -> dict[str, Any]:
    """Return a group from the views of the brokers: as its coordinator sees it; for the others it is dead."""
    several = [dict(view) for view in views]
    return next((view for view in several if view["state"] != _DEAD), several[0])


def quoted(name: str, value: object) -> str:
    """Return the name of a topic or group, quoted for a path. Raise `ConfigError` if it is no text."""
    if not isinstance(value, str):
        raise ConfigError(f"{name} is {value!r}: it must be a text")
    return quote(value, safe="")


def names_of(name: str, value: object) -> list[str]:
    """Return one text or several as a list. Raise `ConfigError` for anything else."""
    several = list(value) if isinstance(value, Iterable) else [value]
    texts = [each for each in several if isinstance(each, str)]
    if len(texts) < len(several):
        raise ConfigError(f"{name} is {value!r}: it must be a text, or several")
    return texts


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
