"""Remote write by hand: the bytes are the protocol's, and what a receiver refuses is told with a remedy."""

from __future__ import annotations

import struct
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest

from gputrace.exporters import remote_write

if TYPE_CHECKING:
    from collections.abc import Iterator

AT_NS = 1_767_225_600_123_000_000


def varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return number, at


def fields(message: bytes) -> Iterator[tuple[int, bytes | int]]:
    """Number and content of each field, read as protobuf's documentation says."""
    at = 0
    while at < len(message):
        tag, at = varint(message, at)
        kind = tag & 7
        if kind == 0:
            number, at = varint(message, at)
            yield tag >> 3, number
            continue
        length, at = (8, at) if kind == 1 else varint(message, at)
        yield tag >> 3, message[at : at + length]
        at += length
    assert at == len(message)


def plain(frame: bytes) -> bytes:
    """What a Snappy block of literals holds, as its format description says."""
    length, at = varint(frame, 0)
    found = bytearray()
    while at < len(frame):
        tag, at = frame[at], at + 1
        assert tag & 3 == 0, "a copy, in a block that is not compressed"
        size = tag >> 2
        if size >= 60:
            extra = size - 59
            size, at = int.from_bytes(frame[at : at + extra], "little"), at + extra
        assert at + size < len(frame), "the literal is cut short"
        found += frame[at : at + size + 1]
        at += size + 1
    assert len(found) == length
    return bytes(found)


def read(message: bytes) -> list[tuple[dict[str, str], list[tuple[float, int]]]]:
    """Labels and samples of each series."""
    found = []
    for field, content in fields(message):
        assert field == 1
        labels, samples = [], []
        for number, part in fields(bytes(content)):  # type: ignore[arg-type]
            pair = dict(fields(bytes(part)))  # type: ignore[arg-type]
            if number == 1:
                labels.append((bytes(pair[1]).decode(), bytes(pair[2]).decode()))  # type: ignore[arg-type]
            else:
                samples.append((struct.unpack("<d", bytes(pair[1]))[0], pair[2]))  # type: ignore[arg-type]
        assert labels == sorted(labels), "the protocol wants them sorted"
        found.append((dict(labels), samples))
    return found  # type: ignore[return-value]


def test_a_series_is_read_as_it_was_written() -> None:
    named = remote_write.labels(
        "x_total", {"gputrace.feature": "a" * 300, "hw.id": "", "simulated": True, "job": "é"}
    )
    moments = [remote_write.moment(AT_NS), remote_write.moment(AT_NS + 15_000_000_000)]
    samples = b"".join(
        remote_write.sample(value, at) for value, at in zip((1.5, float("inf")), moments, strict=True)
    )
    message = remote_write.series(named, samples) * 2
    (first, second) = read(plain(remote_write.framed(message)))
    assert first == second
    assert first == (
        {"__name__": "x_total", "gputrace_feature": "a" * 300, "job": "é", "simulated": "true"},
        [(1.5, AT_NS // 10**6), (float("inf"), AT_NS // 10**6 + 15_000)],
    )


@pytest.mark.parametrize("size", [1, 60, 61, 70_000, 5_000_000])
def test_frames_of_all_sizes(size: int) -> None:
    assert plain(remote_write.framed(b"x" * size)) == b"x" * size


def test_no_history_before_there_were_computers() -> None:
    with pytest.raises(ValueError, match="no time"):
        remote_write.moment(0)


@pytest.mark.parametrize(
    ("bound", "shown"), [(0.0001, "0.0001"), (0.5, "0.5"), (100.0, "100"), (float("inf"), "+Inf")]
)
def test_bounds_of_buckets(bound: float, shown: str) -> None:
    assert remote_write.bound(bound) == shown


@pytest.fixture
def receiver() -> Iterator[tuple[str, list[tuple[int, bytes]], list[bytes]]]:
    """Its URL, the answers that it is to give, and what came."""
    answers: list[tuple[int, bytes]] = []
    came: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/api/v1/write"
            assert self.headers["Content-Encoding"] == "snappy"
            came.append(plain(self.rfile.read(int(self.headers["Content-Length"]))))
            status, text = answers.pop(0) if answers else (204, b"")
            self.send_response(status)
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", answers, came
        server.shutdown()


def one(number: int, size: int = 10) -> bytes:
    at = remote_write.moment(AT_NS)
    named = remote_write.labels("x", {"n": f"{number}", "long": "l" * size})
    return remote_write.series(named, remote_write.sample(float(number), at))


def test_much_is_sent_in_parts_and_nothing_twice(receiver) -> None:
    url, _, came = receiver
    remote_write.RemoteWriter(url).send(one(number, 500_000) for number in range(20))
    assert len(came) > 1
    assert max(map(len, came)) < 5_000_000
    assert [labels["n"] for message in came for labels, _ in read(message)] == [f"{n}" for n in range(20)]


def test_a_receiver_that_is_busy_is_asked_again(receiver, monkeypatch) -> None:
    monkeypatch.setattr("gputrace.exporters.remote_write.time.sleep", lambda _: None)
    url, answers, came = receiver
    answers += [(503, b"later"), (429, b"later")]
    remote_write.RemoteWriter(url).send([one(1)])
    assert len(came) == 3


@pytest.mark.parametrize(
    ("status", "said", "remedy"),
    [
        (400, b"out of order sample", "out_of_order_time_window"),
        (404, b"remote write receiver needs to be enabled", "--web.enable-remote-write-receiver"),
        (400, b"duplicate sample for timestamp", "history under the same names already"),
        (400, b"bad", "answers 400: bad"),
    ],
)
def test_a_refusal_is_told_with_its_remedy(receiver, status: int, said: bytes, remedy: str) -> None:
    url, answers, came = receiver
    answers.append((status, said))
    with pytest.raises(remote_write.RemoteWriteError, match=remedy):
        remote_write.RemoteWriter(url).send([one(1)])
    assert len(came) == 1


def test_nobody_there_and_no_url(unused_tcp_port: int) -> None:
    with pytest.raises(remote_write.RemoteWriteError, match="does not answer"):
        remote_write.RemoteWriter(f"http://127.0.0.1:{unused_tcp_port}").send([one(1)])
    with pytest.raises(remote_write.RemoteWriteError, match="no URL"):
        remote_write.RemoteWriter("localhost:9090")
