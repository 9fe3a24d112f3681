"""Delegation tokens over the wire: managed by an admin client, and logged in with, on one node and on three."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from pyclient import Admin, AsyncAdmin, Consumer, Producer, errors
from pyclient.admin import DelegationToken
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.broker_embedded.config.broker_config import BrokerConfig
from pyclient.broker_embedded.config.listeners import INTER_BROKER_USER
from pyclient.broker_embedded.controller.delegation_tokens import SECRET_KEY, Token, TokenLogins
from pyclient.broker_embedded.controller.forwarding import principal_bytes, principal_in
from pyclient.broker_embedded.network.sasl import ScramServer, Users
from pyclient.net.sasl import scram
from pyclient.protocol import framing
from pyclient.protocol.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from pyclient.protocol.messages.envelope import EnvelopeRequest
from pyclient.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from pyclient.protocol.messages.metadata import MetadataRequest
from pyclient.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from pyclient.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.broker_embedded.conftest import RawClient
from tests.broker_embedded.security.tokens import CREATE, DESCRIBE, log_in, password_of, requests_about
from tests.waiting import PATIENCE, until

USERS = {"alice": "hers", "bob": "his", "carol": "her own"}
OPTIONS = {"connection.failed.authentication.delay.ms": "20"}
ALICE, BOB, CAROL = (f"User:{name}" for name in USERS)
DAY = 86_400_000
NOT_ALLOWED = errors.DelegationTokenRequestNotAllowed.code


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(security="SASL_PLAINTEXT", users=USERS, config=OPTIONS) as cluster:
        yield cluster


@contextlib.contextmanager
def admin_of(cluster: EmbeddedCluster, user: str = "alice") -> Iterator[Admin]:
    with Admin(cluster.bootstrap_servers, **cluster.client_options(user)) as admin:
        yield admin


def options_of(token: DelegationToken, mechanism: Any = "SCRAM-SHA-256") -> dict[str, Any]:
    return {"security_protocol": "SASL_PLAINTEXT", **token.client_options(mechanism)}


@contextlib.contextmanager
def connected(address: str, user: str) -> Iterator[RawClient]:
    """Yield a raw client of one broker, which has logged in with the user's password."""
    client = RawClient(address)
    assert log_in(client, user, USERS[user]).error_code == 0
    yield client
    client.close()


@contextlib.contextmanager
def connected_by(address: str, token: DelegationToken) -> Iterator[RawClient]:
    """Yield a raw client of one broker, which has logged in by a token."""
    client = RawClient(address)
    assert log_in(client, token.token_id, password_of(token), by_token=True).error_code == 0
    yield client
    client.close()


# -- the admin client


def test_token_is_created_described_renewed_and_removed(cluster: EmbeddedCluster) -> None:
    with admin_of(cluster) as admin, admin_of(cluster, "bob") as renewer:
        token = admin.create_delegation_token([BOB], max_lifetime_ms=3 * DAY)
        assert (token.owner, token.requester, token.renewers) == (ALICE, ALICE, (BOB,))
        assert token.max_timestamp_ms == token.issue_timestamp_ms + 3 * DAY
        assert token.expiry_timestamp_ms == token.issue_timestamp_ms + DAY
        assert (len(token.token_id), len(token.hmac)) == (22, 64)
        assert admin.describe_delegation_tokens([ALICE]) == [token]
        assert renewer.describe_delegation_tokens([BOB]) == [token]
        carol_s = {each.token_id for each in admin.describe_delegation_tokens([CAROL])}
        assert admin.describe_delegation_tokens([]) == []
        assert token.token_id not in carol_s
        soon = renewer.renew_delegation_token(token.hmac, renew_period_ms=60_000)
        assert token.issue_timestamp_ms < soon < token.expiry_timestamp_ms
        assert admin.describe_delegation_tokens([ALICE])[0].expiry_timestamp_ms == soon
        later = admin.expire_delegation_token(token.hmac, expiry_period_ms=2 * DAY)
        assert later > token.expiry_timestamp_ms
        assert token.issue_timestamp_ms <= admin.expire_delegation_token(token.hmac) < soon
        assert admin.describe_delegation_tokens([ALICE]) == []
        with pytest.raises(errors.DelegationTokenNotFound, match="no token has this HMAC"):
            admin.renew_delegation_token(token.hmac)


