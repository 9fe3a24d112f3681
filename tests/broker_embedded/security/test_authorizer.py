"""The authorizer: the rules of Kafka's StandardAuthorizer one by one, and any ACLs against a naive model."""

from __future__ import annotations

import logging
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient.acls import (
    CLUSTER_NAME,
    AclBinding,
    AclFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
    acl_of,
)
from pyclient.broker_embedded.authorizer.standard import AuthorizerNotReady, StandardAuthorizer

ALICE, HOST = "User:alice", "10.0.0.1"
READ, WRITE, DESCRIBE, ALL = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.ALL
DENY, ALLOW = AclPermission.DENY, AclPermission.ALLOW
TOPIC = ResourceType.TOPIC


def acl(
    operation: AclOperation = READ,
    permission: AclPermission = ALLOW,
    name: str = "orders",
    *,
    principal: str = ALICE,
    host: str = "*",
    prefixed: bool = False,
    kind: ResourceType = TOPIC,
) -> AclBinding:
    pattern = PatternType.PREFIXED if prefixed else PatternType.LITERAL
    return AclBinding(kind, name, principal, operation, permission, pattern, host)


def may(
    acls: Iterable[AclBinding], operation: AclOperation = READ, name: str = "orders", *, everyone: bool = False
) -> bool:
    found = list(acls)
    return StandardAuthorizer(lambda: found, allow_everyone=everyone).may(ALICE, HOST, operation, TOPIC, name)


@pytest.mark.parametrize(
    ("acls", "operation", "allowed"),
    [
        ([], READ, False),
        ([acl()], READ, True),
        ([acl()], WRITE, False),
        ([acl(principal="User:bob")], READ, False),
        ([acl(principal="User:*")], READ, True),
        ([acl(principal="Group:alice")], READ, False),
        ([acl(host=HOST)], READ, True),
        ([acl(host="10.0.0.2")], READ, False),
        ([acl(name="order")], READ, False),
        ([acl(name="order", prefixed=True)], READ, True),
        ([acl(name="orders2", prefixed=True)], READ, False),
        ([acl(name="*")], READ, True),
        ([acl(name="*", prefixed=True)], READ, False),
        ([acl(ALL)], WRITE, True),
        ([acl(kind=ResourceType.GROUP)], READ, False),
        ([acl(), acl(permission=DENY)], READ, False),
        ([acl(ALL, DENY), acl()], READ, False),
        ([acl(name="*", permission=DENY), acl()], READ, False),
        ([acl(name="o", prefixed=True, permission=DENY), acl()], READ, False),
        ([acl(permission=DENY, principal="User:bob"), acl()], READ, True),
        *(([acl(each)], DESCRIBE, True) for each in (READ, WRITE, AclOperation.DELETE, AclOperation.ALTER)),
        ([acl(AclOperation.CREATE)], DESCRIBE, False),
        ([acl(AclOperation.ALTER_CONFIGS)], AclOperation.DESCRIBE_CONFIGS, True),
        ([acl(AclOperation.ALTER_CONFIGS)], DESCRIBE, False),
        ([acl(READ, DENY), acl(DESCRIBE)], DESCRIBE, True),
        ([acl(READ), acl(DESCRIBE, DENY)], DESCRIBE, False),
        ([acl(READ), acl(DESCRIBE, DENY)], READ, True),
    ],
)
def test_acls_decide(acls: list[AclBinding], operation: AclOperation, allowed: bool) -> None:
    assert may(acls, operation) is allowed


def test_option_decides_without_an_acl_for_the_resource() -> None:
    assert may([acl(name="other")], everyone=True)
    assert not may([acl(principal="User:bob")], everyone=True)
    assert not may([acl(permission=DENY)], everyone=True)


def test_super_users_may_do_everything() -> None:
    authorizer = StandardAuthorizer(lambda: [acl(ALL, DENY)], super_users=[ALICE])
    assert authorizer.may(ALICE, HOST, WRITE, TOPIC, "orders")
    assert not authorizer.may("User:bob", HOST, WRITE, TOPIC, "orders")


def test_changed_acls_are_read_again() -> None:
    acls: list[AclBinding] = []
    authorizer = StandardAuthorizer(lambda: acls, lambda: len(acls))
    assert not authorizer.may(ALICE, HOST, READ, TOPIC, "orders")
    acls.append(acl())
    assert authorizer.may(ALICE, HOST, READ, TOPIC, "orders")


def test_decisions_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "pyclient.authorizer"):
        assert may([acl()]) and not may([acl()], WRITE)
    allowed, denied = caplog.records
    assert (allowed.levelname, denied.levelname) == ("DEBUG", "INFO")
    assert denied.getMessage().startswith(
        "Principal = User:alice is Denied operation = WRITE from host = 10.0.0.1 on resource = TOPIC:LITERAL:orders"
    )


@pytest.mark.parametrize(
    ("acls", "allowed"),
    [
        ([], False),
        ([acl(WRITE)], True),
        ([acl(WRITE, name="*")], True),
        ([acl(WRITE, name="o", prefixed=True)], True),
        ([acl(WRITE, DENY, "*"), acl(WRITE)], False),
        ([acl(WRITE, DENY), acl(WRITE)], False),
        ([acl(WRITE, DENY, "or", prefixed=True), acl(WRITE)], False),
        ([acl(WRITE, DENY, "or", prefixed=True), acl(WRITE, name="o", prefixed=True)], True),
        ([acl(WRITE, DENY), acl(WRITE, name="o", prefixed=True)], True),
    ],
)
def test_a_right_to_any_topic(acls: list[AclBinding], allowed: bool) -> None:
    assert StandardAuthorizer(lambda: acls).may_any(ALICE, HOST, WRITE, TOPIC) is allowed


