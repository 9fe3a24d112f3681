"""Client quotas: validation, precedence and filters; feature levels; SCRAM credentials."""

from __future__ import annotations

import hashlib
import hmac
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient import errors
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.broker_embedded.controller import scram
from pyclient.broker_embedded.controller.client_quotas import (
    FETCH,
    PRODUCE,
    Entity,
    Filter,
    check_value,
    entity_of,
    limit_of,
)
from pyclient.broker_embedded.controller.features import FEATURES, check_update
from pyclient.protocol.messages import alter_client_quotas as alter
from pyclient.protocol.messages import alter_user_scram_credentials as credentials
from pyclient.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from pyclient.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest

CLIENT, USER, BOTH = (("client-id", "c"),), (("user", "u"),), (("client-id", "c"), ("user", "u"))
EVERYBODY: tuple[Entity, ...] = (
    BOTH,
    (("client-id", None), ("user", "u")),
    USER,
    (("client-id", "c"), ("user", None)),
    (("client-id", None), ("user", None)),
    (("user", None),),
    CLIENT,
    (("client-id", None),),
)
"""From the most to the least specific, as in Kafka."""


@given(st.sets(st.sampled_from(range(len(EVERYBODY))), min_size=1))
def test_most_specific_quota_applies(chosen: set[int]) -> None:
    quotas = {EVERYBODY[index]: {PRODUCE: float(index + 1)} for index in chosen}
    limit, (user, client) = limit_of(quotas, PRODUCE, "u", "c") or (0, (None, None))
    assert limit == min(chosen) + 1
    kinds = dict(EVERYBODY[min(chosen)])
    assert (user, client) == ("u" if "user" in kinds else None, "c" if "client-id" in kinds else None)
    assert limit_of(quotas, FETCH, "u", "c") is None


def test_quota_of_other_client_does_not_apply() -> None:
    quotas: dict[Entity, dict[str, float]] = {each: {PRODUCE: 1.0} for each in (CLIENT, USER, BOTH)}
    assert limit_of(quotas, PRODUCE, "v", "d") is None
    assert limit_of(quotas, PRODUCE, "v", "c") == (1, (None, "c"))
    assert limit_of(quotas, PRODUCE, "u", "d") == (1, ("u", None))


@pytest.mark.parametrize(
    "pairs",
    [
        [],
        [("foo", "x")],
        [("user", "")],
        [("user", "a"), ("user", "b")],
        [("ip", "1.2.3.4"), ("user", "a")],
        [("ip", "no address")],
    ],
)
def test_invalid_entity_is_refused(pairs: Any) -> None:
    with pytest.raises(errors.InvalidRequest):
        entity_of(pairs)


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf"), 1.5])
def test_invalid_quota_is_refused(value: float) -> None:
    with pytest.raises(errors.InvalidRequest):
        check_value(CLIENT, PRODUCE, value)


def test_entity_is_independent_of_component_order() -> None:
    assert entity_of([("user", "u"), ("client-id", "c")]) == entity_of([("client-id", "c"), ("user", "u")])
    assert entity_of([("ip", "::1")]) == (("ip", "::1"),)


def test_strict_filter_matches_only_its_types() -> None:
    for strict, found in ((False, [True, True]), (True, [False, True])):
        wanted = Filter([("user", 2, None)], strict=strict)
        assert [wanted.finds(each) for each in (BOTH, USER)] == found
        assert not wanted.finds(CLIENT)
    assert Filter([], strict=False).finds(BOTH)
    assert not Filter([], strict=True).finds(BOTH)


def test_feature_level_changes_as_in_kafka() -> None:
    level = FEATURES["group.version"].last
    check_update("group.version", 0, 2, {"group.version": level}, 1)
    check_update("group.version", 0, 3, {"group.version": level}, 1)
    check_update("group.version", level, 1, {"group.version": 0}, 1)
    check_update("group.version", level, 1, {"group.version": level}, 1)
    for name, wanted, kind in (
        ("group.version", 0, 1),
        ("group.version", 9, 1),
        ("group.version", -1, 1),
        ("metadata.version", 29, 2),
        ("metadata.version", 29, 3),
        ("metadata.version", 6, 2),
        ("foo", 1, 1),
        ("foo", 0, 2),
        ("transaction.version", 3, 1),
        ("group.version", 1, 7),
    ):
        with pytest.raises(errors.InvalidUpdateVersion):
            check_update(name, wanted, kind, {"group.version": level, "metadata.version": 30}, 1)
    check_update("metadata.version", 31, 1, {"metadata.version": 31}, 1)  # written by a later Kafka


