"""Delegation tokens of a real Kafka and of our broker: the same answers, and each other's clients and tools."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from pyclient import Admin, Consumer, Producer, errors
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.protocol.messages.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from pyclient.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from pyclient.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from pyclient.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from tests.broker_embedded.conftest import RawClient
from tests.broker_embedded.security.tokens import DESCRIBE, log_in, password_of, requests_about
from tests.kafka import tools
from tests.kafka.needs import skip_without_kafka
from tests.kafka.runner import RealKafka, free_ports
from tests.waiting import until

USERS: Final = {"alice": "hers", "bob": "his", "carol": "her-own"}
MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule required"
DAY: Final = 86_400_000
SECRET: Final = {"delegation.token.secret.key": "secret"}


class Place(NamedTuple):
    """The addresses of a broker's listeners with and without SASL."""

    login: str
    open: str


@pytest.fixture(scope="module")
def kafka() -> Iterator[Place]:
    skip_without_kafka()
    [port] = free_ports(1)
    settings = {
        "listeners": f"{{default}},SASL://127.0.0.1:{port}",
        "advertised.listeners": f"{{default}},SASL://127.0.0.1:{port}",
        "listener.security.protocol.map": "{default},SASL:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        **{f"listener.name.sasl.{name.lower()}.sasl.jaas.config": f"{MODULE};" for name in MECHANISMS},
        **SECRET,
    }
    with RealKafka(heap="512M", settings=settings) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap_servers})
        for kind in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            for user, password in USERS.items():
                wanted = UserScramCredentialUpsertion(user, ScramCredentialInfo(kind, 4096), password.encode())
                for done in admin.alter_user_scram_credentials([wanted]).values():
                    done.result(60)
        yield Place(f"127.0.0.1:{port}", running.bootstrap_servers)


@pytest.fixture(scope="module")
def ours() -> Iterator[Place]:
    settings = {
        "listeners": "SASL://127.0.0.1:0,OPEN://127.0.0.1:0",
        "listener.security.protocol.map": "SASL:SASL_PLAINTEXT,OPEN:PLAINTEXT",
        "inter.broker.listener.name": "OPEN",
        **SECRET,
    }
    with EmbeddedCluster(users=USERS, config=settings) as cluster:
        ports = {each.name: each.port for each in cluster.brokers[0].config.listeners.clients}
        yield Place(f"127.0.0.1:{ports['SASL']}", f"127.0.0.1:{ports['OPEN']}")


@pytest.fixture(params=["kafka", "ours"])
def place(request: pytest.FixtureRequest) -> Place:
    found: Place = request.getfixturevalue(request.param)
    return found


def options_of(user: str) -> dict[str, Any]:
    sasl = {"sasl_mechanism": MECHANISMS[0], "sasl_username": user, "sasl_password": USERS[user]}
    return {"security_protocol": "SASL_PLAINTEXT", **sasl}


def logged_in(address: str, user: str) -> RawClient:
    client = RawClient(address)
    assert log_in(client, user, USERS[user]).error_code == 0
    return client


def times(answer: Any) -> tuple[int, ...]:
    """Return the times in an answer: in relation to the first of them, if that is one."""
    names = ("issue_timestamp_ms", "expiry_timestamp_ms", "max_timestamp_ms")
    found = [getattr(answer, name) for name in names if hasattr(answer, name)]
    return tuple(each - found[0] for each in found) if found[0] > 0 and len(found) > 1 else tuple(found)


class Clients(NamedTuple):
    """Clients that have logged in by password: the owner of the tokens, their renewer, and another user."""

    owner: RawClient
    renewer: RawClient
    other: RawClient


def principals(kind: str, name: str) -> list[CreatableRenewers]:
    return [CreatableRenewers(principal_type=kind, principal_name=name)]


def create(client: RawClient, lifetime: int = -1, **fields: Any) -> Any:
    request = CreateDelegationTokenRequest(**{"renewers": [], "max_lifetime_ms": lifetime, **fields})
    return client.call(request, 3)


def change(client: RawClient, period: int, hmac: bytes, *, expire: bool = False) -> Any:
    if expire:
        return client.call(ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period), 2)
    return client.call(RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period), 2)


