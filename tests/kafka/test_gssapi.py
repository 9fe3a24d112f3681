"""Logins by Kerberos at a real Kafka, with tickets of a real KDC; the causes of what fails."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from pyclient import Admin, AsyncConsumer, AsyncProducer, Consumer, Producer, errors
from tests.kafka.kdc import REALM, Kdc, why_no_kdc
from tests.kafka.needs import skip_without_kafka
from tests.kafka.runner import SHORT_LIVED, RealKafka, free_ports
from tests.waiting import until

TLS: Final = Path(__file__).parents[1] / "net" / "tls"
MODULE: Final = "com.sun.security.auth.module.Krb5LoginModule"
PROTOCOLS: Final = {"SASL": "SASL_PLAINTEXT", "SASLTLS": "SASL_SSL", "SHORT": "SASL_PLAINTEXT"}
"""Listener -> its protocol; sessions on SHORT end after 6 s."""


class Realm(NamedTuple):
    """A KDC, a Kafka in its realm by the names of its listeners, and the keytab of alice."""

    kdc: Kdc
    addresses: dict[str, str]
    keytab: Path

    def options(self, listener: str = "SASL", **more: Any) -> dict[str, Any]:
        own = {"security_protocol": PROTOCOLS[listener], "sasl_mechanism": "GSSAPI", **more}
        return own | ({"ssl_cafile": str(TLS / "ca.pem")} if listener == "SASLTLS" else {})

    def with_keytab(self, listener: str = "SASL", **more: Any) -> dict[str, Any]:
        keys = {"sasl_kerberos_keytab": str(self.keytab), "sasl_kerberos_principal": f"alice@{REALM}"}
        return self.options(listener, **{**keys, **more})


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    reason = why_no_kdc()
    if reason:
        pytest.skip(reason)
    skip_without_kafka()
    kdc_port, *ports = free_ports(1 + len(PROTOCOLS))
    addresses = {name: f"localhost:{port}" for name, port in zip(PROTOCOLS, ports, strict=True)}
    with Kdc(tmp_path_factory.mktemp("kdc"), kdc_port) as kdc, pytest.MonkeyPatch.context() as patch:
        for name, value in kdc.environment.items():
            patch.setenv(name, value)
        keytab = kdc.add("kafka/localhost")
        module = (
            f'{MODULE} required useKeyTab=true storeKey=true keyTab="{keytab}" principal="kafka/localhost@{REALM}";'
        )
        listeners = "".join(f",{name}://{address}" for name, address in addresses.items())
        settings = {
            "listeners": "{default}" + listeners,
            "advertised.listeners": "{default}" + listeners,
            "listener.security.protocol.map": "{default}" + "".join(f",{name}:{it}" for name, it in PROTOCOLS.items()),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(TLS / "broker.pem"),
            "sasl.enabled.mechanisms": "GSSAPI",
            "sasl.kerberos.service.name": "kafka",
            "listener.name.short.gssapi.connections.max.reauth.ms": "6000",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS;User:alice",
            **{f"listener.name.{name.lower()}.gssapi.sasl.jaas.config": module for name in PROTOCOLS},
        }
        jvm = (*SHORT_LIVED, f"-Djava.security.krb5.conf={kdc.directory}/krb5.conf")
        with RealKafka(heap="512M", settings=settings, jvm=jvm) as kafka:
            addresses["PLAINTEXT"] = kafka.bootstrap_servers
            yield Realm(kdc, addresses, kdc.add("alice"))


@pytest.fixture
def cache(realm: Realm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of this process's ticket cache, which is empty."""
    path = tmp_path / "tickets"
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{path}")
    return path


def refusal(address: str, options: dict[str, Any]) -> str:
    """Return the text of the error that a client raises at once."""
    with (
        Admin(address, default_api_timeout_ms=3_600_000, **options) as admin,
        pytest.raises(errors.ClusterUnreachable) as error,
    ):
        admin.list_topics()
    return str(error.value)


def produce_and_consume(address: str, topic: str, options: dict[str, Any]) -> None:
    with Producer(address, **options) as producer:
        producer.send(topic, b"1").result(60)
    with Consumer(topic, bootstrap_servers=address, auto_offset_reset="earliest", **options) as consumer:
        assert [record.value for record in consumer.poll(60)] == [b"1"]


@pytest.mark.parametrize("listener", ["SASL", "SASLTLS"])
def test_clients_log_in_by_keytab(realm: Realm, cache: Path, topic: str, listener: str) -> None:
    produce_and_consume(realm.addresses[listener], topic, realm.with_keytab(listener))
    assert not cache.exists()


