"""The specification of a fault, as a test gives it: checked, with the nearest name for a misspelt one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyclient import errors
from pyclient.broker_embedded.faults.items import Selection, fits
from pyclient.broker_embedded.faults.shapes import roles_of
from pyclient.broker_embedded.served_apis import SERVED
from pyclient.config.options import nearest
from pyclient.errors import BrokerError, ConfigError
from pyclient.protocol.versions import API_KEYS

FAIL: Final = "fail"
DELAY: Final = "delay"
DROP: Final = "drop"
DISCONNECT: Final = "disconnect"
HOLD: Final = "hold"
KINDS: Final = {
    FAIL: "answer with `error`, in the place that the API has for it; everything else in the request is served",
    DELAY: "go on after `seconds`",
    DROP: "never answer, and leave the connection open: the client has to time out",
    DISCONNECT: "close the connection instead of answering",
    HOLD: "go on when the fault is released",
}
TIMINGS: Final = frozenset({DELAY, HOLD})

BEFORE: Final = "before"
AFTER: Final = "after"

FIELDS: Final = {
    "kind": f"one of {', '.join(KINDS)}",
    "api": "an API by Kafka's name (Produce) or key, several of them, or * for all",
    "error": "fail: a Kafka error by name (NotLeaderOrFollower, NOT_LEADER_OR_FOLLOWER) or code (6)",
    "seconds": "delay: how long",
    "times": "how many requests meet the fault; default 1, null: all until it is cancelled",
    "skip": "how many matching requests pass before the first that meets it",
    "when": "before the work is done, or after it (only the answer is lost, late or wrong)",
    "client": "only requests of this client id",
    "topic": "only requests about this topic",
    "partition": "only requests about this partition, or one of several",
    "group": "only requests about this group",
    "node": "only at the broker of this id, which must be the one that is called",
    "whole": "fail: true sets the outermost error code of an answer that has several, false the innermost",
}
"""The fields of a fault with their meaning. `*` in client, topic and group matches any text."""

_ALL: Final = "*"
_PLAIN_ERRORS: Final = {cls.__name__.lower(): cls for cls in BrokerError.__subclasses__() if cls.code > 0} | {
    "unknownservererror": errors.UnknownServerError
}
_APIS: Final = {name.lower(): name for name in API_KEYS}
_NAMES: Final = {key: name for name, key in API_KEYS.items()}
_INT16: Final = 2**15


@dataclass(frozen=True, slots=True)
class FaultSpec:
    """A checked fault. `apis` None: all; `times` None: until it is cancelled."""

    kind: str
    apis: frozenset[str] | None
    selection: Selection
    client: str | None = None
    times: int | None = 1
    skip: int = 0
    after: bool = False
    code: int = 0
    seconds: float = 0.0
    whole: bool | None = None

    @classmethod
    def build(cls, given: Mapping[str, Any]) -> FaultSpec:
        """Check the given `FIELDS`. Raise `ConfigError`, which names the allowed values."""
        for name in given:
            if name not in FIELDS:
                raise ConfigError(f"{name}: a fault has no such field{nearest(name, FIELDS)}")
        kind = given.get("kind")
        if not isinstance(kind, str) or kind not in KINDS:
            raise ConfigError(f"kind is {kind!r}: it must be one of {', '.join(KINDS)}{nearest(str(kind), KINDS)}")
        apis = _apis(given.get("api", _ALL))
        selection = Selection(
            topic=_text(given, "topic"), partitions=_partitions(given.get("partition")), group=_text(given, "group")
        )
        _check_roles(apis, selection)
        times, skip, when = given.get("times", 1), given.get("skip", 0), given.get("when", BEFORE)
        if times is not None and not _is_count(times, 1):
            raise ConfigError(f"times is {times!r}: it must be a whole number from 1, or None for all requests")
        if not _is_count(skip, 0):
            raise ConfigError(f"skip is {skip!r}: it must be a whole number from 0")
        if when not in (BEFORE, AFTER):
            raise ConfigError(f"when is {when!r}: it must be {BEFORE!r} or {AFTER!r} (the work)")
        _check_fields(kind, given)
        return cls(
            kind=kind,
            apis=apis,
            selection=selection,
            client=_text(given, "client"),
            times=times,
            skip=skip,
            after=when == AFTER,
            code=error_code(given["error"]) if kind == FAIL else 0,
            seconds=_seconds(given["seconds"]) if kind == DELAY else 0.0,
            whole=given.get("whole"),
        )

    @property
    def limited(self) -> bool:
        """Return True if the fault depends on the contents of requests."""
        return self.selection != Selection()

    def names(self, api: str, client_id: str) -> bool:
        """Return True if the fault applies to requests of this API and client."""
        if not fits(self.client, client_id):
            return False
        if self.apis is not None:
            return api in self.apis
        return not self.limited or _wanted_roles(self.selection) <= roles_of(api)

    def text(self) -> str:
        """Return the error message of an answer."""
        return f"{error_name(self.code)}, which a test asked for"

    def as_json(self) -> dict[str, Any]:
        """Return the fields that are set, in the form that `build` takes."""
        partitions = self.selection.partitions
        found: dict[str, Any] = {
            "kind": self.kind,
            "api": _ALL if self.apis is None else sorted(self.apis),
            "times": self.times,
            "when": AFTER if self.after else BEFORE,
            "error": error_name(self.code) if self.code else None,
            "seconds": self.seconds or None,
            "skip": self.skip or None,
            "client": self.client,
            "topic": self.selection.topic,
            "partition": None if partitions is None else sorted(partitions),
            "group": self.selection.group,
            "whole": self.whole,
        }
        return {name: value for name, value in found.items() if value is not None or name == "times"}

    def describe(self) -> str:
        """Return a short description of the fault."""
        said = self.as_json()
        apis = "every request" if self.apis is None else "/".join(sorted(self.apis))
        times = "all" if self.times is None else f"next {self.times}"
        rest = [f"{name}={said[name]}" for name in said if name not in ("kind", "api", "times", "when")]
        return " ".join([self.kind, times, apis, said["when"], "the work", *rest])


def error_code(error: object) -> int:
    """Return the code of an error given by class, instance, name or code. Raise `ConfigError` for anything else."""
    if isinstance(error, BrokerError) or (isinstance(error, type) and issubclass(error, BrokerError)):
        code: object = error.code
    elif isinstance(error, str):
        plain = error.replace("_", "").lower()
        found = _PLAIN_ERRORS.get(plain)
        if found is None:
            close = nearest(plain, _PLAIN_ERRORS).strip(" (?)").rpartition(" ")[2]
            hint = f" (did you mean {_PLAIN_ERRORS[close].__name__}?)" if close else ""
            raise ConfigError(f"error is {error!r}: no error of Kafka's has that name{hint}")
        code = found.code
    else:
        code = error
    if not isinstance(code, int) or isinstance(code, bool) or code == 0 or not -_INT16 <= code < _INT16:
        raise ConfigError(
            f"error is {error!r}: it must be an error of pyclient.errors that a broker sends, or its code"
        )
    return code


def error_name(code: int) -> str:
    """Return an error's name; its code as text if it has none."""
    found = errors.for_code(code)
    return str(code) if found is errors.UnknownErrorCode else found.__name__