def answers(place: Place) -> Iterator[tuple[str, Any]]:
    """Yield the answers of a broker to requests about tokens, without what differs each time."""
    clients = Clients(*(logged_in(place.login, user) for user in USERS))
    yield from answers_to_creations(clients.owner)
    token = create(clients.owner, renewers=principals("User", "bob"))
    until(lambda: is_known(clients.owner, token.token_id))  # Kafka's controller answers before its cache has the token
    yield from answers_to_changes(clients, token)
    yield from answers_to_descriptions(clients, token)
    yield from answers_by_login(place, token)
    yield from answers_to_removals(clients.owner, token)
    yield from answers_about_expired_token(clients)
    for client in clients:
        client.close()


def answers_to_creations(client: RawClient) -> Iterator[tuple[str, Any]]:
    def created(*given: Any, **fields: Any) -> Any:
        answer = create(client, *given, **fields)
        owner = answer.principal_type, answer.principal_name
        requester = answer.token_requester_principal_type, answer.token_requester_principal_name
        return answer.error_code, owner, requester, times(answer), len(answer.token_id), len(answer.hmac)

    for lifetime in (-(2**63), -1, 0, 1000, 2 * DAY, 30 * DAY):
        yield f"lifetime {lifetime}", created(lifetime)
    yield "renewer of another type", created(renewers=principals("Group", "g"))
    yield "renewer without a name", created(renewers=principals("User", ""))
    yield "another owner", created(owner_principal_type="User", owner_principal_name="dave")
    yield "owner without a name", created(owner_principal_type="User", owner_principal_name="")
    yield "owner of another type", created(owner_principal_type="Group", owner_principal_name="g")


def answers_to_changes(clients: Clients, token: Any) -> Iterator[tuple[str, Any]]:
    for expire in (False, True):
        for label, client, hmac in (
            ("carol", clients.other, token.hmac),
            ("unknown", clients.owner, bytes(64)),
            ("no", clients.owner, b""),
        ):
            answer = change(client, 1000, hmac, expire=expire)
            yield f"{label} HMAC, {expire}", (answer.error_code, times(answer))
        for client in (clients.owner, clients.renewer):
            for period in (DAY, 2 * DAY, 30 * DAY):
                answer = change(client, period, token.hmac, expire=expire)
                about = round((answer.expiry_timestamp_ms - token.issue_timestamp_ms) / 3_600_000)
                yield f"period {period}, {expire}", (answer.error_code, about)
    until(lambda: is_known(clients.owner, token.token_id, token.max_timestamp_ms))


def answers_to_descriptions(clients: Clients, token: Any) -> Iterator[tuple[str, Any]]:
    for label, client, owners in (
        ("all", clients.renewer, None),
        ("none", clients.renewer, []),
        ("bob", clients.renewer, ["bob"]),
        ("bob's", clients.owner, ["bob"]),
        ("carol's", clients.owner, ["carol"]),
    ):
        asked = None
        if owners is not None:
            asked = [DescribeDelegationTokenOwner(principal_type="User", principal_name=name) for name in owners]
        answer = client.call(DescribeDelegationTokenRequest(owners=asked), 3)
        found = [each for each in answer.tokens if each.token_id == token.token_id]
        yield f"describe {label}", (answer.error_code, [(each.hmac == token.hmac, each.renewers) for each in found])


def answers_by_login(place: Place, token: Any) -> Iterator[tuple[str, Any]]:
    until(lambda: has_all_of_its_life(place, token))
    by_token, with_open = RawClient(place.login), RawClient(place.open)
    session = log_in(by_token, token.token_id, password_of(token), by_token=True)
    yield "session", (session.error_code, round(session.session_lifetime_ms / 3_600_000))
    yield "unknown token", tuple_of_login(place, "A" * 22, password_of(token))
    yield "wrong password", tuple_of_login(place, token.token_id, "wrong")
    for label, client in (("by token", by_token), ("open", with_open)):
        for request, version in requests_about(token.hmac):
            answer = client.call(request, version)
            yield (
                f"{label} {type(request).__name__}",
                (answer.error_code, times(answer) if request is not DESCRIBE else 0),
            )
        client.close()


def answers_to_removals(client: RawClient, token: Any) -> Iterator[tuple[str, Any]]:
    removed = change(client, -5, token.hmac, expire=True)
    yield (
        "removed",
        (removed.error_code, token.issue_timestamp_ms < removed.expiry_timestamp_ms < token.expiry_timestamp_ms),
    )
    until(lambda: not is_known(client, token.token_id))
    again = change(client, -5, token.hmac, expire=True)
    yield "removed before", (again.error_code, times(again))


