"""Compile a declaration into a flat decode function for one version."""

from __future__ import annotations

from collections.abc import Callable
from struct import calcsize
from typing import Any, Final

from pyclient.protocol.fields import Message
from pyclient.protocol.kinds import BLANK, ArrayOf, Blob, Fixed, Kind, Nested, RecordData, Text
from pyclient.protocol.layout import Layout, literal
from pyclient.protocol.parts import Field, blank, shared_blank
from pyclient.protocol.reading import MAX_STRING, MOST_ITEMS, NAMES
from pyclient.protocol.source import FEW, ITEMS_A_STEP, Source, few_unpackers

_MOST_STEPS: Final = MOST_ITEMS // ITEMS_A_STEP


def compile_decoder(cls: type[Message], version: int, *, in_steps: bool = False) -> Callable[..., Any]:
    """Return the function `decode(buffer, position=0)` of one version of a message.

    With `in_steps` it is a generator function that yields every `ITEMS_A_STEP` items and returns the message.
    """
    return _Decoder(Layout(cls, version), in_steps=in_steps).function()


class _Decoder(Source):
    def __init__(self, layout: Layout, *, in_steps: bool) -> None:
        super().__init__(dict(NAMES), in_steps=in_steps)
        self.layout = layout
        self.zero_copy = layout.has_records()
        self.after: list[str] = []

    def function(self) -> Callable[..., Any]:
        layout = self.layout
        name = f"decode_{layout.cls.__name__}_v{layout.version}{'_in_steps' if self.in_steps else ''}"
        with self.block(f"def {name}(buf, pos=0):"):
            if self.zero_copy:
                self.line("view = memoryview(buf)")
            else:
                with self.block("if type(buf) is not bytes:"):
                    self.line("buf = bytes(buf)")
            self.line("size = len(buf)")
            self.begin_steps()
            with self.block("try:"):
                self.part(layout.cls, "m", "")
            with self.block("except UNREADABLE as error:"):
                self.line(f"raise refusal({layout.label!r}, size, pos, error) from None")
            if not layout.cls.tolerant:
                with self.block("if pos != size:"):
                    self.line(f"raise left_over({layout.label!r}, size - pos)")
            self.line("return m")
        return self.compile(name)

    def where(self, path: str) -> str:
        return repr(f"{self.layout.label}: {path}")

    def part(self, cls: type, var: str, path: str) -> None:
        """Create an instance and read its fields; fields that this version lacks get their defaults."""
        self.line(f"{var} = new({self.refer(cls.__name__, cls)})")
        tagged = self.layout.tagged(cls)
        self.defaults(var, [*self.layout.absent(cls), *tagged])
        for each in self.layout.plain(cls):
            self.field(each, f"{var}.{each.name}", f"{path}{each.name}")
        if self.layout.flexible:
            self.tags(tagged, var, path)

    def defaults(self, var: str, fields: list[Field]) -> None:
        targets: dict[str, list[str]] = {}
        for each in fields:
            target = f"{var}.{each.name}"
            if each.default is BLANK and isinstance(each.kind, Nested):
                self.line(f"{target} = {self.blank(each.kind)}")
            elif isinstance(each.kind, ArrayOf) and each.default is not None:
                self.line(f"{target} = []")
            else:
                targets.setdefault(literal(each.default, self.names), []).append(target)
        for value, names in targets.items():
            self.line(f"{' = '.join(names)} = {value}")

    def blank(self, kind: Nested) -> str:
        """Share blank parts: creating the three of each Fetch partition would add half to the cost of decoding it."""
        if kind.is_plain():
            return self.refer(f"blank_{kind.name}", shared_blank(kind.cls))
        return f"{self.refer('blank', blank)}({self.refer(kind.name, kind.cls)})"

    def field(self, each: Field, target: str, path: str) -> None:
        nullable = self.layout.nullable(each)
        if isinstance(each.kind, Nested):
            self.nested(each.kind, target, path, nullable, tagged=each.tag is not None)
        else:
            self.value(each.kind, target, path, nullable, compact=self.layout.flexible and each.flexible)

    def nested(self, kind: Nested, target: str, path: str, nullable: bool, *, tagged: bool) -> None:
        """Read a part. A nullable one is preceded by a byte: -1 (null) or 1; in a tagged field 0 or 1."""
        var = self.fresh("o")
        if not nullable:
            self.part(kind.cls, var, f"{path}.")
            self.line(f"{target} = {var}")
            return
        presence = self.fresh("n")
        self.run.append(("B" if tagged else "b", presence))
        with self.block(f"if {presence} <= 0:" if tagged else f"if {presence} < 0:"):
            self.line(f"{target} = None")
        with self.block("else:"):
            self.part(kind.cls, var, f"{path}.")
            self.flush()
            self.line(f"{target} = {var}")

    def value(self, kind: Kind, target: str, path: str, nullable: bool, *, compact: bool) -> None:
        if isinstance(kind, Fixed):
            self.fixed(kind, target)
            return
        count = self.length(kind, path, compact)
        if nullable:
            with self.block(f"if {count} < 0:"):
                if not compact:
                    with self.block(f"if {count} != -1:"):
                        self.line(f"raise bad_length({self.where(path)}, {count})")
                self.line(f"{target} = None")
            with self.block("else:"):
                self.content(kind, target, path, count, compact)
        else:
            with self.block(f"if {count} < 0:"):
                self.line(f"raise bad_length({self.where(path)}, {count})")
            self.content(kind, target, path, count, compact)

    def fixed(self, kind: Fixed, target: str) -> None:
        if kind.name == "Uuid":
            raw = self.fresh("u")
            self.run.append((kind.code, raw))
            self.after.append(f"{target} = uuid_of({raw})")
        else:
            self.run.append((kind.code, target))

    def length(self, kind: Kind, path: str, compact: bool) -> str:
        """Read a length into a variable, -1 for null, and return the variable's name."""
        count, is_text = self.fresh("n"), isinstance(kind, Text)
        self.run.append(("B" if compact else "h" if is_text else "i", count))
        self.flush()
        if compact:
            with self.block(f"if {count} > 127:"):
                self.line(f"{count}, pos = long_uvarint(buf, pos, {count})")
                if is_text:
                    with self.block(f"if {count} > {MAX_STRING + 1}:"):
                        self.line(f"raise bad_length({self.where(path)}, {count})")
            self.line(f"{count} -= 1")
        return count

    def content(self, kind: Kind, target: str, path: str, count: str, compact: bool) -> None:
        if isinstance(kind, ArrayOf):
            self.array(kind.item, target, path, count)
            return
        self.line(f"end = pos + {count}")
        with self.block("if end > size:"):
            self.line(f"raise IndexError({path!r}, {count})")
        if isinstance(kind, RecordData):
            self.line(f"{target} = view[pos:end]")
        elif isinstance(kind, Blob):
            self.line(f"{target} = {'bytes(buf[pos:end])' if self.zero_copy else 'buf[pos:end]'}")
        else:
            slice_as_text = "str(buf[pos:end], 'utf-8')" if self.zero_copy else "buf[pos:end].decode()"
            self.line(f"{target} = {slice_as_text}")
        self.line("pos = end")

    def array(self, item: Kind, target: str, path: str, count: str) -> None:
        smallest = self.layout.smallest_item(item)
        with self.block(f"if {count} * {smallest} > size - pos:" if smallest > 1 else f"if {count} > size - pos:"):
            self.line(f"raise IndexError({path!r}, {count})")
        if isinstance(item, Fixed) and item.name != "Uuid":
            if self.in_steps:
                arguments = f"{self.layout.label!r}, '{item.code}', {item.size}, {count}, buf, pos"
                self.line(f"{target} = yield from numbers({arguments})")
                self.line(f"pos += {count} * {item.size}")
                return
            few = self.refer(f"unpack_few_{item.code}".replace("?", "t"), few_unpackers(item.code))
            many = f"unpack_from('>%d{item.code}' % {count}, buf, pos)"
            self.line(f"{target} = list({few}[{count}](buf, pos) if {count} < {FEW} else {many})")
            self.line(f"pos += {count} * {item.size}" if item.size > 1 else f"pos += {count}")
            return
        items = self.fresh("xs")
        self.line(f"{target} = {items} = []")
        with self.block(f"for _ in range({count}):"):
            var = self.fresh("o")
            if isinstance(item, Nested):
                self.part(item.cls, var, f"{path}.")
            else:
                self.value(item, var, path, nullable=False, compact=self.layout.flexible)
            self.flush()
            self.line(f"{items}.append({var})")
            self.step(f"if steps > {_MOST_STEPS}: raise too_many({self.layout.label!r})")

    def tags(self, tagged: list[Field], var: str, path: str) -> None:
        count = self.fresh("t")
        self.run.append(("B", count))
        label = repr(self.layout.label)
        with self.block(f"if {count}:"):
            if not tagged:
                self.line(f"pos = skip_tags({label}, buf, pos, size, {count})")
                return
            last, length, stop = self.fresh("last"), self.fresh("n"), self.fresh("stop")
            self.line(f"{count}, pos = tag_count({label}, buf, pos, size, {count})")
            self.line(f"{last} = -1")
            with self.block(f"for _ in range({count}):"):
                self.line(f"{last}, {length}, pos = tag_head({label}, buf, pos, size, {last})")
                self.line(f"{stop} = pos + {length}")
                keyword = "if"
                for each in tagged:
                    with self.block(f"{keyword} {last} == {each.tag}:"):
                        self.field(each, f"{var}.{each.name}", f"{path}{each.name}")
                        self.flush()
                        with self.block(f"if pos != {stop}:"):
                            self.line(f"raise bad_tag({self.where(path + each.name)}, {length})")
                    keyword = "elif"
                with self.block("else:"):
                    self.line(f"pos = {stop}")

    def write_run(self, run: list[tuple[str, str]]) -> None:
        codes = "".join(code for code, _ in run)
        if codes == "B":
            self.line(f"{run[0][1]} = buf[pos]")
        else:
            targets = ", ".join(target for _, target in run) + ("," if len(run) == 1 else "")
            self.line(f"{targets} = {self.packer(codes, 'unpack_from')}(buf, pos)")
        self.line(f"pos += {calcsize('>' + codes)}")
        for line in self.after:
            self.line(line)
        self.after.clear()
