"""Error texts of administrators' requests that tools and tests match."""

from __future__ import annotations

from typing import Any

from pyclient.protocol.versions import API_KEYS
from tests.broker_embedded.parity.scenario import Dialogue, Scenario
from tests.waiting import until

_BROKER, _METRICS, _TOPIC = 4, 16, 2
_EXACT, _DEFAULT, _ANY = 0, 1, 2
_NOT_THERE = ("share", "streams", "eligible.leader.replicas")
_RANGE = "features that are not there have the range 0-0, and no level"


def client_quotas(dialogue: Dialogue) -> None:
    rate, mutations = "producer_byte_rate", "controller_mutation_rate"

    def alter(label: str, *entity: tuple[str, str | None], key: str = rate, value: float = 1000, **op: Any) -> None:
        named = [{"entity_type": kind, "entity_name": name} for kind, name in entity]
        entry = {"entity": named, "ops": [{"key": key, "value": value, **op}]}
        dialogue.ask(f"alter {label}", "AlterClientQuotas", 1, entries=[entry], validate_only=False)

    alter("of an address", ("ip", "10.0.0.1"), key="connection_creation_rate")
    alter("of no address", ("ip", "10.0.0.x y"), key="connection_creation_rate")
    alter("of a name that has no address", ("ip", "no.such.host.invalid"), key="connection_creation_rate")
    alter("of a user and an address", ("user", "u"), ("ip", "10.0.0.1"))
    alter("of a client and an address", ("client-id", "c"), ("ip", "10.0.0.1"))
    alter("of nothing")
    alter("of another type", ("group", "g"))
    alter("of an empty user", ("user", ""))
    alter("with another key", ("user", "u"), key="no_such_rate")
    alter("with a key of addresses", ("user", "u"), key="connection_creation_rate")
    alter("of an address with a key of users", ("ip", "10.0.0.1"), key=rate)
    alter("0", ("user", "u"), value=0)
    alter("-1", ("user", "u"), value=-1)
    alter("half a byte", ("user", "u"), value=0.5)
    alter("a half of a mutation", ("user", "u"), key=mutations, value=0.5)
    alter("too large", ("user", "u"), value=1e30)
    alter("another key removed", ("user", "u"), key="no_such_rate", remove=True)

    def describe(label: str, *components: tuple[str, int, str | None], strict: bool = False) -> None:
        wanted = [{"entity_type": kind, "match_type": how, "match": name} for kind, how, name in components]
        dialogue.ask(f"describe {label}", "DescribeClientQuotas", 1, components=wanted, strict=strict)

    describe("a user and an address", ("user", _EXACT, "u"), ("ip", _EXACT, "10.0.0.1"))
    describe("a client and any address", ("client-id", _ANY, None), ("ip", _ANY, None))
    describe("another type", ("group", _EXACT, "g"))
    describe("an empty type", ("", _EXACT, "g"))
    describe("a user twice", ("user", _EXACT, "u"), ("user", _EXACT, "v"))
    describe("match type 9", ("user", 9, "u"))
    describe("an exact match of null", ("user", _EXACT, None))
    describe("a default with a name", ("user", _DEFAULT, "u"))
    describe("any with a name", ("user", _ANY, "u"))


def broker_options(dialogue: Dialogue) -> None:
    def alter(label: str, api: str, name: str, *options: tuple[str, str | None]) -> None:
        fields = [{"name": option, "config_operation": 0, "value": value} for option, value in options]
        if api == "AlterConfigs":
            fields = [{"name": field["name"], "value": field["value"]} for field in fields]
        resource = {"resource_type": _BROKER, "resource_name": name, "configs": fields}
        dialogue.ask(f"{label}: {api}", api, 1, resources=[resource], validate_only=True)

    for api in ("IncrementalAlterConfigs", "AlterConfigs"):
        alter("one that is not dynamic", api, "1", ("auto.create.topics.enable", "false"))
        alter("two that are not dynamic", api, "1", ("num.partitions", "3"), ("log.dir", "/x"))
        alter("one that is not dynamic, of the cluster", api, "", ("zookeeper.connect", "x"), ("node.id", "2"))
        alter("a dynamic one", api, "1", ("log.retention.ms", "1000000"))
        alter("a dynamic one and another", api, "1", ("log.retention.ms", "1000000"), ("broker.id", "3"))
        alter("another broker", api, "7", ("log.retention.ms", "1000000"))
        alter("no broker", api, "x", ("log.retention.ms", "1000000"))