def test_token_of_another_user_is_not_changed(cluster: EmbeddedCluster) -> None:
    with admin_of(cluster) as admin, admin_of(cluster, "carol") as other:
        token = admin.create_delegation_token([BOB])
        for call in (other.renew_delegation_token, other.expire_delegation_token):
            with pytest.raises(errors.DelegationTokenOwnerMismatch):
                call(token.hmac)
        admin.expire_delegation_token(token.hmac)


def test_impossible_principals_are_refused(cluster: EmbeddedCluster) -> None:
    with admin_of(cluster) as admin:
        with pytest.raises(errors.InvalidPrincipalType, match="of type User"):
            admin.create_delegation_token(["Group:g"])
        calls: list[Any] = [
            lambda: admin.create_delegation_token("User:bob"),
            lambda: admin.create_delegation_token(["bob"]),
            lambda: admin.create_delegation_token(owner=":bob"),
            lambda: admin.describe_delegation_tokens([1]),  # type: ignore[list-item]  # the mistake
        ]
        for call in calls:
            with pytest.raises(errors.ConfigError, match="give principals like User:alice"):
                call()


def test_async_client_manages_tokens(cluster: EmbeddedCluster) -> None:
    async def main() -> None:
        async with AsyncAdmin(cluster.bootstrap_servers, **cluster.client_options("carol")) as admin:
            token = await admin.create_delegation_token()
            assert await admin.describe_delegation_tokens([CAROL]) == [token]
            assert await admin.renew_delegation_token(token.hmac) >= token.expiry_timestamp_ms
            assert await admin.expire_delegation_token(token.hmac) < token.expiry_timestamp_ms

    asyncio.run(main())


@pytest.mark.parametrize("version", [1, 2, 3])
def test_older_versions_name_the_owner_only(cluster: EmbeddedCluster, version: int) -> None:
    with connected(cluster.bootstrap_servers, "carol") as client:
        renewers = [CreatableRenewers(principal_type="User", principal_name="bob")]
        created = client.call(CreateDelegationTokenRequest(renewers=renewers, max_lifetime_ms=-1), version)
        assert (created.error_code, created.principal_name) == (0, "carol")
        [described] = client.call(DESCRIBE, version).tokens
        for answer in (created, described):
            assert answer.token_requester_principal_name == ("carol" if version == 3 else "")
        assert (described.hmac, described.renewers[0].principal_name) == (created.hmac, "bob")
        client.call(ExpireDelegationTokenRequest(hmac=created.hmac, expiry_time_period_ms=-1), min(version, 2))


# -- logging in


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_client_with_a_token_is_its_owner(cluster: EmbeddedCluster, mechanism: str) -> None:
    with admin_of(cluster) as admin:
        token = admin.create_delegation_token()
        options = options_of(token, mechanism)
        topic = f"by-{mechanism}"
        with Producer(cluster.bootstrap_servers, **options) as producer:
            producer.send(topic, b"1").result(60)
        with Consumer(
            topic, bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest", **options
        ) as consumer:
            assert [record.value for record in consumer.poll(60)] == [b"1"]
        admin.expire_delegation_token(token.hmac)


def test_java_configuration_with_a_token_is_understood(cluster: EmbeddedCluster) -> None:
    with admin_of(cluster) as admin:
        token = admin.create_delegation_token()
        module = "org.apache.kafka.common.security.scram.ScramLoginModule required"
        config = {
            "bootstrap.servers": cluster.bootstrap_servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": f'{module} username="{token.token_id}" password="{password_of(token)}" '
            'tokenauth="true";',
        }
        with Admin(config=config) as by_token:
            by_token.list_topics()
        admin.expire_delegation_token(token.hmac)