def test_clients_log_in_by_ticket_cache(realm: Realm, cache: Path, topic: str) -> None:
    realm.kdc.log_in("alice", realm.keytab, cache)
    produce_and_consume(realm.addresses["SASL"], topic, realm.options())


@pytest.mark.parametrize("by_keytab", [True, False], ids=["keytab", "ticket cache"])
def test_asyncio_clients_log_in(realm: Realm, cache: Path, topic: str, by_keytab: bool) -> None:
    address, options = realm.addresses["SASL"], realm.with_keytab() if by_keytab else realm.options()
    if not by_keytab:
        realm.kdc.log_in("alice", realm.keytab, cache)

    async def scenario() -> list[bytes | None]:
        async with AsyncProducer(address, **options) as producer:
            await (await producer.send(topic, b"1"))
        async with AsyncConsumer(topic, bootstrap_servers=address, auto_offset_reset="earliest", **options) as consumer:
            return [record.value for record in await consumer.poll(60)]

    assert asyncio.run(scenario()) == [b"1"]


def configurations(realm: Realm, cache: Path) -> dict[str, dict[str, str]]:
    """Return the options of other clients, by their names."""
    return {
        "librdkafka": {
            "sasl.mechanisms": "GSSAPI",
            "sasl.kerberos.service.name": "kafka",
            "sasl.kerberos.principal": "alice",
            "sasl.kerberos.keytab": str(realm.keytab),
            "sasl.kerberos.kinit.cmd": 'kinit -R -t "%{sasl.kerberos.keytab}" -k %{sasl.kerberos.principal} || '
            'kinit -t "%{sasl.kerberos.keytab}" -k %{sasl.kerberos.principal}',
            "sasl.kerberos.min.time.before.relogin": "60000",
        },
        "Java, keytab": {
            "sasl.mechanism": "GSSAPI",
            "sasl.kerberos.service.name": "kafka",
            "sasl.kerberos.kinit.cmd": "/usr/bin/kinit",
            "sasl.jaas.config": f'{MODULE} required useKeyTab=true storeKey=true keyTab="{realm.keytab}" '
            f'principal="alice@{REALM}";',
        },
        "Java, ticket cache": {
            "sasl.mechanism": "GSSAPI",
            "sasl.jaas.config": f'{MODULE} required useTicketCache=true ticketCache="{cache}" serviceName="kafka";',
        },
        "keytab alone": {"sasl.mechanism": "GSSAPI", "sasl.kerberos.keytab": f"FILE:{realm.keytab}"},
    }


@pytest.mark.parametrize("name", ["librdkafka", "Java, keytab", "Java, ticket cache", "keytab alone"])
def test_configuration_of_another_client_logs_in(realm: Realm, tmp_path: Path, topic: str, name: str) -> None:
    cache = tmp_path / "other-tickets"
    realm.kdc.log_in("alice", realm.keytab, cache)
    config = {"security.protocol": "SASL_PLAINTEXT", **configurations(realm, cache)[name]}
    with Producer(realm.addresses["SASL"], config=config) as producer:
        producer.send(topic, b"1").result(60)


def test_kafka_sees_the_principal_of_the_ticket(realm: Realm, topic: str) -> None:
    keytab = realm.kdc.add("bob")
    options = realm.with_keytab(sasl_kerberos_keytab=str(keytab), sasl_kerberos_principal="bob")
    with Producer(realm.addresses["PLAINTEXT"]) as producer:
        producer.send(topic, b"1").result(60)
    with Admin(realm.addresses["SASL"], **realm.with_keytab()) as admin:
        admin.create_acls([("topic", topic, "User:bob", "write")])
    with Producer(realm.addresses["SASL"], **options) as producer:
        until(lambda: producer.send(topic, b"2").exception(60) is None, "bob's ACL has no effect")
        with pytest.raises(errors.TopicAuthorizationFailed):
            producer.send(f"{topic}-other", b"1").result(60)


def test_short_sessions_and_short_tickets_lose_no_record(realm: Realm, topic: str) -> None:
    """The broker closes a connection with a request after the end of its session, which is 6 s; tickets end before."""
    keytab = realm.kdc.add("brief", "-maxlife 4seconds")
    options = realm.with_keytab("SHORT", sasl_kerberos_keytab=str(keytab), sasl_kerberos_principal="brief")
    with Admin(realm.addresses["SASL"], **realm.with_keytab()) as admin:
        admin.create_acls([("topic", topic, "User:brief", kind) for kind in ("write", "create")])
    deadline, sent = time.monotonic() + 8, 0
    with Producer(realm.addresses["SHORT"], **options) as producer:
        until(lambda: producer.send(topic, b"first", partition=0).exception(60) is None, "the ACLs have no effect")
        first = producer.send(topic, b"0", partition=0).result(60).offset
        while time.monotonic() < deadline:
            sent += 1
            assert producer.send(topic, b"%d" % sent, partition=0).result(60).offset == first + sent
        assert producer.metrics()["batches_retried"] == 0
    assert _requests(realm, "AS_REQ", "brief") > 1