def answers_about_expired_token(clients: Clients) -> Iterator[tuple[str, Any]]:
    token = create(clients.owner, 1, renewers=principals("User", "bob"))
    until(lambda: is_known(clients.owner, token.token_id) and time.time() * 1000 > token.max_timestamp_ms + 1)
    for label, client, period, expire in (
        ("renewed", clients.owner, 1000, False),
        ("renewed by carol", clients.other, 1000, False),
        ("ended by carol", clients.other, 1000, True),
        ("removed by carol", clients.other, -5, True),
        ("ended", clients.owner, 1000, True),
        ("removed", clients.renewer, -5, True),
    ):
        yield f"expired token {label}", change(client, period, token.hmac, expire=expire).error_code


def is_known(client: RawClient, token_id: str, expiry: int | None = None) -> bool:
    tokens = client.call(DESCRIBE, 3).tokens
    return any(each.token_id == token_id and expiry in (None, each.expiry_timestamp) for each in tokens)


def has_all_of_its_life(place: Place, token: Any) -> bool:
    """Return True if a login lasts until the token's maximum; in Kafka Describe may have that before."""
    client = RawClient(place.login)
    answer = log_in(client, token.token_id, password_of(token), by_token=True)
    client.close()
    left = token.max_timestamp_ms - time.time() * 1000
    return bool(abs(answer.session_lifetime_ms - left) < 3_600_000)


def tuple_of_login(place: Place, user: str, password: str) -> tuple[int, str]:
    client = RawClient(place.login)
    answer = log_in(client, user, password, by_token=True)
    client.close()
    return answer.error_code, answer.error_message


def test_answers_equal_those_of_kafka(kafka: Place, ours: Place) -> None:
    assert list(answers(ours)) == list(answers(kafka))


def test_our_clients_use_tokens(place: Place) -> None:
    with Admin(place.login, **options_of("alice")) as admin, Admin(place.login, **options_of("bob")) as renewer:
        token = admin.create_delegation_token(["User:bob"])
        until(lambda: token in admin.describe_delegation_tokens(["User:alice"]))
        for mechanism in MECHANISMS:
            options = {"security_protocol": "SASL_PLAINTEXT", **token.client_options(mechanism)}  # type: ignore[arg-type]  # one of two texts
            topic = f"tokens-{mechanism}"
            with Producer(place.login, **options) as producer:
                producer.send(topic, b"1").result(60)
            with Consumer(topic, bootstrap_servers=place.login, auto_offset_reset="earliest", **options) as consumer:
                assert [record.value for record in consumer.poll(60)] == [b"1"]
        assert renewer.renew_delegation_token(token.hmac) >= token.expiry_timestamp_ms
        assert token.issue_timestamp_ms < admin.expire_delegation_token(token.hmac) < token.expiry_timestamp_ms
        until(lambda: admin.describe_delegation_tokens(["User:bob"]) == [])
        with pytest.raises(errors.DelegationTokenNotFound):
            admin.expire_delegation_token(token.hmac)


def jaas(path: Path, **options: str) -> str:
    entry = " ".join(f'{name}="{value}"' for name, value in options.items())
    lines = (
        "security.protocol=SASL_PLAINTEXT",
        f"sasl.mechanism={MECHANISMS[1]}",
        f"sasl.jaas.config={MODULE} {entry};",
    )
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def test_tools_of_kafka_use_tokens(place: Place, kafka_tools: None, tmp_path: Path) -> None:
    config = jaas(tmp_path / "alice.properties", username="alice", password=USERS["alice"])
    at = ("--bootstrap-server", place.login, "--command-config", config)

    def run(*arguments: str) -> str:
        return tools.run("delegation-tokens", *at, *arguments).out

    made = run("--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob")
    row = re.search(r"^(\S{22})\s+(\S{80,})\s+User:alice\s+User:alice\s+\[?User:bob", made, re.MULTILINE)
    assert row is not None, made
    token_id, hmac = row[1], row[2]
    with Admin(place.login, **options_of("alice")) as admin:
        until(lambda: token_id in {each.token_id for each in admin.describe_delegation_tokens()})
    assert token_id in run("--describe", "--owner-principal", "User:alice")
    by_token = jaas(tmp_path / "token.properties", username=token_id, password=hmac, tokenauth="true")
    tools.run("topics", "--bootstrap-server", place.login, "--command-config", by_token, "--list")
    assert "Completed renew operation" in run("--renew", "--hmac", hmac, "--renew-time-period", "-1")
    assert "Completed expire operation" in run("--expire", "--hmac", hmac, "--expiry-time-period", "-1")
    assert token_id not in run("--describe", "--owner-principal", "User:alice")
