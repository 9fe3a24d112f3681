"""Delegation tokens: rights to create, renew, expire and see them, against a plain model; and records of the image."""

from __future__ import annotations

import hashlib
import hmac
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient import errors
from pyclient.acls import AclOperation, ResourceType
from pyclient.broker_embedded.config.broker_config import BrokerConfig
from pyclient.broker_embedded.controller import delegation_tokens as tokens
from pyclient.broker_embedded.controller import records
from pyclient.broker_embedded.controller.delegation_tokens import SECRET_KEY, Token, TokenLogins, TokenSettings
from pyclient.broker_embedded.controller.image import MetadataImage
from pyclient.broker_embedded.log.incremental_task import run_here

DAY = 86_400_000
SETTINGS = TokenSettings(b"secret", 7 * DAY, DAY)
NOW = 1_800_000_000_000
ALICE, BOB, CAROL = "User:alice", "User:bob", "User:carol"
PERIODS = st.sampled_from([-(2**63), -1, 0, 1, 1000, DAY, 8 * DAY, 2**63 - 1])


def new(settings: TokenSettings = SETTINGS, *, lifetime: int = -1, now: int = NOW, token_id: str = "t") -> Token:
    return tokens.create(
        settings, token_id, owner=ALICE, requester=CAROL, renewers=[BOB], max_lifetime_ms=lifetime, now=now
    )


def test_hmac_is_that_of_kafka() -> None:
    """HMAC-SHA512 of the token's id, with the bytes of the secret key's text."""
    token_id = "o0VvkHXeQBaYlsTN3NVPqQ"
    assert SETTINGS.hmac(token_id) == hmac.new(b"secret", token_id.encode(), hashlib.sha512).digest()


def test_settings_are_read_from_options_and_hide_the_secret() -> None:
    options = {SECRET_KEY: "s3cret", "delegation.token.max.lifetime.ms": "50", "delegation.token.expiry.time.ms": "20"}
    found = TokenSettings.of(BrokerConfig.build(options, data_dir=""))
    assert found == TokenSettings(b"s3cret", 50, 20)
    assert "s3cret" not in repr(found)
    for config in ({}, {SECRET_KEY: ""}):
        with pytest.raises(errors.DelegationTokenAuthDisabled):
            TokenSettings.of(BrokerConfig.build(config, data_dir=""))


@pytest.mark.parametrize(
    ("lifetime", "last", "expiry"),
    [
        (-1, 7 * DAY, DAY),
        (0, 7 * DAY, DAY),
        (1000, 1000, 1000),
        (2 * DAY, 2 * DAY, DAY),
        (8 * DAY, 7 * DAY, DAY),
        (2**63 - 1, 7 * DAY, DAY),
    ],
)
def test_new_token_has_the_shorter_lifetime(lifetime: int, last: int, expiry: int) -> None:
    assert new(lifetime=lifetime) == Token("t", ALICE, CAROL, (BOB,), NOW, NOW + last, NOW + expiry)


def test_renewer_must_be_a_user() -> None:
    assert tokens.renewer_of("User", "a:b") == "User:a:b"
    with pytest.raises(errors.InvalidPrincipalType, match="'Group'"):
        tokens.renewer_of("Group", "g")


@pytest.mark.parametrize("features", [{}, {"metadata.version": 13}])
def test_older_metadata_have_no_tokens(features: dict[str, int]) -> None:
    with pytest.raises(errors.UnsupportedVersion, match="14 has"):
        tokens.check_supported(features)
    tokens.check_supported({"metadata.version": 14})


def test_token_is_found_by_its_hmac() -> None:
    known = {name: new(token_id=name) for name in ("a", "b")}
    assert run_here(tokens.find(SETTINGS, known, SETTINGS.hmac("b"))) is known["b"]
    for wrong in (b"", bytes(64), SETTINGS.hmac("c"), SETTINGS.hmac("b")[:-1]):
        with pytest.raises(errors.DelegationTokenNotFound):
            run_here(tokens.find(SETTINGS, known, wrong))