def _requests(realm: Realm, kind: str, principal: str) -> int:
    lines = (realm.kdc.directory / "kdc.log").read_text().splitlines()
    return sum(kind in line and "ISSUE" in line and f" {principal}@{REALM}" in line for line in lines)


def test_clients_with_one_keytab_share_a_ticket(realm: Realm) -> None:
    keytab = realm.kdc.add("carol")
    options = realm.with_keytab(sasl_kerberos_keytab=str(keytab), sasl_kerberos_principal="carol")

    def log_in() -> None:
        with Admin(realm.addresses["SASL"], **options) as admin:
            admin.list_topics()

    with ThreadPoolExecutor(6) as pool:
        for done in [pool.submit(log_in) for _ in range(6)]:
            done.result(60)
    assert _requests(realm, "AS_REQ", "carol") == 1


def test_unknown_service_is_named(realm: Realm) -> None:
    says = refusal(realm.addresses["SASL"], realm.with_keytab(sasl_kerberos_service_name="other"))
    assert f"SASL GSSAPI as principal 'alice@{REALM}'" in says
    assert "other/localhost" in says
    assert "check sasl_kerberos_service_name, and that the broker's principal has the host name" in says


def test_missing_ticket_is_named(realm: Realm, cache: Path) -> None:
    says = refusal(realm.addresses["SASL"], realm.options(sasl_kerberos_principal="alice"))
    assert "there is no ticket" in says
    assert "get one with `kinit alice` into the ticket cache (KRB5CCNAME), or give sasl_kerberos_keytab" in says


def test_expired_ticket_is_named(realm: Realm, cache: Path) -> None:
    realm.kdc.log_in("alice", realm.keytab, cache, "-l", "1s")
    until(lambda: not realm.kdc.is_valid(cache), "the ticket does not expire")
    assert "the ticket has expired: get one with `kinit` into" in refusal(realm.addresses["SASL"], realm.options())


def test_keytab_that_cannot_serve_is_named(realm: Realm, tmp_path: Path) -> None:
    address = realm.addresses["SASL"]
    missing = str(tmp_path / "missing.keytab")
    assert f"the keytab {missing!r} cannot be read" in refusal(address, realm.with_keytab(sasl_kerberos_keytab=missing))
    says = refusal(address, realm.with_keytab(sasl_kerberos_principal="nobody"))
    assert f"check that the keytab {str(realm.keytab)!r} has keys of the principal 'nobody' (klist -k)" in says
    outdated = realm.kdc.add("dave")
    realm.kdc.administer("cpw -randkey dave")
    options = realm.with_keytab(sasl_kerberos_keytab=str(outdated), sasl_kerberos_principal="dave")
    assert "the keytab has another key than the KDC" in refusal(address, options)
    realm.kdc.administer("delprinc -force dave")
    assert "check the principal, sasl_kerberos_principal" in refusal(address, options)


def test_broker_with_an_outdated_key_is_named(realm: Realm) -> None:
    """The service is one that the KDC knows and whose key the broker does not have."""
    realm.kdc.add("stranger/localhost")
    says = refusal(realm.addresses["SASL"], realm.with_keytab(sasl_kerberos_service_name="stranger"))
    assert "was refused by the broker" in says
    assert "check that the broker's keytab has the current key of its principal" in says


def test_client_waits_for_a_kdc_that_is_down(realm: Realm, topic: str) -> None:
    keytab = realm.kdc.add("erin")
    options = realm.with_keytab(sasl_kerberos_keytab=str(keytab), sasl_kerberos_principal="erin")
    realm.kdc.stop()
    try:
        with (
            Admin(realm.addresses["SASL"], default_api_timeout_ms=2_000, **options) as admin,
            pytest.raises(errors.KafkaTimeout, match=r"Cannot contact any KDC.*check that the realm's KDC runs"),
        ):
            admin.list_topics()
        with (
            ThreadPoolExecutor(1) as pool,
            Admin(realm.addresses["SASL"], default_api_timeout_ms=60_000, **options) as admin,
        ):
            topics = pool.submit(admin.list_topics)
            until(lambda: "Cannot contact any KDC" in str(admin.health()), "the client did not report the KDC")
            realm.kdc.start()
            topics.result(60)
    finally:
        realm.kdc.stop()
        realm.kdc.start()
