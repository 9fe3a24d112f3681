import pickle
import random
import re
import typing
from dataclasses import dataclass

import pytest

from pyclient.admin.config import AdminConfig
from pyclient.backoff import Backoff
from pyclient.config import ClientConfig, ClientOptions, option, options_of, parse_address, resolve
from pyclient.config.fields import read
from pyclient.config.options import FOREIGN, REFUSED
from pyclient.config.unsupported import COMMON, OWN, UNSUPPORTED
from pyclient.consumer.config import ConsumerConfig
from pyclient.errors import ConfigError
from pyclient.producer.config import ProducerConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleConfig(ClientConfig):
    linger_ms: float = option(5.0, doc="How long to wait.", minimum=0)
    batch_size: int = option(16_384, doc="Bytes.", minimum=0, maximum=2**31 - 1)
    acks: str | int = option("all", doc="The replicas that must have it.", choices=("all", 0, 1))
    topics: tuple[str, ...] = option((), doc="Names.")
    enable: bool = option(True, doc="On or off.")
    token: str | None = option(None, doc="Secret.", secret=True)

    def __post_init__(self) -> None:
        ClientConfig.__post_init__(self)
        if self.token is not None and not self.enable:
            raise ConfigError("token needs enable=True")


BASE = {"bootstrap_servers": "localhost:9092"}


def refused(options=None, config=None, cls=SampleConfig):
    with pytest.raises(ConfigError) as caught:
        resolve(cls, {**BASE, **(options or {})}, config)
    return str(caught.value)


def test_keywords_and_kafka_style_dictionary_are_equivalent():
    by_keyword = resolve(
        SampleConfig, {**BASE, "linger_ms": 7, "batch_size": 100, "enable": False, "topics": ["a", "b"]}
    )
    by_config = resolve(
        SampleConfig,
        {},
        {
            "bootstrap.servers": "localhost:9092",
            "linger.ms": "7",
            "batch_size": "100",
            "enable": "false",
            "topics": "a, b",
        },
    )
    assert by_keyword == by_config
    assert by_keyword.linger_ms == 7.0
    assert by_keyword.topics == ("a", "b")


def test_option_given_twice_is_refused_naming_both_places():
    text = refused({"linger_ms": 5}, {"linger.ms": "6"})
    assert "linger_ms is given twice" in text
    assert "'linger.ms'" in text
    assert "given twice" in refused(None, {"batch.size": 1, "batch_size": 2})


def test_unknown_option_names_nearest_known_one():
    assert refused({"linger_sm": 5}) == "unknown option linger_sm; did you mean linger_ms?"
    assert "did you mean batch_size?" in refused(None, {"batch.sise": 5})


def test_unknown_option_without_similar_name_lists_known_ones():
    text = refused({"zzzzqqqq": 5})
    assert "Sample takes: acks, batch_size, bootstrap_servers" in text


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"batch_size": -1}, "batch_size=-1 is not possible: it takes a whole number from 0 to"),
        ({"batch_size": 2**31}, "batch_size=2147483648"),
        ({"batch_size": 1.5}, "batch_size=1.5"),
        ({"batch_size": True}, "batch_size=True"),
        ({"batch_size": "many"}, "batch_size='many'"),
        ({"batch_size": [1]}, "batch_size=[1]"),
        ({"linger_ms": -0.5}, "it takes a number of at least 0"),
        ({"linger_ms": "nan"}, "linger_ms='nan'"),
        ({"linger_ms": "inf"}, "linger_ms='inf'"),
        ({"metadata_max_age_ms": 2**63}, "metadata_max_age_ms=9223372036854775808"),
        ({"request_timeout_ms": 2**31}, "it takes a whole number from 1 to 2147483647"),
        ({"send_buffer_bytes": 2**31}, "it takes a whole number from -1 to 2147483647"),
        ({"acks": 2}, "acks=2 is not possible: it takes all or 0 or 1"),
        ({"enable": "yes please"}, "it takes True or False"),
        ({"client_id": 5}, "client_id=5 is not possible: it takes a string"),
        ({"topics": "a", "client_id": b"x"}, "client_id=b'x'"),
        ({"client_id": "ä" * 16_384}, "it takes a string of at most 32767 bytes in UTF-8 (it has 32768)"),
        ({"client_id": "\ud800"}, "client_id='\\ud800'"),
        ({"security_protocol": "TLS"}, "security_protocol='TLS' is not possible: it takes PLAINTEXT or SSL"),
        (
            {"ssl_context": "x", "security_protocol": "SSL"},
            "ssl_context='x' is not possible: it takes an ssl.SSLContext",
        ),
    ],
)
def test_invalid_value_is_named_with_allowed_values(options, says):
    assert says in refused(options)