def test_operations_are_bits() -> None:
    authorizer = StandardAuthorizer(lambda: [acl(READ)])
    assert authorizer.operations(ALICE, HOST, 0b1101_1111_1000, TOPIC, "orders") == 1 << READ | 1 << DESCRIBE


def test_texts_become_acls() -> None:
    assert acl_of(("topic", "orders", ALICE, "read")) == acl()
    assert acl_of(("Topic", "o", ALICE, "write", "deny", "prefixed", HOST)) == acl(
        WRITE, DENY, "o", prefixed=True, host=HOST
    )
    assert acl_of(tuple(acl())) == acl()
    for wrong in ("topic", ("topic", "t", ALICE), ("topics", "t", ALICE, "read"), ("topic", "t", "alice", "read")):
        with pytest.raises(ValueError, match=r"is n|principal"):
            acl_of(wrong)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (AclFilter(), True),
        (AclFilter(name="orders"), True),
        (AclFilter(name="order"), False),
        (AclFilter(ResourceType.GROUP), False),
        (AclFilter(principal="User:bob"), False),
        (AclFilter(operation=WRITE), False),
        (AclFilter(permission=DENY), False),
        (AclFilter(pattern=PatternType.PREFIXED), False),
        (AclFilter(pattern=PatternType.LITERAL, name="orders", host="*"), True),
        (AclFilter(host=HOST), False),
    ],
)
def test_filters_select(wanted: AclFilter, found: bool) -> None:
    assert wanted.matches(acl()) is found


def test_a_filter_by_match_finds_what_applies_to_a_resource() -> None:
    wanted = AclFilter(name="orders", pattern=PatternType.MATCH)
    assert all(wanted.matches(each) for each in (acl(), acl(name="*"), acl(name="ord", prefixed=True)))
    assert not any(wanted.matches(each) for each in (acl(name="ord"), acl(name="orders2", prefixed=True)))


# -- any ACLs

NAMES = st.text("ab*", min_size=1, max_size=3)
ACLS = st.builds(
    AclBinding,
    st.sampled_from([TOPIC, ResourceType.GROUP]),
    NAMES,
    st.sampled_from([ALICE, "User:bob", "User:*"]),
    st.sampled_from(list(AclOperation)[2:]),
    st.sampled_from([DENY, ALLOW]),
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    st.sampled_from(["*", HOST, "10.0.0.2"]),
)


def naive(acls: list[AclBinding], operation: AclOperation, name: str, everyone: bool) -> bool:
    """Decide as Kafka's documentation says, one ACL after the other."""

    def about(each: AclBinding) -> bool:
        if each.resource_type is not TOPIC:
            return False
        if each.pattern is PatternType.PREFIXED:
            return name.startswith(each.name)
        return each.name in ("*", name)

    implied = {
        DESCRIBE: {READ, WRITE, AclOperation.DELETE, AclOperation.ALTER},
        AclOperation.DESCRIBE_CONFIGS: {AclOperation.ALTER_CONFIGS},
    }.get(operation, set())
    of_resource = [each for each in acls if about(each)]
    if not of_resource:
        return everyone
    mine = [each for each in of_resource if each.principal in (ALICE, "User:*") and each.host in ("*", HOST)]
    if any(each.permission is DENY and each.operation in (ALL, operation) for each in mine):
        return False
    return any(each.permission is ALLOW and each.operation in {ALL, operation, *implied} for each in mine)


@given(st.lists(ACLS, max_size=12), st.sampled_from(list(AclOperation)[3:]), NAMES, st.booleans())
def test_any_acls_decide_as_the_model(
    acls: list[AclBinding], operation: AclOperation, name: str, everyone: bool
) -> None:
    assert may(acls, operation, name, everyone=everyone) is naive(acls, operation, name, everyone)


@given(st.lists(ACLS, max_size=8), NAMES)
def test_a_right_to_one_topic_is_a_right_to_any(acls: list[AclBinding], name: str) -> None:
    authorizer = StandardAuthorizer(lambda: acls)
    writers = [each for each in acls if each.operation in (WRITE, ALL) and each.permission is ALLOW]
    if not writers:
        assert not authorizer.may_any(ALICE, HOST, WRITE, TOPIC)
    elif not any(each.permission is DENY for each in acls) and authorizer.may(ALICE, HOST, WRITE, TOPIC, name):
        assert authorizer.may_any(ALICE, HOST, WRITE, TOPIC)


def test_the_cluster_has_one_name() -> None:
    cluster = acl(AclOperation.CREATE, name=CLUSTER_NAME, kind=ResourceType.CLUSTER)
    authorizer = StandardAuthorizer(lambda: [cluster])
    assert authorizer.may(ALICE, HOST, AclOperation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME)


def test_only_super_users_get_a_decision_before_the_acls_are_loaded() -> None:
    loaded: list[bool] = []
    authorizer = StandardAuthorizer(
        lambda: [acl(permission=DENY)],
        super_users=["User:root"],
        allow_everyone=True,
        is_loaded=lambda: bool(loaded),
    )
    assert authorizer.may("User:root", HOST, READ, TOPIC, "orders")
    for ask in (
        lambda: authorizer.may(ALICE, HOST, READ, TOPIC, "orders"),
        lambda: authorizer.may_any(ALICE, HOST, READ, TOPIC),
        lambda: authorizer.operations(ALICE, HOST, 1 << READ, TOPIC, "orders"),
    ):
        with pytest.raises(AuthorizerNotReady, match="the ACLs are not read yet"):
            ask()
    loaded.append(True)
    assert not authorizer.may(ALICE, HOST, READ, TOPIC, "orders")
    assert authorizer.may(ALICE, HOST, WRITE, TOPIC, "others")
