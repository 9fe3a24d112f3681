"""Compile a declaration into a flat encode function for one version."""

from __future__ import annotations

from collections.abc import Callable
from struct import error as struct_error
from struct import pack
from typing import Any, Final

from pyclient.errors import FieldNotInVersion, MalformedMessage
from pyclient.protocol.diagnosis import explain
from pyclient.protocol.fields import Message
from pyclient.protocol.kinds import BLANK, ZERO_UUID, ArrayOf, Fixed, Kind, Nested, RecordData, Text
from pyclient.protocol.layout import Layout, literal
from pyclient.protocol.parts import Field, fields_of, shared_blank
from pyclient.protocol.reading import MAX_STRING
from pyclient.protocol.source import FEW, Source, few_packers
from pyclient.varint import encode_uvarint


def compile_encoder(cls: type[Message], version: int, *, in_steps: bool = False) -> Callable[[Any], Any]:
    """Return the function `encode(message) -> parts` of one version of a message.

    With `in_steps` it is a generator function that yields every `ITEMS_A_STEP` items and returns the parts.
    """
    return _Encoder(Layout(cls, version), in_steps=in_steps).function()


class _Encoder(Source):
    def __init__(self, layout: Layout, *, in_steps: bool) -> None:
        super().__init__(dict(_NAMES), in_steps=in_steps)
        self.layout = layout
        self.depth_of_tags = 0

    def function(self) -> Callable[[Any], Any]:
        layout = self.layout
        name = f"encode_{layout.cls.__name__}_v{layout.version}{'_in_steps' if self.in_steps else ''}"
        has_records = self.in_steps or layout.has_records()
        with self.block(f"def {name}(m):"):
            self.line("out = []")
            if has_records:
                self.line("parts = []")
            self.begin_steps()
            if self.in_steps:
                self.line("total = 0")
            with self.block("try:"):
                self.part(layout.cls, "m", "")
                self.flush()
                if has_records:
                    with self.block("if out or not parts:" if self.in_steps else "if out:"):
                        self.line("parts.append(join(out))")
                    self.line("return parts")
                else:
                    self.line("return [join(out)]")
            with self.block("except UNENCODABLE as error:"):
                self.line(f"raise explain(m, {layout.version}, error) from error")
        return self.compile(name)

    def part(self, cls: type, var: str, path: str) -> None:
        for each in self.layout.absent(cls):
            if not each.ignorable:
                with self.block(f"if {self.differs(each, f'{var}.{each.name}')}:"):
                    self.line(f"raise absent({self.layout.label!r}, {path + each.name!r}, {var}.{each.name})")
        for each in self.layout.plain(cls):
            self.field(each, f"{var}.{each.name}", path + each.name)
        if self.layout.flexible:
            self.tags(self.layout.tagged(cls), var, path)

    def differs(self, each: Field, value: str) -> str:
        """Return a condition, as source text: the value is not the field's default."""
        if each.default is BLANK and isinstance(each.kind, Nested):
            inner = [self.differs(one, f"{value}.{one.name}") for one in fields_of(each.kind.cls)]
            if each.nullable_in(self.layout.version):
                inner.insert(0, f"{value} is None")
            condition = " or ".join(inner)
            if each.kind.is_plain():
                shared = self.refer(f"blank_{each.kind.name}", shared_blank(each.kind.cls))
                return f"{value} is not {shared} and ({condition})"
            return condition
        if each.default is None:
            return f"{value} is not None"
        if isinstance(each.kind, ArrayOf):
            return f"({value} is None or {value})" if each.nullable_in(self.layout.version) else value
        if each.default is False:
            return value
        if each.default is ZERO_UUID:
            return f"{value} is not ZERO_UUID and {value} != ZERO_UUID"
        return f"{value} != {literal(each.default, self.names)}"

    def field(self, each: Field, value: str, path: str) -> None:
        nullable = self.layout.nullable(each)
        if isinstance(each.kind, Nested):
            self.nested(each.kind, value, path, nullable, tagged=each.tag is not None)
        else:
            self.value(each.kind, value, path, nullable, compact=self.layout.flexible and each.flexible)

    def nested(self, kind: Nested, value: str, path: str, nullable: bool, *, tagged: bool) -> None:
        """Write a part. A nullable one is preceded by a byte: -1 (null) or 1; in a tagged field 0 or 1."""
        var = self.fresh("o")
        self.line(f"{var} = {value}")
        if not nullable:
            self.part(kind.cls, var, f"{path}.")
            return
        with self.block(f"if {var} is None:"):
            absent = b"\0" if tagged else b"\xff"
            self.line(f"out.append({absent!r})")
        with self.block("else:"):
            self.run.append(("b", "1"))
            self.part(kind.cls, var, f"{path}.")

    def value(self, kind: Kind, value: str, path: str, nullable: bool, *, compact: bool) -> None:
        if isinstance(kind, Fixed):
            self.fixed(kind, value)
        elif isinstance(kind, ArrayOf):
            self.array(kind.item, value, path, nullable, compact)
        elif isinstance(kind, Text):
            self.text(value, nullable, compact)
        elif isinstance(kind, RecordData):
            self.records(value, nullable, compact)
        else:
            data, count = self.measured(value, nullable, "b''")
            self.length("i", count, compact)
            self.line(f"out.append({data})")

    def fixed(self, kind: Fixed, value: str) -> None:
        if kind.name == "Uuid":
            self.run.append((kind.code, f"{value}.int.to_bytes(16, 'big')"))
        elif kind.name == "Bool":
            self.run.append(("B", value))
        else:
            self.run.append((kind.code, value))

    def measured(self, value: str, nullable: bool, empty: str) -> tuple[str, str]:
        """Put a value and its length into variables and return their names; None becomes `empty` with length -1."""
        data, count = self.fresh("v"), self.fresh("n")
        self.line(f"{data} = {value}")
        if not nullable:
            self.line(f"{count} = len({data})")
            return data, count
        with self.detour(f"if {data} is None:"):
            self.line(f"{data} = {empty}")
            self.line(f"{count} = -1")
        with self.detour("else:"):
            self.line(f"{count} = len({data})")
        return data, count

    def text(self, value: str, nullable: bool, compact: bool) -> None:
        data, count = self.fresh("s"), self.fresh("n")
        if nullable:
            self.line(f"{data} = {value}")
            with self.detour(f"if {data} is None:"):
                self.line(f"{data} = b''")
                self.line(f"{count} = -1")
            with self.detour("else:"):
                self.line(f"{data} = {data}.encode()")
                self.line(f"{count} = len({data})")
        else:
            self.line(f"{data} = {value}.encode()")
            self.line(f"{count} = len({data})")
        if compact:
            with self.detour(f"if {count} > {MAX_STRING}:"):
                self.line(f"raise OverflowError({count})")
        self.length("h", count, compact)
        self.line(f"out.append({data})")

    def records(self, value: str, nullable: bool, compact: bool) -> None:
        data, count = self.measured(value, nullable, "b''")
        self.length("i", count, compact)
        with self.block(f"if {count} > {int(compact)}:"):
            self.line("parts.append(join(out))")
            self.line(f"parts.append({data})")
            self.line("out = []")

    def length(self, code: str, count: str, compact: bool) -> None:
        """Write a length; in compact form its first byte is part of the current run."""
        if not compact:
            self.run.append((code, count))
            self.flush()
            return
        self.line(f"{count} += 1")
        if self.run:
            self.run.append(("B", f"{count} if {count} < 128 else {count} & 127 | 128"))
            with self.block(f"if {count} > 127:"):
                self.line(f"out.append(uvarint({count} >> 7))")
        else:
            self.line(f"out.append(one_byte[{count}] if {count} < 128 else uvarint({count}))")

    def array(self, item: Kind, value: str, path: str, nullable: bool, compact: bool) -> None:
        data, count = self.measured(value, nullable, "()")
        self.length("i", count, compact)
        if isinstance(item, Fixed) and item.name != "Uuid":
            code = "B" if item.name == "Bool" else item.code
            items = f"({count} - 1)" if compact else count
            with self.block(f"if {data}:"):
                few = self.refer(f"pack_few_{code}", few_packers(code))
                self.line(
                    f"out.append({few}[{items}](*{data}) if {items} < {FEW} else pack('>%d{code}' % {items}, *{data}))"
                )
            return
        var = self.fresh("o")
        with self.block(f"for {var} in {data}:"):
            if isinstance(item, Nested):
                self.part(item.cls, var, f"{path}.")
            else:
                self.value(item, var, path, nullable=False, compact=self.layout.flexible)
            self.flush()
            gather = [line.format(limit=MOST_BYTES, label=repr(self.layout.label)) for line in _GATHER]
            self.step(*(() if self.depth_of_tags else gather))

    def tags(self, tagged: list[Field], var: str, path: str) -> None:
        if not tagged:
            self.run.append(("x", ""))
            return
        conditions = [f"({self.differs(each, f'{var}.{each.name}')})" for each in tagged]
        with self.block(f"if {' or '.join(conditions)}:"):
            count, outer, found = self.fresh("t"), self.fresh("outer"), self.fresh("found")
            self.line(f"{outer}, {found}, {count} = out, [], 0")
            for each, condition in zip(tagged, conditions, strict=True):
                with self.block(f"if {condition}:"):
                    self.line("out = []")
                    self.depth_of_tags += 1
                    self.field(each, f"{var}.{each.name}", path + each.name)
                    self.depth_of_tags -= 1
                    self.flush()
                    self.line("data = join(out)")
                    self.line(f"{found} += ({encode_uvarint(each.tag or 0)!r}, uvarint(len(data)), data)")
                    self.line(f"{count} += 1")
            self.line(f"out = {outer}")
            self.line(f"out.append(uvarint({count}))")
            self.line(f"out += {found}")
        with self.block("else:"):
            self.run.append(("x", ""))

    def write_run(self, run: list[tuple[str, str]]) -> None:
        codes = "".join(code for code, _ in run)
        if codes.strip("x") == "":
            self.line(f"out.append({bytes(len(codes))!r})")
            return
        values = ", ".join(value for code, value in run if code != "x")
        self.line(f"out.append({self.packer(codes, 'pack')}({values}))")


def _absent(label: str, path: str, value: object) -> FieldNotInVersion:
    return FieldNotInVersion(f"{label} has no field {path}, which is set to {value!r:.100}")


_GATHER: Final = (
    "if len(out) > 4096:",
    "    parts.append(join(out))",
    "    out = []",
    "    total += len(parts[-1])",
    "    if total > {limit}: raise too_large({label})",
)
"""Join what is written so far into a part: joining everything at the end would be one long step."""

MOST_BYTES: Final = 512 << 20
"""Largest message, in bytes without record data, that is encoded in steps."""


def _too_large(label: str) -> MalformedMessage:
    return MalformedMessage(f"{label} would have more than {MOST_BYTES} bytes")


_NAMES: Final[dict[str, Any]] = {
    "ZERO_UUID": ZERO_UUID,
    "UNENCODABLE": (struct_error, AttributeError, TypeError, UnicodeError, OverflowError),
    "absent": _absent,
    "explain": explain,
    "join": b"".join,
    "one_byte": [bytes([value]) for value in range(128)],
    "pack": pack,
    "too_large": _too_large,
    "uvarint": encode_uvarint,
}