def test_choices_are_case_insensitive():
    assert resolve(SampleConfig, {**BASE, "security_protocol": "ssl"}).security_protocol == "SSL"
    assert resolve(SampleConfig, {**BASE, "acks": "ALL"}).acks == "all"


def test_none_as_keyword_means_default():
    config = resolve(SampleConfig, {**BASE, "linger_ms": None, "token": None})
    assert config.linger_ms == 5.0


def test_none_in_dictionary_is_refused_unless_option_allows_it():
    assert "linger_ms=None is not possible: it takes a number" in refused(None, {"linger.ms": None})
    assert "acks=None is not possible" in refused(None, {"acks": None})
    assert resolve(SampleConfig, BASE, {"token": None}).token is None


def test_secret_is_never_shown():
    config = resolve(SampleConfig, {**BASE, "token": "hunter2"})
    assert "hunter2" not in repr(config)
    assert "7777" not in refused({"token": 7777})


def test_unsupported_kafka_options_are_refused_with_advice():
    assert "of SASL, PLAIN, SCRAM, OAUTHBEARER and GSSAPI" in refused(None, {"sasl.login.class": "x"})
    assert "no program is run: give sasl_kerberos_keytab" in refused(None, {"sasl.kerberos.kinit.cmd": "kinit -k"})
    assert "half of its time" in refused(None, {"sasl.kerberos.ticket.renew.window.factor": "0.5"})
    assert "sasl_oauth_token_provider" in refused(None, {"sasl.oauthbearer.config": "x"})
    assert "it takes a whole number from 1" in refused(None, {"sasl.login.connect.timeout.ms": "0"})
    assert "it takes a number from 0.5 to 1" in refused(None, {"sasl.login.refresh.window.factor": "0.4"})
    assert "convert the store with keytool" in refused(None, {"ssl.truststore.type": "JKS"})


def test_other_clients_option_names_are_recognised():
    config = resolve(
        SampleConfig,
        {},
        {"metadata.broker.list": "a:1", "security.protocol": "SSL", "ssl.ca.location": "/ca.pem"},
    )
    assert config.bootstrap_servers == ("a:1",)
    assert config.ssl_cafile == "/ca.pem"


def test_bootstrap_servers_accept_string_or_list():
    assert resolve(ClientConfig, {"bootstrap_servers": "a:1, b:2,,a:1"}).bootstrap_servers == ("a:1", "b:2")
    assert resolve(ClientConfig, {"bootstrap_servers": ["a:9", "[::1]:3"]}).bootstrap_servers == ("a:9", "[::1]:3")


@pytest.mark.parametrize(
    "missing", [{}, {"bootstrap_servers": ""}, {"bootstrap_servers": []}, {"bootstrap_servers": None}]
)
def test_missing_bootstrap_servers_error_shows_example(missing):
    with pytest.raises(ConfigError, match=r"bootstrap_servers is missing.*localhost:9092"):
        resolve(ClientConfig, missing)


@pytest.mark.parametrize(
    "text",
    [
        "a",
        "a:",
        "[::1]",
        "a:b",
        "a:0",
        "a:65536",
        "a:-1",
        ":9092",
        "a b:1",
        "::1:9092",
        "http://a:1/path",
        "user@a:1",
        "a:１",
        "[::1",
    ],
)
def test_invalid_address_is_refused(text):
    with pytest.raises(ConfigError, match="bootstrap_servers"):
        resolve(ClientConfig, {"bootstrap_servers": text})


def test_addresses_that_are_not_strings_are_refused():
    for value in (5, [5], [("a", 1)], {"a": 1}):
        with pytest.raises(ConfigError, match="bootstrap_servers"):
            resolve(ClientConfig, {"bootstrap_servers": value})
    with pytest.raises(ConfigError, match=r"a dictionary of options is given as config=\{\.\.\.\}"):
        resolve(ClientConfig, {"bootstrap_servers": {"bootstrap.servers": "a:1"}})