def test_metadata_version_is_lowered_only_if_log_is_unchanged() -> None:
    lowest = {7: 7, 8: 8, 10: 8, 12: 11, 13: 13, 14: 14, 16: 15, 22: 17, 29: 23, 30: 30}
    for current, last in lowest.items():
        for level in range(7, current):
            for kind in (2, 3):
                if level >= last:
                    check_update("metadata.version", level, kind, {"metadata.version": current}, 1)
                else:
                    with pytest.raises(errors.InvalidUpdateVersion, match=f"downgrade from {current} to {level}"):
                        check_update("metadata.version", level, kind, {"metadata.version": current}, 1)


def test_feature_level_is_limited_by_emulated_release() -> None:
    most = {"metadata.version": 21}
    check_update("metadata.version", 21, 1, {"metadata.version": 20}, 1, most)
    for name, level in (("metadata.version", 22), ("group.version", 1)):
        with pytest.raises(errors.InvalidUpdateVersion):
            check_update(name, level, 1, {"metadata.version": 20}, 1, most)


def test_stored_credential_verifies_password() -> None:
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", b"salt", 4096)
    record = scram.record_of("al", 1, iterations=4096, salt=b"salt", salted_password=salted)
    message = b"n=al,r=nonce"
    proof = bytes(
        a ^ b
        for a, b in zip(
            hmac.digest(salted, b"Client Key", "sha256"),
            hmac.digest(record.stored_key, message, "sha256"),
            strict=True,
        )
    )
    signature = hmac.digest(record.stored_key, message, "sha256")
    client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
    assert hashlib.sha256(client_key).digest() == record.stored_key


def test_quotas_and_credentials_are_restored_after_restart(connect: Any, data_dir: str) -> None:
    named = [alter.AlterClientQuotasRequestEntityData(entity_type="client-id", entity_name=None)]
    ops = [alter.OpData(key=PRODUCE, value=1000.0, remove=False), alter.OpData(key=FETCH, value=5.0, remove=False)]
    quotas = alter.AlterClientQuotasRequest(
        entries=[alter.AlterClientQuotasRequestEntryData(entity=named, ops=ops)], validate_only=False
    )
    user = credentials.ScramCredentialUpsertion(
        name="al", mechanism=2, iterations=8192, salt=b"s", salted_password=b"p" * 64
    )
    with EmbeddedCluster(data_dir=data_dir) as cluster:
        client = connect(cluster)
        assert client.call(quotas, 1).entries[0].error_code == 0
        request = credentials.AlterUserScramCredentialsRequest(deletions=[], upsertions=[user])
        assert client.call(request, 0).results[0].error_code == 0
        cluster.restart()
        client = connect(cluster)
        [entry] = client.call(DescribeClientQuotasRequest(components=[], strict=False), 1).entries
        assert [(each.entity_type, each.entity_name) for each in entry.entity] == [("client-id", None)]
        assert {each.key: each.value for each in entry.values} == {PRODUCE: 1000.0, FETCH: 5.0}
        [user] = client.call(DescribeUserScramCredentialsRequest(users=None), 0).results
        assert (user.user, user.credential_infos[0].mechanism, user.credential_infos[0].iterations) == (
            "al",
            2,
            8192,
        )
        deletion = credentials.ScramCredentialDeletion(name="al", mechanism=2)
        request = credentials.AlterUserScramCredentialsRequest(deletions=[deletion], upsertions=[])
        assert client.call(request, 0).results[0].error_code == 0
        assert client.call(DescribeUserScramCredentialsRequest(users=None), 0).results == []