def test_token_is_looked_for_in_steps_and_found_as_it_is_at_the_end() -> None:
    known = {name: new(token_id=name) for name in ("a", "b")}
    steps = tokens.find(SETTINGS, known, SETTINGS.hmac("b"))
    next(steps)  # "a" was compared
    renewed = known["b"] = known["b"]._replace(expiry_timestamp=NOW + 1)
    assert run_here(steps) is renewed
    steps = tokens.find(SETTINGS, known, SETTINGS.hmac("b"))
    next(steps)
    del known["b"]
    with pytest.raises(errors.DelegationTokenNotFound):
        run_here(steps)


def test_lifetimes_beyond_the_largest_time_end_with_it() -> None:
    longest = TokenSettings(b"k", 2**63 - 1, 2**63 - 1)
    token = new(longest)
    assert (token.max_timestamp, token.expiry_timestamp) == (2**63 - 1, 2**63 - 1)
    assert tokens.renew(longest, token, ALICE, -1, NOW).expiry_timestamp == 2**63 - 1
    assert tokens.expire(token, ALICE, 2**63 - 1, NOW) == token
    records.encode(tokens.record_of(token), 30)  # it can be written


@pytest.mark.parametrize(
    ("owner", "renewers", "text"),
    [
        (ALICE, [BOB] * 1001, "1001 renewers"),
        (ALICE, [BOB, "User:" + "é" * 16_382], "32769 bytes"),
        ("User:" + "x" * 32_763, [], "32768 bytes"),
    ],
)
def test_sizes_of_tokens_are_limited(owner: str, renewers: list[str], text: str) -> None:
    with pytest.raises(errors.InvalidRequest, match=text):
        tokens.check_size(owner, renewers)
    tokens.check_size("User:" + "x" * 32_762, [BOB] * 1000)


def test_expired_tokens_are_removed_in_parts() -> None:
    known = {str(number): new(token_id=str(number)) for number in range(1500)}
    known["valid"] = new(now=NOW + DAY)
    counts = []
    while removed := tokens.removals(known.values(), NOW + DAY + 1):
        counts.append(len(removed))
        for record in removed:
            del known[record.token_id]
    assert (counts, list(known)) == ([1000, 500], ["valid"])


@pytest.mark.parametrize("change", [lambda *asked: tokens.renew(SETTINGS, *asked), tokens.expire])
def test_only_owner_and_renewers_change_a_token_until_it_expires(change: Any) -> None:
    token = new()
    for principal in (ALICE, BOB):
        assert change(token, principal, 1000, NOW).expiry_timestamp == NOW + 1000
    with pytest.raises(errors.DelegationTokenOwnerMismatch):  # the requester, too
        change(token, CAROL, 1000, NOW)
    assert change(token, ALICE, 1000, NOW + DAY)
    with pytest.raises(errors.DelegationTokenExpired):
        change(token, ALICE, 1000, NOW + DAY + 1)


def test_expired_token_is_not_renewed_and_only_its_users_remove_it() -> None:
    """Kafka's order of checks: Renew checks the expiry first, Expire the principal."""
    token, late = new(), NOW + DAY + 1
    with pytest.raises(errors.DelegationTokenExpired):
        tokens.renew(SETTINGS, token, CAROL, 1000, late)
    for period in (-1, 1000):
        with pytest.raises(errors.DelegationTokenOwnerMismatch):
            tokens.expire(token, CAROL, period, late)
    assert tokens.expire(token, BOB, -1, late) is None