def test_client_with_a_token_does_not_manage_tokens(cluster: EmbeddedCluster) -> None:
    with admin_of(cluster) as admin:
        token = admin.create_delegation_token()
        with connected_by(cluster.bootstrap_servers, token) as client:
            for request, version in requests_about(token.hmac):
                assert client.call(request, version).error_code == NOT_ALLOWED
        with (
            Admin(cluster.bootstrap_servers, **options_of(token)) as by_token,
            pytest.raises(errors.DelegationTokenRequestNotAllowed, match="logged in by a token"),
        ):
            by_token.create_delegation_token()
        assert admin.describe_delegation_tokens([ALICE]) == [token]
        admin.expire_delegation_token(token.hmac)


def test_token_is_no_user_and_a_user_no_token(cluster: EmbeddedCluster) -> None:
    with admin_of(cluster) as admin:
        token = admin.create_delegation_token()
        for user, password, by_token in (
            (token.token_id, password_of(token), False),
            ("alice", USERS["alice"], True),
            (token.token_id, USERS["alice"], True),
            (f"{token.token_id[:-1]}_", password_of(token), True),
        ):
            client = RawClient(cluster.bootstrap_servers)
            answer = log_in(client, user, password, by_token=by_token)
            assert answer.error_code == errors.SaslAuthenticationFailed.code
            assert answer.error_message == (
                "Authentication failed during authentication due to invalid credentials with SASL mechanism "
                "SCRAM-SHA-256"
            )
            client.close()
        admin.expire_delegation_token(token.hmac)


def test_keys_are_derived_once_and_only_for_tokens_that_exist() -> None:
    now = 0
    tokens = {"known": Token("known", ALICE, ALICE, (), 0, DAY, DAY)}
    logins = TokenLogins(BrokerConfig.build({SECRET_KEY: "k"}, data_dir=""), tokens, lambda: now)
    users = Users({}, {}, None, logins)

    def started(token_id: str, mechanism: str = "SCRAM-SHA-256") -> ScramServer:
        server = ScramServer(mechanism, users, "nonce")
        assert not server.needs_keys
        server.next(f"n,,n={token_id},r=theirs,tokenauth=true".encode())
        return server

    assert not started("unknown").needs_keys
    first = started("known")
    assert first.needs_keys
    first.keep_keys(first.derive_keys()())
    assert not first.needs_keys
    assert not started("known").needs_keys  # it has the keys
    assert started("known", "SCRAM-SHA-512").needs_keys
    now = DAY + 1
    assert not started("known", "SCRAM-SHA-512").needs_keys


