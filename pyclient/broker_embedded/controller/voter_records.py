"""The voters in the metadata log and its snapshots (KIP-853): VotersRecord and KRaftVersionRecord."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyclient.broker_embedded.controller.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet
from pyclient.errors import CorruptRecord
from pyclient.protocol import codec
from pyclient.protocol.messages import control_records as kinds
from pyclient.records import (
    BatchHeader,
    ControlType,
    build_batch,
    control_key,
    control_type,
    decode_key_values,
)

if TYPE_CHECKING:
    from pyclient.records.columns import Buffer

_MOST_VOTERS: Final = 1000


def control_records(voters: VoterSet, kraft_version: int | None = None) -> list[tuple[bytes, bytes]]:
    """Return the key and value of a VotersRecord, after those of a KRaftVersionRecord if there is a version."""
    records = []
    if kraft_version is not None:
        level = kinds.KRaftVersionRecord(version=0, kraft_version=kraft_version)
        records.append((control_key(ControlType.KRAFT_VERSION), codec.encode(level, 0)))
    record = kinds.VotersRecord(
        version=0,
        voters=[
            kinds.VotersRecordVoter(
                voter_id=voter.key.id,
                voter_directory_id=voter.key.directory_id,
                endpoints=[kinds.Endpoint(name=each.name, host=each.host, port=each.port) for each in voter.endpoints],
                kraft_version_feature=kinds.KRaftVersionFeature(
                    min_supported_version=voter.min_kraft_version, max_supported_version=voter.max_kraft_version
                ),
            )
            for voter in voters
        ],
    )
    return [*records, (control_key(ControlType.KRAFT_VOTERS), codec.encode(record, 0))]


def voters_batch(voters: VoterSet, kraft_version: int | None, now_ms: int) -> bytes:
    """Return the control batch that writes a voter set into the log."""
    return build_batch(control_records(voters, kraft_version), timestamp_ms=now_ms, control=True)


def voters_in(buffer: Buffer, position: int, header: BatchHeader) -> VoterSet | None:
    """Return the voter set that a batch writes, None if it writes none. Raise `ProtocolError` for a malformed one."""
    found: VoterSet | None = None
    if header.is_control:
        for _offset, _timestamp, key, value in decode_key_values(buffer, position, header):
            if control_type(key) == ControlType.KRAFT_VOTERS and value is not None:
                found = _voters(codec.decode(kinds.VotersRecord, 0, memoryview(value)))
    return found


def kraft_version_in(buffer: Buffer, position: int, header: BatchHeader) -> int | None:
    """Return the level of kraft.version that a control batch sets, None if it sets none."""
    found: int | None = None
    for _offset, _timestamp, key, value in decode_key_values(buffer, position, header):
        if control_type(key) == ControlType.KRAFT_VERSION and value is not None:
            found = codec.decode(kinds.KRaftVersionRecord, 0, memoryview(value)).kraft_version
    return found


def _voters(record: kinds.VotersRecord) -> VoterSet:
    ids = {each.voter_id for each in record.voters}
    if not record.voters or len(ids) != len(record.voters) or len(ids) > _MOST_VOTERS or min(ids) < 0:
        raise CorruptRecord(f"a VotersRecord names the voters {sorted(each.voter_id for each in record.voters)}")
    return VoterSet(
        Voter(
            ReplicaKey(each.voter_id, each.voter_directory_id),
            tuple(Endpoint(at.name, at.host, at.port) for at in each.endpoints),
            each.kraft_version_feature.min_supported_version,
            each.kraft_version_feature.max_supported_version,
        )
        for each in record.voters
    )