def test_address_is_split_into_host_and_port():
    assert parse_address("PLAINTEXT://broker.example:19092") == ("broker.example", 19092)
    assert parse_address("[::1]:1") == ("::1", 1)


def test_tls_options_in_conflict_are_refused():
    assert "set security_protocol='SSL'" in refused({"ssl_cafile": "x"})
    assert "ssl_keyfile needs ssl_certfile" in refused({"ssl_keyfile": "x", "security_protocol": "SSL"})
    assert "ssl_key_pem needs ssl_certificate_pem" in refused({"ssl_key_pem": "x", "security_protocol": "SSL"})
    both = {"ssl_cafile": "x", "ssl_ca_pem": "y", "security_protocol": "SSL"}
    assert "ssl_cafile and ssl_ca_pem are both given: drop one" in refused(both)
    assert "hunter2" not in repr(ClientConfig(**BASE, ssl_certfile="x", ssl_key_pem="hunter2", security_protocol="SSL"))


def test_pem_options_of_java_and_librdkafka_are_understood():
    java = {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": "ca",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": "cert",
        "ssl.keystore.key": "key",
        "ssl.key.password": "p",
    }
    librdkafka = {"ssl.ca.pem": "ca", "ssl.certificate.pem": "cert", "ssl.key.pem": "key", "ssl.key.password": "p"}
    for given in (java, librdkafka):
        config = resolve(ClientConfig, BASE, {"security.protocol": "SSL", **given})
        texts = (config.ssl_ca_pem, config.ssl_certificate_pem, config.ssl_key_pem, config.ssl_password)
        assert texts == ("ca", "cert", "key", "p")
    files = {"ssl.truststore.type": "PEM", "ssl.truststore.location": "ca.pem", "ssl.keystore.location": "me.pem"}
    config = resolve(ClientConfig, BASE, {"security.protocol": "SSL", **files})
    assert (config.ssl_cafile, config.ssl_certfile) == ("ca.pem", "me.pem")


def test_subclass_checks_its_own_conflicts_on_typed_values():
    assert refused({"token": "x"}, {"enable": "false"}) == "token needs enable=True"


def test_config_built_directly_is_checked_too():
    with pytest.raises(ConfigError, match="request_timeout_ms=0"):
        ClientConfig(bootstrap_servers=("a:1",), request_timeout_ms=0)


def test_config_key_that_is_not_a_string_is_refused():
    with pytest.raises(ConfigError, match="option names are strings"):
        resolve(ClientConfig, BASE, {5: "x"})


def test_every_option_is_documented_and_its_default_is_valid():
    for name, spec in options_of(SampleConfig).items():
        assert spec.doc.endswith("."), name
        default = SampleConfig.__dataclass_fields__[name].default
        assert read(spec, default) == default


def test_typed_keywords_are_options_of_dataclass():
    fields = typing.get_type_hints(ClientConfig)
    fields.pop("bootstrap_servers")  # the first parameter of every client
    assert typing.get_type_hints(ClientOptions) == fields


@pytest.mark.parametrize(
    ("kind", "name", "said"),
    [
        (ProducerConfig, "queue.buffering.max.kbytes", "use buffer_memory, in bytes (1 KB is 1,024 of them)"),
        (ProducerConfig, "batch.num.messages", "batch_size"),
        (ProducerConfig, "compression.level", "compression_lz4_level"),
        (ProducerConfig, "dr_cb", "on_delivery"),
        (ProducerConfig, "max_batch_size", "use batch_size"),
        (ConsumerConfig, "queued.max.messages.kbytes", "use fetch_max_bytes, in bytes (1 KB is 1,024 of them)"),
        (ConsumerConfig, "consumer_timeout_ms", "poll(timeout=...)"),
        (ConsumerConfig, "enable.partition.eof", "lag()"),
        (ConsumerConfig, "rebalance_timeout_ms", "use max_poll_interval_ms"),
        (ConsumerConfig, "topics", "positional"),
        (AdminConfig, "socket.timeout.ms", "use request_timeout_ms"),
        (AdminConfig, "api_version", "agreed upon"),
    ],
)
def test_options_of_other_clients_are_refused_naming_equivalent(kind, name, said):
    with pytest.raises(ConfigError) as caught:
        resolve(kind, {"bootstrap_servers": "a:1"}, {name: "1"})
    assert str(caught.value).startswith(f"option {name} is another client's: ")
    assert said in str(caught.value)


