"""Encode and decode messages with functions that are compiled from the declarations on first use.

Each (message, version) has one flat function; see `encoding.py` and `decoding.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from struct import Struct
from typing import Any, Final, TypeVar, cast

from pyclient.errors import MalformedMessage, TruncatedMessage, UnsupportedVersion
from pyclient.protocol.fields import CoordinatorKey, Message, Part
from pyclient.varint import Buffer

M = TypeVar("M", bound=Message)

_INT16: Final = Struct(">h")


def encode_parts(message: Message, version: int) -> list[Part]:
    """Encode a message into parts; a non-empty `records` value is passed through as a part of its own, uncopied.

    Raise FieldNotInVersion if a field is set that the version does not have, MalformedMessage if a value does not fit
    its field, UnsupportedVersion if the message has no such version.
    """
    cls = type(message)
    encode_message = cls.__encoders__.get(version)
    if encode_message is None:
        encode_message = encoder(cls, version)
    return encode_message(message)


def encode(message: Message, version: int) -> bytes:
    """Encode a message into one `bytes` object; errors as `encode_parts`. Record data must be bytes-like."""
    parts = encode_parts(message, version)
    if len(parts) == 1 and type(parts[0]) is bytes:
        return parts[0]
    return b"".join(parts)  # type: ignore[arg-type]


def decode(cls: type[M], version: int, buffer: Buffer, position: int = 0) -> M:
    """Decode the message that starts at `position` and ends where the buffer ends.

    `records` fields are memoryview slices of the buffer; all other values are copies. Raise TruncatedMessage if the
    buffer ends early, MalformedMessage if a length, a string or a tag is invalid or bytes are left over,
    UnsupportedVersion if the message has no such version.
    """
    decode_message = cls.__decoders__.get(version)
    if decode_message is None:
        decode_message = decoder(cls, version)
    return decode_message(buffer, position)  # type: ignore[no-any-return]


def encoder(cls: type[Message], version: int) -> Callable[[Any], list[Part]]:
    """Return the compiled function that `encode_parts` calls: message -> parts."""
    if version not in cls.__encoders__:
        from pyclient.protocol.encoding import compile_encoder

        cls.__encoders__[version] = compile_encoder(cls, version)
    return cls.__encoders__[version]


def decoder(cls: type[M], version: int) -> Callable[..., M]:
    """Return the compiled function that `decode` calls: (buffer, position=0) -> message."""
    if version not in cls.__decoders__:
        from pyclient.protocol.decoding import compile_decoder

        cls.__decoders__[version] = compile_decoder(cls, version)
    return cls.__decoders__[version]


def encoder_in_steps(cls: type[Message], version: int) -> Callable[[Any], Generator[None, None, list[Part]]]:
    """Return `encode_parts` as a generator function that pauses during long arrays and returns the parts."""
    compiled = cls.__encoders__.get(~version)  # ~version is negative: no clash with the plain encoders
    if compiled is None:
        from pyclient.protocol.encoding import compile_encoder

        compiled = cls.__encoders__[~version] = compile_encoder(cls, version, in_steps=True)
    return cast("Callable[[Any], Generator[None, None, list[Part]]]", compiled)


def decoder_in_steps(cls: type[M], version: int) -> Callable[..., Generator[None, None, M]]:
    """Return `decode` as a generator function that pauses during long arrays and returns the message."""
    compiled = cls.__decoders__.get(~version)
    if compiled is None:
        from pyclient.protocol.decoding import compile_decoder

        compiled = cls.__decoders__[~version] = compile_decoder(cls, version, in_steps=True)
    return compiled


def encode_versioned(message: Message, version: int) -> bytes:
    """Encode a message with its version in front (16 bits): values of internal topics, consumer protocol, markers.

    The keys of internal topics (`CoordinatorKey`) have their record type in place of the version.
    """
    leading = message.api_key if isinstance(message, CoordinatorKey) else version
    return _INT16.pack(leading) + encode(message, version)


def decode_versioned(cls: type[M], buffer: Buffer) -> M:
    """Decode the result of `encode_versioned`; errors as `decode`, and UnsupportedVersion for an unknown version.

    Tolerant messages (the consumer protocol) of a newer version are read as the highest known one.
    """
    leading = peek_version(buffer)
    first, last = cls.versions
    if issubclass(cls, CoordinatorKey):
        if leading != cls.api_key:
            raise MalformedMessage(f"{cls.__name__} has record type {cls.api_key}, not {leading}")
        return decode(cls, last, buffer, 2)
    if leading > last and cls.tolerant:
        leading = last
    if not first <= leading <= last:
        raise UnsupportedVersion(f"{cls.__name__} has versions {first} to {last}, not {leading}")
    return decode(cls, leading, buffer, 2)


def peek_version(buffer: Buffer) -> int:
    """Return the first 16-bit number of a versioned message: its version, or the record type of a key."""
    if len(buffer) < 2:
        raise TruncatedMessage(f"a versioned message starts with 2 bytes of version; there are {len(buffer)}")
    version: int = _INT16.unpack_from(buffer)[0]
    return version
