"""Snapshots of the metadata (KIP-630): the image as records in a file, which replaces the log before its end.

The file has Kafka's form: a control batch with the header, batches of records, and a control batch with the footer.
"""

from __future__ import annotations

import logging
import os
import re
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from pyclient.broker_embedded.controller import delegation_tokens
from pyclient.broker_embedded.controller import records as metadata_records
from pyclient.broker_embedded.controller.acls import record_of
from pyclient.broker_embedded.controller.features import FEATURES, KRAFT_VERSION, METADATA_VERSION
from pyclient.broker_embedded.controller.raft.replica_log import OffsetAndEpoch
from pyclient.broker_embedded.controller.voter_records import control_records
from pyclient.errors import CorruptRecord
from pyclient.protocol import codec
from pyclient.protocol.messages.control_records import SnapshotFooterRecord, SnapshotHeaderRecord
from pyclient.records import (
    ControlType,
    build_batch,
    check_crc,
    control_key,
    control_type,
    decode_key_values,
    iter_batches,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyclient.broker_embedded.controller.image import MetadataImage
    from pyclient.broker_embedded.controller.raft.voters import VoterSet
    from pyclient.broker_embedded.environment import NodeEnvironment
    from pyclient.broker_embedded.log.filesystem import FileSystem
    from pyclient.broker_embedded.log.incremental_task import IncrementalTask
    from pyclient.broker_embedded.log.unified_log import UnifiedLog
    from pyclient.broker_embedded.scheduling.timers import Timer

log = logging.getLogger("pyclient.broker_embedded")

_NAME: Final = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_IN_A_BATCH: Final = 200
"""Records of one batch, which are encoded in one step of a few milliseconds."""


def path_of(directory: str, snapshot: OffsetAndEpoch) -> str:
    """Return the path of a snapshot's file."""
    return os.path.join(directory, f"{snapshot.offset:020d}-{snapshot.epoch:010d}.checkpoint")


def snapshots_in(fs: FileSystem, directory: str) -> list[OffsetAndEpoch]:
    """Return the snapshots in a directory, the oldest first."""
    found = [match for name in fs.list_files(directory) if (match := _NAME.fullmatch(name))]
    return sorted((OffsetAndEpoch(int(match[1]), int(match[2])) for match in found), key=lambda each: each.order)


def remove_before(fs: FileSystem, directory: str, snapshot: OffsetAndEpoch) -> None:
    """Remove the files of older snapshots."""
    for older in snapshots_in(fs, directory):
        if older.order < snapshot.order:
            fs.remove(path_of(directory, older))


def records_of(image: MetadataImage) -> Iterator[Any]:
    """Yield records that make an empty image equal to this one, the metadata.version first."""
    from pyclient.protocol.messages import metadata_log as kinds

    for name, level in sorted(image.features.items(), key=lambda item: item[0] != METADATA_VERSION):
        if name != KRAFT_VERSION:  # a control record has it
            yield kinds.FeatureLevelRecord(name=name, feature_level=level)
    yield from _records_of_brokers(image)
    yield from _records_of_controllers(image)
    yield from _records_of_topics(image)
    for (kind, resource), options in image.configs.items():
        for name, value in options.items():
            yield kinds.ConfigRecord(resource_type=kind, resource_name=resource, name=name, value=value)
    for entity, quotas in image.client_quotas.items():
        named = [kinds.EntityData(entity_type=kind, entity_name=name) for kind, name in entity]
        for key, limit in quotas.items():
            yield kinds.ClientQuotaRecord(entity=named, key=key, value=limit, remove=False)
    if image.next_producer_id:
        yield kinds.ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=image.next_producer_id)
    for acl_id, acl in image.acls.items():
        yield record_of(acl_id, acl)
    for (user, mechanism), credential in image.scram_credentials.items():
        yield kinds.UserScramCredentialRecord(
            name=user,
            mechanism=mechanism,
            salt=credential.salt,
            stored_key=credential.stored_key,
            server_key=credential.server_key,
            iterations=credential.iterations,
        )
    for token in image.delegation_tokens.values():
        yield delegation_tokens.record_of(token)


