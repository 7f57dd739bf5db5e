"""Prometheus' remote write, as far as a test needs it: protobuf by hand, and snappy with literals alone."""

from __future__ import annotations

import struct
import urllib.request
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

#: Labels (`__name__` among them) -> (Unix time in ms, value), in order.
Series = dict[frozenset[tuple[str, str]], list[tuple[int, float]]]
_MOST_BYTES = 8_000_000


def write(url: str, series: Series) -> None:
    """Write whole series; the server must take samples out of order, since the next may be older."""
    for body in _bodies(series):
        request = urllib.request.Request(  # noqa: S310 - likewise
            f"{url}/api/v1/write",
            _snappy(body),
            {
                "Content-Type": "application/x-protobuf",
                "Content-Encoding": "snappy",
                "X-Prometheus-Remote-Write-Version": "0.1.0",
            },
        )
        urllib.request.urlopen(request, timeout=60).close()  # noqa: S310 - a server on the loopback


def _bodies(series: Series) -> Iterator[bytes]:
    body = bytearray()
    for labels, samples in series.items():
        named = b"".join(
            _field(1, _field(1, name.encode()) + _field(2, value.encode())) for name, value in sorted(labels)
        )
        points = b"".join(
            _field(2, b"\x09" + struct.pack("<d", value) + b"\x10" + _varint(at_ms))
            for at_ms, value in samples
        )
        body += _field(1, named + points)
        if len(body) > _MOST_BYTES:
            yield bytes(body)
            body.clear()
    if body:
        yield bytes(body)


def _field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])


def _snappy(data: bytes) -> bytes:
    parts: Iterable[bytes] = (data[start : start + 65_536] for start in range(0, len(data), 65_536))
    return _varint(len(data)) + b"".join(
        bytes([61 << 2]) + struct.pack("<H", len(part) - 1) + part for part in parts
    )