@pytest.mark.parametrize(
    ("principal", "owners", "rights", "seen"),
    [
        (ALICE, None, set(), True),
        (BOB, None, set(), True),
        (CAROL, None, set(), True),
        ("User:dave", None, set(), False),
        ("User:dave", None, {(AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN, "t")}, True),
        ("User:dave", None, {(AclOperation.DESCRIBE_TOKENS, ResourceType.USER, ALICE)}, True),
        ("User:dave", None, {(AclOperation.DESCRIBE_TOKENS, ResourceType.USER, BOB)}, False),
        (ALICE, set(), set(), False),
        (ALICE, {ALICE}, set(), True),
        (ALICE, {BOB}, set(), True),
        (ALICE, {CAROL, "User:x"}, set(), True),
        (ALICE, {"User:x"}, set(), False),
        ("User:dave", {"User:dave"}, {(AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN, "t")}, False),
    ],
)
def test_token_is_seen_by_its_users_and_by_rights(
    principal: str, owners: set[str] | None, rights: set[Any], seen: bool
) -> None:
    assert tokens.is_visible(new(), owners, principal, lambda *asked: asked in rights) is seen


@given(
    st.integers(1, 10 * DAY),
    st.integers(1, 10 * DAY),
    st.lists(st.tuples(st.sampled_from(["renew", "expire", "sweep"]), PERIODS, st.integers(0, 2 * DAY)), max_size=12),
)
def test_token_never_outlives_its_maximum(longest: int, usual: int, steps: list[tuple[str, int, int]]) -> None:
    settings = TokenSettings(b"k", longest, usual)
    image, now = MetadataImage(), NOW
    first = new(settings, now=now)
    image.apply(tokens.record_of(first))
    for what, period, passed in steps:
        now += passed
        token = image.delegation_tokens.get("t")
        if token is None:
            break
        ended = now > token.expiry_timestamp or now > NOW + longest
        assert token.is_over(now) is ended
        if what == "sweep":
            removals = tokens.removals([token], now)
            assert len(removals) == ended
            for record in removals:
                image.apply(record)
        elif ended and (what == "renew" or period >= 0):
            with pytest.raises(errors.DelegationTokenExpired):
                if what == "renew":
                    tokens.renew(settings, token, ALICE, period, now)
                else:
                    tokens.expire(token, BOB, period, now)
        elif what == "renew":
            renewed = tokens.renew(settings, token, ALICE, period, now)
            wanted = min(usual, period) if period > 0 else usual
            assert renewed.expiry_timestamp == min(NOW + longest, now + wanted)
            image.apply(tokens.record_of(renewed))
        else:
            changed = tokens.expire(token, BOB, period, now)
            assert (changed is None) is (period < 0)
            image.apply(tokens.removal_of(token) if changed is None else tokens.record_of(changed))
    left = image.delegation_tokens.get("t")
    if left is not None:
        assert left.max_timestamp == first.max_timestamp == NOW + longest
        assert left.issue_timestamp <= left.expiry_timestamp <= left.max_timestamp
        assert left._replace(expiry_timestamp=0) == first._replace(expiry_timestamp=0)


def test_records_are_framed_and_replayed() -> None:
    image = MetadataImage()
    token = new()
    image.apply(records.decode(records.encode(tokens.record_of(token), 30)))
    assert image.delegation_tokens == {"t": token}
    copied = image.copy()
    image.apply(records.decode(records.encode(tokens.removal_of(token), 30)))
    image.apply(records.decode(records.encode(tokens.removal_of(token), 30)))  # removed before
    assert (image.delegation_tokens, copied.delegation_tokens) == ({}, {"t": token})


def test_login_is_found_until_the_token_expires() -> None:
    now = NOW
    known = {"t": new()}
    logins = TokenLogins(BrokerConfig.build({SECRET_KEY: "secret"}, data_dir=""), known, lambda: now)
    assert logins.find("t") == (known["t"], SETTINGS.hmac("t"))
    assert logins.find("u") is None
    assert logins.seconds_left(known["t"]) == DAY / 1000
    now = NOW + DAY + 1
    assert logins.find("t") is None
    assert TokenLogins(BrokerConfig.build({}, data_dir=""), known, lambda: NOW).find("t") is None