def _records_of_brokers(image: MetadataImage) -> Iterator[Any]:
    from pyclient.protocol.messages import metadata_log as kinds

    for broker in image.brokers.values():
        yield kinds.RegisterBrokerRecord(
            broker_id=broker.node_id,
            incarnation_id=broker.incarnation,
            broker_epoch=broker.epoch,
            end_points=[
                kinds.BrokerEndpoint(name=name, host=host, port=port, security_protocol=protocol)
                for (name, host, port), protocol in zip(broker.endpoints, broker.protocols, strict=True)
            ],
            features=[
                kinds.BrokerFeature(name=name, min_supported_version=first, max_supported_version=last)
                for name, first, last in broker.features
            ],
            rack=broker.rack,
            fenced=broker.fenced,
            in_controlled_shutdown=broker.in_controlled_shutdown,
            log_dirs=list(broker.log_dirs),
            cordoned_log_dirs=list(broker.cordoned) or None,
        )


def _records_of_controllers(image: MetadataImage) -> Iterator[Any]:
    from pyclient.protocol.messages import metadata_log as kinds

    for controller in image.controllers.values():
        yield kinds.RegisterControllerRecord(
            controller_id=controller.node_id,
            incarnation_id=controller.incarnation,
            zk_migration_ready=False,
            end_points=[
                kinds.ControllerEndpoint(name=name, host=host, port=port, security_protocol=protocol)
                for name, host, port, protocol in controller.endpoints
            ],
            features=[
                kinds.ControllerFeature(name=name, min_supported_version=first, max_supported_version=last)
                for name, first, last in controller.features
            ],
        )


def _records_of_topics(image: MetadataImage) -> Iterator[Any]:
    from pyclient.protocol.messages import metadata_log as kinds

    for topic in image.topics.values():
        yield kinds.TopicRecord(name=topic.name, topic_id=topic.topic_id)
        for partition in topic.partitions.values():
            yield kinds.PartitionRecord(
                partition_id=partition.partition,
                topic_id=topic.topic_id,
                replicas=partition.replicas,
                isr=partition.isr,
                removing_replicas=partition.removing,
                adding_replicas=partition.adding,
                leader=partition.leader,
                leader_recovery_state=partition.leader_recovery_state,
                leader_epoch=partition.leader_epoch,
                partition_epoch=partition.partition_epoch,
                directories=partition.directories,
                eligible_leader_replicas=list(partition.elr) or None,
                last_known_elr=list(partition.last_known_elr) or None,
            )


def encode_snapshot(
    image: MetadataImage,
    epoch: int,
    now_ms: int,
    uninterpreted: Iterable[bytes] = (),
    voters: VoterSet | None = None,
) -> IncrementalTask[bytes]:
    """Encode an image as the contents of a snapshot's file, in steps.

    `uninterpreted` are records of the log that this broker does not interpret, and keeps. `voters` is the set that the
    log had there, None if the configuration has it (kraft.version 0).
    """
    level = image.features.get(METADATA_VERSION, FEATURES[METADATA_VERSION].first)
    first = snapshot_header(now_ms, voters)
    parts = [build_batch(first, timestamp_ms=now_ms, base_offset=0, leader_epoch=epoch, control=True)]
    offset = len(first)
    values = (metadata_records.encode(record, level) for record in records_of(image))
    for source in (values, iter(uninterpreted)):
        while rows := [(None, value) for value in islice(source, _IN_A_BATCH)]:
            parts.append(build_batch(rows, timestamp_ms=now_ms, base_offset=offset, leader_epoch=epoch))
            offset += len(rows)
            yield None
    footer = SnapshotFooterRecord(version=0)
    parts.append(_control(ControlType.SNAPSHOT_FOOTER, codec.encode(footer, 0), offset, epoch, now_ms))
    return b"".join(parts)


def snapshot_header(now_ms: int, voters: VoterSet | None) -> list[tuple[bytes, bytes]]:
    """Return the control records at a snapshot's beginning: the header, and the voters if there are any."""
    header = SnapshotHeaderRecord(version=0, last_contained_log_timestamp=now_ms)
    first = [(control_key(ControlType.SNAPSHOT_HEADER), codec.encode(header, 0))]
    return first if voters is None else first + control_records(voters, 1)


def first_snapshot(voters: VoterSet, now_ms: int) -> bytes:
    """Return the snapshot at offset 0 of a cluster that begins with these voters in its log (KIP-853)."""
    first = snapshot_header(now_ms, voters)
    footer = codec.encode(SnapshotFooterRecord(version=0), 0)
    return build_batch(first, timestamp_ms=now_ms, leader_epoch=0, control=True) + _control(
        ControlType.SNAPSHOT_FOOTER, footer, len(first), 0, now_ms
    )


