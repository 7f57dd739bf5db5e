"""Prometheus remote write 1.0, by hand: history in the past, which nothing that is scraped could have.

Few fields of one message are needed, and the receiver takes a Snappy frame that is not compressed: so this
depends on nothing. Series are named and labelled as Prometheus names what it receives over OTLP.
"""

from __future__ import annotations

import math
import struct
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_POST_BYTES = 4_000_000
_TIMEOUT_S = 60.0
_TRIES = 5
_TOO_MANY, _SERVER_ERROR = 429, 500
#: Field 1 of a message, of a kind that has a length.
_FIRST = b"\x0a"
_SECOND = b"\x12"
#: What stands before each sample: field 2, of 16 bytes, of which field 1 is a double.
_SAMPLE = struct.Struct("<3sdc")
_HEAD = b"\x12\x10\x09"
#: A literal whose length follows in four bytes.
_LITERAL = b"\xfc"
_SEVEN_BITS = 0x7F
_MOST_TIME_MS = 1 << 42
_LEAST_TIME_MS = 1 << 35

#: What Prometheus makes of an attribute that it knows by another name.
JOB, INSTANCE = "job", "instance"


class RemoteWriteError(RuntimeError):
    """The receiver did not take what was sent; the message says why, and what would help."""


def labels(name: str, attributes: Mapping[str, object]) -> bytes:
    """Return the labels of a series, as they stand in the message.

    Args:
        name: Of the metric.
        attributes: Label names, or attribute names that become them, with their values.
    """
    named = {_label(key): _text(value) for key, value in attributes.items()}
    named["__name__"] = name
    found = bytearray()
    # The protocol wants them sorted.
    for key in sorted(named):
        if named[key]:
            pair = _field(_FIRST, key.encode()) + _field(_SECOND, named[key].encode())
            found += _field(_FIRST, pair)
    return bytes(found)


def moment(at_ns: int) -> bytes:
    """Return the time of a sample, as it stands in the message.

    Args:
        at_ns: Unix time, after 1971: earlier ones are shorter.

    Raises:
        ValueError: It is not.
    """
    at_ms = at_ns // 1_000_000
    if not _LEAST_TIME_MS <= at_ms < _MOST_TIME_MS:
        raise ValueError(f"{at_ms} ms is no time that history can be of")
    return b"\x10" + _varint(at_ms)


def sample(value: float, at: bytes) -> bytes:
    """Return one sample.

    Args:
        value: Its value.
        at: What :func:`moment` returned.
    """
    return _SAMPLE.pack(_HEAD, value, at[:1]) + at[1:]


def series(named: bytes, samples: bytes | bytearray) -> bytes:
    """Return one series.

    Args:
        named: What :func:`labels` returned.
        samples: What :func:`sample` returned for each, in the order of time.
    """
    body = named + bytes(samples)
    return _FIRST + _varint(len(body)) + body


class RemoteWriter:
    """Sends series to one receiver.

    Args:
        url: Of the receiver, such as ``http://localhost:9090/api/v1/write``; a base URL is completed.

    Raises:
        RemoteWriteError: It is no URL of HTTP.
    """

    def __init__(self, url: str) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.netloc:
            raise RemoteWriteError(f"{url!r} is no URL: write http://localhost:9090, say")
        self.url = f"{url.rstrip('/')}/api/v1/write" if parts.path in {"", "/"} else url
        self.samples = 0

    def send(self, all_series: Iterable[bytes]) -> None:
        """Send series, as few at a time as a receiver takes.

        Args:
            all_series: What :func:`series` returned for each.

        Raises:
            RemoteWriteError: They were not taken.
        """
        waiting: list[bytes] = []
        size = 0
        for one in all_series:
            if size + len(one) > _POST_BYTES and waiting:
                self._post(b"".join(waiting))
                waiting, size = [], 0
            waiting.append(one)
            size += len(one)
        if waiting:
            self._post(b"".join(waiting))

    def _post(self, message: bytes) -> None:
        for left in reversed(range(_TRIES)):
            try:
                with urllib.request.urlopen(self._request(message), timeout=_TIMEOUT_S):  # noqa: S310 - checked above
                    return
            except urllib.error.HTTPError as error:
                worth_it = error.code == _TOO_MANY or error.code >= _SERVER_ERROR
                if not left or not worth_it:
                    raise RemoteWriteError(self._why(error)) from error
            except OSError as error:
                reason = getattr(error, "reason", None) or error
                raise RemoteWriteError(f"{self.url} does not answer: {reason}") from error
            time.sleep(1.0 / (left + 1))

    def _request(self, message: bytes) -> urllib.request.Request:
        return urllib.request.Request(  # noqa: S310 - checked above
            self.url,
            data=framed(message),
            headers={
                "Content-Encoding": "snappy",
                "Content-Type": "application/x-protobuf",
                "X-Prometheus-Remote-Write-Version": "0.1.0",
                "User-Agent": "gputrace",
            },
        )

    def _why(self, error: urllib.error.HTTPError) -> str:
        said = error.read(500).decode(errors="replace").strip()
        hint = ""
        if "too old" in said or "out of bounds" in said or "out of order" in said:
            hint = (
                "; Prometheus takes what is older than its newest samples only with "
                "`storage: tsdb: out_of_order_time_window: 40d` in its configuration"
            )
        elif "duplicate sample" in said:
            hint = "; there is other history under the same names already, such as another run's: remove it"
        elif error.code in {404, 405}:
            hint = "; Prometheus must be started with --web.enable-remote-write-receiver"
        return f"{self.url} answers {error.code}: {said or error.reason}{hint}"


def framed(message: bytes) -> bytes:
    """Return a Snappy block that holds a message as it is."""
    return _varint(len(message)) + _LITERAL + (len(message) - 1).to_bytes(4, "little") + message


def _label(name: str) -> str:
    """Return an attribute's name as Prometheus writes it."""
    return "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in name)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def bound(value: float) -> str:
    """Return the upper bound of a bucket as the label ``le`` has it."""
    return "+Inf" if math.isinf(value) else f"{value:g}"


def _field(tag: bytes, content: bytes) -> bytes:
    return tag + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > _SEVEN_BITS:
        found.append(number & _SEVEN_BITS | _SEVEN_BITS + 1)
        number >>= 7
    found.append(number)
    return bytes(found)