def test_others_are_served_while_the_keys_of_a_token_are_derived(
    cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    derive, begun, may_end = scram.keys_of, threading.Event(), threading.Event()

    def wait(*given: Any) -> scram.Keys:
        begun.set()
        assert may_end.wait(PATIENCE)
        return derive(*given)

    with admin_of(cluster) as admin:
        token = admin.create_delegation_token()
    with connected(cluster.bootstrap_servers, "bob") as other:
        monkeypatch.setattr(scram, "keys_of", wait)
        with contextlib.ExitStack() as stack:
            login = threading.Thread(
                target=lambda: stack.enter_context(connected_by(cluster.bootstrap_servers, token)), daemon=True
            )
            login.start()
            try:
                assert begun.wait(PATIENCE)
                assert other.call(MetadataRequest(topics=None), 12).cluster_id
            finally:
                may_end.set()
                login.join(PATIENCE)
            assert not login.is_alive()


def test_removed_token_is_refused_with_what_to_check(cluster: EmbeddedCluster) -> None:
    with admin_of(cluster) as admin:
        token = admin.create_delegation_token()
        admin.expire_delegation_token(token.hmac)
    with (
        Admin(cluster.bootstrap_servers, **options_of(token)) as by_token,
        pytest.raises(errors.ClusterUnreachable, match=r"as delegation token .* that the delegation token has not exp"),
    ):
        by_token.list_topics()


# -- the end of a token


def test_session_ends_with_its_token_which_is_removed_later() -> None:
    config = {**OPTIONS, "delegation.token.expiry.time.ms": "60000"}
    with (
        EmbeddedCluster(security="SASL_PLAINTEXT", users=USERS, config=config) as cluster,
        admin_of(cluster) as admin,
    ):
        token, other = admin.create_delegation_token(), admin.create_delegation_token()
        client = RawClient(cluster.bootstrap_servers)
        answer = log_in(client, token.token_id, password_of(token), by_token=True)
        assert 0 < answer.session_lifetime_ms <= 60_000
        assert client.call(MetadataRequest(topics=None), 12).cluster_id
        cluster.advance_time(61)
        client.send(MetadataRequest(topics=None), 12)
        assert client.is_closed()
        client.close()
        late = RawClient(cluster.bootstrap_servers)
        answer = log_in(late, token.token_id, password_of(token), by_token=True)
        assert answer.error_code == errors.SaslAuthenticationFailed.code
        late.close()
        with pytest.raises(errors.DelegationTokenExpired):
            admin.renew_delegation_token(token.hmac)
        assert {each.token_id for each in admin.describe_delegation_tokens()} == {token.token_id, other.token_id}
        cluster.advance_time(3600)
        until(lambda: admin.describe_delegation_tokens() == [])
        with pytest.raises(errors.DelegationTokenNotFound):
            admin.renew_delegation_token(token.hmac)


def test_session_of_a_renewed_token_is_renewed() -> None:
    config = {**OPTIONS, "delegation.token.expiry.time.ms": "60000"}
    with (
        EmbeddedCluster(security="SASL_PLAINTEXT", users=USERS, config=config) as cluster,
        admin_of(cluster) as admin,
    ):
        token = admin.create_delegation_token()
        with connected_by(cluster.bootstrap_servers, token) as client:
            cluster.advance_time(40)
            admin.renew_delegation_token(token.hmac)
            answer = log_in(client, token.token_id, password_of(token), by_token=True)
            assert 40_000 < answer.session_lifetime_ms <= 60_000
            cluster.advance_time(40)
            assert client.call(MetadataRequest(topics=None), 12).cluster_id


# -- where there are no tokens


def test_tokens_need_a_secret_key() -> None:
    config = {"delegation.token.secret.key": ""}
    with (
        EmbeddedCluster(security="SASL_PLAINTEXT", users=USERS, config=config) as cluster,
        connected(cluster.bootstrap_servers, "alice") as client,
    ):
        for request, version in requests_about(bytes(64)):
            assert client.call(request, version).error_code == errors.DelegationTokenAuthDisabled.code
        with (
            admin_of(cluster) as admin,
            pytest.raises(errors.DelegationTokenAuthDisabled, match=r"no delegation\.token\.secret\.key"),
        ):
            admin.create_delegation_token()


def test_anonymous_clients_do_not_manage_tokens() -> None:
    with EmbeddedCluster(config={"delegation.token.secret.key": "k"}) as cluster:
        client = RawClient(cluster.bootstrap_servers)
        answers = [client.call(*asked) for asked in requests_about(bytes(64))]
        assert [answer.error_code for answer in answers] == [NOT_ALLOWED] * 4
        assert [answers[0].issue_timestamp_ms, answers[1].expiry_timestamp_ms] == [-1, -1]
        client.close()


def test_clients_with_certificates_manage_tokens() -> None:
    config = {"delegation.token.secret.key": "k", "ssl.client.auth": "requested"}
    with EmbeddedCluster(security="SSL", users=["alice"], config=config) as cluster:
        options = cluster.client_options("alice")
        with Admin(cluster.bootstrap_servers, **options) as admin:
            assert admin.create_delegation_token().owner == ALICE
        del options["ssl_certfile"]
        with (
            Admin(cluster.bootstrap_servers, **options) as anonymous,
            pytest.raises(errors.DelegationTokenRequestNotAllowed),
        ):
            anonymous.describe_delegation_tokens()


# -- rights


def test_tokens_of_others_need_rights() -> None:
    config = {**OPTIONS, "super.users": "User:carol"}
    with (
        EmbeddedCluster(security="SASL_PLAINTEXT", users=USERS, acls=[], config=config) as cluster,
        admin_of(cluster) as alice,
        admin_of(cluster, "bob") as bob,
        admin_of(cluster, "carol") as root,
    ):
        own = alice.create_delegation_token()  # needs no right
        assert alice.describe_delegation_tokens() == [own]
        assert bob.describe_delegation_tokens() == []
        with pytest.raises(errors.DelegationTokenAuthorizationFailed, match="CREATE_TOKENS"):
            bob.create_delegation_token(owner=ALICE)
        root.create_acls([("user", ALICE, BOB, "create_tokens")])
        given = bob.create_delegation_token([CAROL], owner=ALICE)
        assert (given.owner, given.requester) == (ALICE, BOB)
        assert bob.describe_delegation_tokens() == [given]
        with pytest.raises(errors.DelegationTokenOwnerMismatch):
            bob.renew_delegation_token(given.hmac)
        root.create_acls([("delegation_token", own.token_id, BOB, "describe")])
        assert {each.token_id for each in bob.describe_delegation_tokens()} == {own.token_id, given.token_id}
        third = alice.create_delegation_token()
        root.create_acls([("user", ALICE, BOB, "describe_tokens")])
        assert third in bob.describe_delegation_tokens()
        with (
            Admin(cluster.bootstrap_servers, **options_of(given)) as by_token,
            pytest.raises(errors.ClusterAuthorizationFailed),
        ):
            by_token.describe_acls()  # the token has the rights of its owner


# -- restarts, and several nodes


def test_tokens_survive_a_restart_and_a_snapshot(tmp_path: Any) -> None:
    config = {**OPTIONS, "metadata.log.max.record.bytes.between.snapshots": "1"}
    with EmbeddedCluster(security="SASL_PLAINTEXT", users=USERS, config=config, data_dir=tmp_path) as cluster:
        with admin_of(cluster) as admin:
            token = admin.create_delegation_token([BOB])
            admin.expire_delegation_token(admin.create_delegation_token().hmac)
        cluster.restart()
        with admin_of(cluster) as admin:
            assert admin.describe_delegation_tokens() == [token]
    with EmbeddedCluster(security="SASL_PLAINTEXT", users=USERS, config=config, data_dir=tmp_path) as cluster:
        with Admin(cluster.bootstrap_servers, **options_of(token)) as by_token:
            by_token.list_topics()
        with admin_of(cluster, "bob") as renewer:
            assert renewer.renew_delegation_token(token.hmac) >= token.expiry_timestamp_ms


def test_three_nodes_know_a_token_that_one_was_asked_for() -> None:
    with EmbeddedCluster(brokers=3, security="SASL_PLAINTEXT", users=USERS, config=OPTIONS) as cluster:
        active = cluster.controller_id
        others = [broker for broker in cluster.brokers if broker.id != active]
        with connected(others[0].address, "alice") as client:  # the request is forwarded
            created = client.call(CREATE, 3)
            assert (created.error_code, created.principal_name) == (0, "alice")
            unknown = CreateDelegationTokenRequest(
                renewers=[CreatableRenewers(principal_type="Group", principal_name="g")], max_lifetime_ms=-1
            )
            assert client.call(unknown, 3).error_code == errors.InvalidPrincipalType.code
        with admin_of(cluster) as admin:
            [token] = until(admin.describe_delegation_tokens)  # another node may be asked the next time
        assert (token.token_id, token.hmac) == (created.token_id, created.hmac)
        for broker in cluster.brokers:
            with connected(broker.address, "alice") as client:
                until(lambda client=client: client.call(DESCRIBE, 3).tokens)  # type: ignore[misc]
            with connected_by(broker.address, token) as client:
                assert client.call(MetadataRequest(topics=None), 12).cluster_id
                for request, version in requests_about(token.hmac):
                    assert client.call(request, version).error_code == NOT_ALLOWED
        assert active is not None
        cluster.kill(active)
        with admin_of(cluster) as admin:
            assert admin.renew_delegation_token(token.hmac) >= token.expiry_timestamp_ms
            with connected_by(others[1].address, token) as client:
                assert client.call(MetadataRequest(topics=None), 12).cluster_id
            cluster.start(active)
            admin.expire_delegation_token(token.hmac)
        for broker in cluster.brokers:
            with connected(broker.address, "alice") as client:
                until(lambda client=client: not client.call(DESCRIBE, 3).tokens)  # type: ignore[misc]


def controller_client(cluster: EmbeddedCluster) -> RawClient:
    """Return a raw client of the active controller's listener for other nodes; it has sent nothing."""
    active = until(lambda: cluster.controller_id, "no controller is active")
    return RawClient(f"127.0.0.1:{cluster.node(active).config.listeners.controller.port}")


def forwarded(cluster: EmbeddedCluster, *, by_token: bool) -> int:
    """Forward the creation of a token as a broker does, and return the error code of the answer inside."""
    secret = cluster.brokers[0].config.users[INTER_BROKER_USER]
    envelope = EnvelopeRequest(
        request_data=b"".join(framing.encode_request(CREATE, 3, 1, "c"))[4:],
        request_principal=principal_bytes(ALICE, token_authenticated=by_token),
        client_host_address=bytes((127, 0, 0, 1)),
    )

    answers: list[Any] = []

    def is_answered() -> bool:
        client = controller_client(cluster)
        client.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        login = SaslAuthenticateRequest(auth_bytes=f"\0{INTER_BROKER_USER}\0{secret}".encode())
        assert client.call(login, 2).error_code == 0
        answered = client.call(envelope, 0)
        client.close()
        assert answered.error_code in (0, errors.NotController.code)  # another node may have become the controller
        answers.append(answered)
        return bool(answered.error_code == 0)

    until(is_answered)
    data = memoryview(answers[-1].response_data)
    return int(framing.decode_response(CreateDelegationTokenResponse, 3, data)[1].error_code)


def test_controller_refuses_a_forwarded_request_of_a_token_itself() -> None:
    """The broker that the client asks refuses it, too; this one has not."""
    with EmbeddedCluster(brokers=3, security="SASL_PLAINTEXT", users=USERS, config=OPTIONS) as cluster:
        assert forwarded(cluster, by_token=True) == NOT_ALLOWED
        assert forwarded(cluster, by_token=False) == 0


def test_controllers_listener_refuses_login_by_token() -> None:
    with (
        EmbeddedCluster(brokers=3, security="SASL_PLAINTEXT", users=USERS, config=OPTIONS) as cluster,
        admin_of(cluster) as admin,
    ):
        token = admin.create_delegation_token()
        client = controller_client(cluster)
        answer = log_in(client, token.token_id, password_of(token), by_token=True)
        assert answer.error_code == errors.SaslAuthenticationFailed.code
        client.close()


def test_envelope_says_whether_the_client_logged_in_by_a_token() -> None:
    for by_token in (False, True):
        data = principal_bytes("User:a:b", token_authenticated=by_token)
        assert principal_in(data) == ("User:a:b", by_token)