def _control(kind: ControlType, value: bytes, offset: int, epoch: int, now_ms: int) -> bytes:
    record = (control_key(kind), value)
    return build_batch([record], timestamp_ms=now_ms, base_offset=offset, leader_epoch=epoch, control=True)


def check_snapshot(content: bytes) -> None:
    """Raise `CorruptRecord` or another `ProtocolError` unless the content is a whole snapshot with intact batches."""
    last: int | None = None
    for position, header in iter_batches(content):
        check_crc(content, position, header)
        last = None
        if header.is_control:
            for _offset, _timestamp, key, _value in decode_key_values(content, position, header):
                last = control_type(key)
    if last != ControlType.SNAPSHOT_FOOTER:
        raise CorruptRecord("the snapshot of the metadata has no footer: its end is missing")


class SnapshotGenerator:
    """Writes snapshots of an image as its log grows: after so many bytes, or so long after the last one.

    `position` returns the end of what the image has, None while it must not be written; `written` is called with each
    snapshot that is on the disk; `voters` returns the set that the log has below an offset, if it has one. The image is
    encoded in steps between which the loop serves others.
    """

    def __init__(
        self,
        env: NodeEnvironment,
        opened: UnifiedLog,
        *,
        position: Callable[[], OffsetAndEpoch | None],
        uninterpreted: Callable[[], list[bytes]],
        written: Callable[[OffsetAndEpoch], None],
        voters: Callable[[int], VoterSet | None] = lambda _offset: None,
    ) -> None:
        self._env = env
        self._most_bytes = env.config.integer("metadata.log.max.record.bytes.between.snapshots")
        self._longest = env.config.seconds("metadata.log.max.snapshot.interval.ms")
        self._log = opened
        self._position = position
        self._uninterpreted = uninterpreted
        self._written = written
        self._voters = voters
        self._counted = 0  # bytes of the log at the last snapshot
        self._timer: Timer | None = None
        self._due = False
        self._looking = False
        self._running = False
        self._closed = False
        opened.on_append.append(self._changed)
        self._changed()

    def close(self) -> None:
        """Write no more."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _changed(self) -> None:
        if not self._looking:
            self._looking = True
            self._env.loop.call_soon(self._look)

    def _look(self) -> None:
        """Begin a snapshot if one is due, once the records that were just appended are in the image, too."""
        self._looking = False
        grown = self._log.size - self._counted
        if self._closed or self._running or grown <= 0:
            return
        if not self._due and grown < self._most_bytes:
            if self._timer is None and self._longest > 0:
                self._timer = self._env.schedule(self._longest, self._time_is_over)
            return
        end = self._position()
        if end is not None and end.offset > self._log.start_offset:
            self._running = True
            now_ms, voters = self._env.clock.time_ms(), self._voters(end.offset)
            self._step(end, encode_snapshot(self._env.image.copy(), end.epoch, now_ms, self._uninterpreted(), voters))

    def _time_is_over(self) -> None:
        self._timer = None
        self._due = True
        self._look()

    def _step(self, end: OffsetAndEpoch, steps: IncrementalTask[bytes]) -> None:
        if self._closed:
            return
        try:
            next(steps)
        except StopIteration as done:
            self._running = False
            self._write(end, done.value)
        else:
            self._env.loop.call_soon(self._step, end, steps)

    def _write(self, end: OffsetAndEpoch, content: bytes) -> None:
        if end.offset <= self._log.start_offset:
            return  # another node's snapshot has replaced the log meanwhile
        try:
            self._env.fs.replace(path_of(self._log.directory, end), content)
        except OSError as error:
            log.error("a snapshot of the metadata cannot be written; it is tried again later: %s", error)
            return
        log.info("wrote a metadata snapshot: end offset %d, %d bytes", end.offset, len(content))
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._due = False
        self._written(end)
        self._counted = self._log.size


def start_log_at(opened: UnifiedLog, fs: FileSystem, snapshot: OffsetAndEpoch, now_ms: int) -> None:
    """Let the log start at a snapshot's end: delete the segments before it, and older snapshots."""
    opened.roll()
    opened.advance_start(snapshot.offset)
    opened.apply_retention(now_ms)
    remove_before(fs, opened.directory, snapshot)