def _apis(given: object) -> frozenset[str] | None:
    if given == _ALL or given is None:
        return None
    several = given if isinstance(given, Iterable) and not isinstance(given, str) else [given]
    found = frozenset(map(api_name, several))
    if not found:
        raise ConfigError('api is empty: name at least one API, or "*" for all')
    return found


def api_name(given: object) -> str:
    """Return an API's name from a name or key. Raise `ConfigError` if this broker does not serve it."""
    if isinstance(given, int) and not isinstance(given, bool):
        name = _NAMES.get(given)
    else:
        name = _APIS.get(str(given).replace("_", "").lower())
    if name is None:
        raise ConfigError(f"api is {given!r}: Kafka has no such API{_nearest_api(given)}")
    if name not in SERVED:
        raise ConfigError(f"api is {given!r}: this broker does not serve it")
    return name


def _nearest_api(given: object) -> str:
    return nearest(str(given), list(SERVED)) or nearest(str(given).capitalize(), list(SERVED))


def _wanted_roles(selection: Selection) -> frozenset[str]:
    said = {"topic": selection.topic, "partition": selection.partitions, "group": selection.group}
    return frozenset(role for role, value in said.items() if value is not None)


def _check_roles(apis: frozenset[str] | None, selection: Selection) -> None:
    for api in sorted(apis or ()):
        for role in sorted(_wanted_roles(selection) - roles_of(api)):
            allowed = ", ".join([*sorted(roles_of(api)), "client"])
            raise ConfigError(f"{role}: {api} requests have none; a fault of them can be limited by {allowed}")


def _check_fields(kind: str, given: Mapping[str, Any]) -> None:
    for name, owner in (("error", FAIL), ("seconds", DELAY)):
        if kind == owner and given.get(name) is None:
            raise ConfigError(f"{name}: {kind} needs it ({FIELDS[name]})")
        if kind != owner and given.get(name) is not None:
            raise ConfigError(f"{name}: {kind} does not take it, {owner} does")
    whole = given.get("whole")
    if whole is not None and (kind != FAIL or not isinstance(whole, bool)):
        raise ConfigError(f"whole is {whole!r}: only fail takes it, as true or false")


def _text(given: Mapping[str, Any], name: str) -> str | None:
    value = given.get(name)
    if value is not None and not isinstance(value, str):
        raise ConfigError(f"{name} is {value!r}: it must be a text")
    return value


def _partitions(given: object) -> frozenset[int] | None:
    if given is None:
        return None
    several: list[Any] = list(given) if isinstance(given, Iterable) and not isinstance(given, str) else [given]
    if not several or not all(_is_count(one, 0) for one in several):
        raise ConfigError(f"partition is {given!r}: it must be a whole number from 0, or several")
    return frozenset(several)


def _seconds(given: object) -> float:
    if isinstance(given, bool) or not isinstance(given, (int, float)) or not 0 <= given < 1e9:
        raise ConfigError(f"seconds is {given!r}: it must be a number from 0")
    return float(given)


def _is_count(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least