@pytest.mark.parametrize("kind", [ProducerConfig, ConsumerConfig, AdminConfig])
def test_advice_for_other_clients_options_names_existing_options(kind):
    known = options_of(kind)
    aliases = {alias for spec in known.values() for alias in spec.aliases}
    table = UNSUPPORTED[kind.__name__.removesuffix("Config").lower()]
    hints = {name: unsupported.reason for name, unsupported in table.items() if unsupported.support is FOREIGN}
    for name, hint in hints.items():
        assert name not in known and name not in aliases, name
        named = set(re.findall(r"\b(?:use|as|waits|by) ((?:[a-z]+_)+(?:ms|bytes|size|records|memory|commit))\b", hint))
        assert named <= known.keys() | {"batch_size"}, (name, hint)


def test_initial_backoff_above_maximum_is_capped_as_in_kafka_with_warning(caplog):
    config = resolve(SampleConfig, {"bootstrap_servers": "a:1", "retry_backoff_ms": 5000, "reconnect_backoff_ms": 50})
    assert [record.getMessage() for record in caplog.records] == [
        "retry_backoff_ms=5000 is more than retry_backoff_max_ms=1000: every wait is 1000 ms, without growth"
    ]
    rng = random.Random(1)
    backoff = Backoff(config.retry_backoff_ms / 1000, config.retry_backoff_max_ms / 1000, jitter=0)
    assert {backoff.delay(attempt, rng) for attempt in range(10)} == {1.0}


def test_config_that_is_not_a_dictionary_is_refused():
    with pytest.raises(ConfigError, match=r"config='linger.ms=5' is not possible: it takes a dictionary"):
        resolve(SampleConfig, {"bootstrap_servers": "a:1"}, "linger.ms=5")


KINDS = {"producer": ProducerConfig, "consumer": ConsumerConfig, "admin": AdminConfig}


@pytest.mark.parametrize(
    ("kinds", "given"),
    [
        (KINDS, {"socket.keepalive.enable": True}),
        (KINDS, {"socket.nagle.disable": "true"}),
        (KINDS, {"client.dns.lookup": "use_all_dns_ips"}),
        (KINDS, {"enable.metrics.push": False}),
        (KINDS, {"ssl.endpoint.identification.algorithm": "https"}),
        (KINDS, {"ssl.enabled.protocols": ["TLSv1.2", "TLSv1.3"]}),
        (KINDS, {"metadata.recovery.strategy": "rebootstrap"}),
        (KINDS, {"interceptor.classes": ""}),
        (KINDS, {"metric.reporters": []}),
        (KINDS, {"api.version.request": "true"}),
        (KINDS, {"sasl.login.read.timeout.ms": None}),
        (KINDS, {"sasl.login.refresh.window.factor": "0.8", "sasl.login.refresh.window.jitter": "0.05"}),
        (KINDS, {"sasl.login.refresh.min.period.seconds": "60", "sasl.login.refresh.buffer.seconds": "300"}),
        (["producer"], {"partitioner": "murmur2_random"}),
        (["producer"], {"enable.gapless.guarantee": "false"}),
        (["producer"], {"transactional.id": None}),
        (["producer"], {"value.serializer": "org.apache.kafka.common.serialization.ByteArraySerializer"}),
        (["consumer"], {"value.deserializer": "org.apache.kafka.common.serialization.ByteArrayDeserializer"}),
        (["consumer"], {"enable.partition.eof": False}),
    ],
)
def test_option_value_equal_to_fixed_behaviour_is_accepted(kinds, given, caplog):
    for kind in kinds:
        assert resolve(KINDS[kind], BASE, given) == resolve(KINDS[kind], BASE)
    assert caplog.messages == []


def test_other_values_of_accepted_options_are_refused():
    for kind, table in UNSUPPORTED.items():
        for name in (name for name, unsupported in table.items() if unsupported.choices):
            with pytest.raises(ConfigError, match=f"option {name} is (not supported|another client's): "):
                resolve(KINDS[kind], BASE, {name: "something else"})


