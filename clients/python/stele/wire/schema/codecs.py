"""Compiled codecs of Apache Kafka's encoding, cached per class and version."""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Generator, Iterator
from typing import TypeVar

from .compiler import ELEMENTS_PER_STEP, Reader, Writer
from .fields import Buffer, MalformedMessage

_T = TypeVar("_T")


@functools.cache
def reader(cls: type[_T], version: int, flexible: bool) -> Callable[[Buffer, int], tuple[_T, int]]:
    """Compile ``read(buffer, position)`` for one version.

    It returns ``(message, position after it)``.

    The function raises ``MalformedMessage``, ``IndexError``, ``struct.error`` or
    ``UnicodeDecodeError`` for a malformed message; see ``read_message``.
    """
    return Reader(version, flexible).message(cls)


@functools.cache
def reader_in_steps(
    cls: type[_T], version: int, flexible: bool
) -> Callable[[Buffer, int], Generator[None, None, tuple[_T, int]]]:
    """Compile ``reader`` as a generator, which yields between its steps."""
    return Reader(version, flexible, in_steps=True).message(cls)


@functools.cache
def gathering_writer(
    cls: type[_T], version: int, flexible: bool
) -> Callable[[_T, bytearray, list[bytes | bytearray]], None]:
    """Compile ``write(message, head, parts)``.

    It appends to ``head``, then to ``parts``.

    Records are separate items of ``parts`` and are not copied.
    """
    code = Writer(version, flexible, gather=True)
    code.structure(cls, "m")
    code.add("parts.append(out)")
    return code.compile("def codec(m, out, parts):", f"gather {cls.__name__} v{version}")


@functools.cache
def writer_in_steps(
    cls: type[_T], version: int, flexible: bool
) -> Callable[[_T, bytearray, list[bytes | bytearray]], Iterator[None]]:
    """Compile ``gathering_writer`` as a generator, which yields between its steps."""
    code = Writer(version, flexible, gather=True, in_steps=True)
    code.begin_steps(ELEMENTS_PER_STEP)
    code.structure(cls, "m")
    code.add("parts.append(out)")
    return code.compile("def codec(m, out, parts):", f"write {cls.__name__} v{version} in steps")


@functools.cache
def writer(cls: type[_T], version: int, flexible: bool) -> Callable[[_T, bytearray], None]:
    """Compile ``write(message, out)`` for one version.

    The function raises ``struct.error`` if a number does not fit its field.
    """
    code = Writer(version, flexible)
    code.structure(cls, "m")
    code.add("return None")
    return code.compile("def codec(m, out):", f"write {cls.__name__} v{version}")


def read_message(
    cls: type[_T], version: int, flexible: bool, buffer: Buffer, position: int = 0
) -> tuple[_T, int]:
    """Read the message at ``position``; return it and the position after it.

    Raises:
        MalformedMessage: the bytes are not a valid message.
    """
    try:
        return reader(cls, version, flexible)(buffer, position)
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise MalformedMessage(str(error)) from error


def read_in_steps(
    cls: type[_T], version: int, flexible: bool, buffer: Buffer, position: int = 0
) -> Generator[None, None, tuple[_T, int]]:
    """``read_message`` in steps of ``ELEMENTS_PER_READ`` elements.

    Raises:
        MalformedMessage: the bytes are not a valid message.
    """
    try:
        return (yield from reader_in_steps(cls, version, flexible)(buffer, position))
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise MalformedMessage(str(error)) from error