def features(dialogue: Dialogue) -> None:
    def update(label: str, feature: str, level: int, how: int = 1, *versions: int, **more: Any) -> None:
        for version in versions or (1, 2):
            field = {"feature": feature, "max_version_level": level, "upgrade_type": how}
            fields = {"feature_updates": [field], "timeout_ms": 30_000, **more}
            dialogue.ask(label if versions else f"{label} {version}", "UpdateFeatures", version, **fields)

    dry = {"validate_only": True}
    update("unknown", "no.such.feature", 1, **dry)
    update("unknown, removed", "no.such.feature", 0, 2, **dry)
    update("too high", "group.version", 9, **dry)
    update("negative", "group.version", -1, 2, **dry)
    update("as it is", "group.version", 1, **dry)
    update("down by an upgrade", "group.version", 0, 1, **dry)
    update("safely off", "group.version", 0, 2, **dry)
    update("unsafely off", "group.version", 0, 3, **dry)
    update("by an unknown type", "group.version", 0, 9, **dry)
    update("metadata too high", "metadata.version", 999, **dry)
    update("metadata too low", "metadata.version", 3, 3, **dry)
    update("metadata off", "metadata.version", 0, 3, **dry)
    update("metadata down by an upgrade", "metadata.version", 7, 1, **dry)
    for level in (7, 20, 29, 30):
        update(f"metadata safely to {level}", "metadata.version", level, 2, 2, **dry)
        update(f"metadata unsafely to {level}", "metadata.version", level, 3, 2, **dry)
    for name in ("transaction", *_NOT_THERE):
        update(f"{name}.version to 0", f"{name}.version", 0, 3, 2, **dry)
        update(f"{name}.version to 9", f"{name}.version", 9, 1, 2, **dry)
    twice = [{"feature": "group.version", "max_version_level": level, "upgrade_type": 2} for level in (0, 1)]
    dialogue.ask("twice", "UpdateFeatures", 2, feature_updates=twice, timeout_ms=30_000, **dry)
    dialogue.ask("none", "UpdateFeatures", 2, feature_updates=[], timeout_ms=30_000, **dry)
    for version in (3, 4):
        answer = dialogue.request("ApiVersions", version, client_software_name="x", client_software_version="1")
        ranges = {each.name: f"{each.min_version}-{each.max_version}" for each in answer.supported_features}
        dialogue.note(f"supported {version}", ranges)
        levels = {each.name: f"{each.min_version_level}-{each.max_version_level}" for each in answer.finalized_features}
        dialogue.note(f"finalized {version}", levels)
    older = {"feature": "metadata.version", "max_version_level": 7, "upgrade_type": 3}
    dialogue.ask("to 3.3", "UpdateFeatures", 2, feature_updates=[older], timeout_ms=30_000)


def metadata_version_goes_down(dialogue: Dialogue) -> None:
    def update(level: int, how: int, *, dry: bool = True) -> None:
        field = {"feature": "metadata.version", "max_version_level": level, "upgrade_type": how}
        label = f"to {level} by {how}{'' if dry else ' for good'}"
        dialogue.ask(label, "UpdateFeatures", 2, feature_updates=[field], timeout_ms=30_000, validate_only=dry)

    def level() -> int:
        answer = dialogue.request("ApiVersions", 4, client_software_name="x", client_software_version="1")
        return next(each.max_version_level for each in answer.finalized_features if each.name == "metadata.version")

    for target in (24, 23, 22, 21, 20, 7):
        for how in (1, 2, 3):
            update(target, how)
    dialogue.note("level", level())
    for target in (24, 23):
        update(target, 2, dry=False)
        until(lambda target=target: level() == target, "the level is known")  # type: ignore[misc]
    update(22, 2, dry=False)
    dialogue.create_topic("made-at-23")
    update(25, 2)
    update(25, 1, dry=False)
    until(lambda: level() == 25, "the level is known")
    dialogue.create_topic("made-at-25")


def clusters_and_controllers(dialogue: Dialogue) -> None:
    for kind in (2, 3):
        dialogue.ask(f"endpoints of type {kind}", "DescribeCluster", 1, endpoint_type=kind)
    keys = {each.api_key for each in dialogue.request("ApiVersions", 3, client_software_name="x",
                                                       client_software_version="1").api_keys}  # fmt: skip
    for api in ("GetTelemetrySubscriptions", "PushTelemetry"):
        dialogue.note(f"{api} is served", API_KEYS[api] in keys)


def client_metrics(dialogue: Dialogue) -> None:
    def alter(label: str, name: str, *options: tuple[str, int, str | None]) -> None:
        fields = [{"name": option, "config_operation": how, "value": value} for option, how, value in options]
        resource = {"resource_type": _METRICS, "resource_name": name, "configs": fields}
        dialogue.ask(label, "IncrementalAlterConfigs", 1, resources=[resource], validate_only=False)

    alter("an interval", "m", ("interval.ms", 0, "1000"))
    alter("a short interval", "m", ("interval.ms", 0, "10"))
    alter("no number", "m", ("interval.ms", 0, "x"))
    alter("a match", "m", ("match", 0, "client_id=a.*,client_software_name=b"))
    alter("a match of nothing known", "m", ("match", 0, "nothing=a"))
    alter("a match that is no expression", "m", ("match", 0, "client_id=["))
    alter("an unknown option", "m", ("no.such", 0, "1"))
    alter("no name", "", ("interval.ms", 0, "1000"))
    alter("metrics", "m", ("metrics", 0, "org.apache.kafka.a,org.apache.kafka.b"))
    wanted = [{"resource_type": _METRICS, "resource_name": name, "configuration_keys": None} for name in ("m", "none")]

    def described() -> Any:
        return dialogue.request("DescribeConfigs", 4, resources=wanted, include_documentation=False)

    until(lambda: len(described().results[0].configs) > 0, "it is there")
    dialogue.note("described", [each.configs for each in described().results])
    dialogue.ask("listed", "ListConfigResources", 1, resource_types=[_METRICS])
    dialogue.ask("listed as in v0", "ListConfigResources", 0)


SCENARIOS = (
    Scenario(client_quotas),
    Scenario(broker_options),
    Scenario(
        features,
        differs={
            **dict.fromkeys(("share.version to 9", "streams.version to 9"), _RANGE),
            "supported 4": _RANGE,
            "finalized 3": _RANGE,
            "finalized 4": _RANGE,
        },
    ),
    Scenario(metadata_version_goes_down, release="4.0"),
    Scenario(clusters_and_controllers, differs={}),
    Scenario(client_metrics),
)