@pytest.mark.parametrize(("value", "checked"), [("https", True), ("HTTPS", True), ("", False), ("none", False)])
def test_endpoint_identification_algorithm_sets_ssl_check_hostname(value, checked):
    config = resolve(AdminConfig, BASE, {"ssl.endpoint.identification.algorithm": value})
    assert config.ssl_check_hostname is checked
    with pytest.raises(ConfigError, match="ssl_check_hostname is given twice"):
        resolve(AdminConfig, {**BASE, "ssl_check_hostname": True}, {"ssl.endpoint.identification.algorithm": value})


def test_every_problem_of_dictionary_is_reported_at_once():
    config = {
        "bootstrap.servers": "localhost",
        "linger.sm": 5,
        "batch.size": -1,
        "acks": "some",
        "sasl.kerberos.kinit.cmd": "kinit -k",
        "queue.buffering.max.kbytes": 100,
        "compression.type": "rar",
        "delivery.timeout.ms": 10,
        "retries": 0,
        "enable.idempotence": True,
        "ssl.cafile": "ca.pem",
        3: 4,
        "batch_size": 7,
    }
    with pytest.raises(ConfigError) as caught:
        resolve(ProducerConfig, {}, config)
    begins = [
        "config has the key 3",
        "bootstrap_servers='localhost' is not possible",
        "unknown option linger.sm; did you mean linger_ms?",
        "batch_size=-1 is not possible",
        "acks='some' is not possible",
        "option sasl.kerberos.kinit.cmd is not supported",
        "option queue.buffering.max.kbytes is another client's",
        "compression_type='rar' is not possible",
        "batch_size is given twice",
        "ssl_cafile is given, but security_protocol is PLAINTEXT",
        "enable_idempotence=True is not possible with retries=0",
        "delivery_timeout_ms=10 is not possible",
    ]
    for begin in begins:
        assert sum(problem.startswith(begin) for problem in caught.value.problems) == 1, begin
    assert len(caught.value.problems) == len(begins)
    assert str(caught.value) == "\n- ".join([f"{len(begins)} options are wrong:", *caught.value.problems])
    assert pickle.loads(pickle.dumps(caught.value)).problems == caught.value.problems


def test_conflict_with_invalid_option_is_not_reported():
    with pytest.raises(ConfigError) as caught:
        resolve(ProducerConfig, BASE, {"request.timeout.ms": "5 s", "delivery.timeout.ms": 6_000})
    assert [problem.split("=")[0] for problem in caught.value.problems] == ["request_timeout_ms"]


def test_config_shared_by_client_kinds_warns_of_unused_options(caplog):
    shared = {
        "bootstrap.servers": "a:1",
        "linger.ms": 7,
        "enable.idempotence": "false",
        "dr_cb": print,
        "group.id": "g",
        "auto.offset.reset": "earliest",
        "queued.min.messages": 10,
    }
    with pytest.raises(ConfigError, match=r"^option dr_cb is another client's"):
        resolve(ProducerConfig, {}, shared)
    del shared["dr_cb"], shared["queued.min.messages"]
    assert resolve(ProducerConfig, {}, shared).linger_ms == 7
    assert resolve(ConsumerConfig, {}, shared).group_id == "g"
    assert resolve(AdminConfig, {}, shared).bootstrap_servers == ("a:1",)
    assert caplog.messages == [
        "config has options that no producer uses: group.id (consumers), auto.offset.reset (consumers)",
        "config has options that no consumer uses: linger.ms (producers), enable.idempotence (producers)",
        "config has options that no admin uses: linger.ms (producers), enable.idempotence (producers), "
        "group.id (consumers), auto.offset.reset (consumers)",
    ]
    assert {record.levelname for record in caplog.records} == {"WARNING"}


def test_keyword_of_another_kind_of_client_is_refused():
    with pytest.raises(ConfigError, match="unknown option group_id"):
        resolve(ProducerConfig, {**BASE, "group_id": "g"})


def test_table_of_each_kinds_own_options_is_complete():
    common = {*options_of(ClientConfig), *(name for name in COMMON if COMMON[name].support is REFUSED)}
    for kind, cls in KINDS.items():
        names = {name for spec in options_of(cls).values() for name in (spec.name, *spec.aliases)}
        shared = {alias for name in options_of(ClientConfig) for alias in options_of(cls)[name].aliases}
        refused = {name for name, unsupported in UNSUPPORTED[kind].items() if unsupported.support is REFUSED}
        assert OWN[kind] == {*names, *refused} - common - shared
