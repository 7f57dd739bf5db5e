from __future__ import annotations

import os

import pytest

from gputrace.analysis.survey import LOGS, METRICS, SPANS, NoDataError, survey


def facts(folder):
    (file,) = survey(folder).files
    return file


def test_the_content_of_a_line_says_its_signal_whatever_the_file_is_called(write):
    folder = write(
        '{"resourceSpans":[]}\n',
        '  { "resourceMetrics" : []}\r\n',
        b'\xef\xbb\xbf{"resourceLogs":[]}\n',
        "hello\n",
        name="metrics.jsonl",
    )
    file = facts(folder)
    assert {signal: file.lines[signal] for signal in (SPANS, METRICS, LOGS, None)} == {
        SPANS: 1,
        METRICS: 1,
        LOGS: 1,
        None: 1,
    }
    assert file.holds(SPANS)
    assert survey(folder).holding(METRICS) == (file,)


def test_blank_lines_are_no_lines(write):
    assert facts(write('\n  \n{"resourceSpans":[]}\n\r\n')).lines == {SPANS: 1}


def test_a_last_line_without_its_end_counts(write):
    file = facts(write('{"resourceSpans":[]}\n{"resourceMetrics":[{"res'))
    assert file.lines == {SPANS: 1, METRICS: 1}


def test_lines_longer_than_one_read_are_one_line_each(write, monkeypatch):
    monkeypatch.setattr("gputrace.analysis.survey._CHUNK_BYTES", 7)
    texts = ('{"resourceSpans":[' + "1," * 40 + "1]}\n", '{"resourceMetrics":[]}\n', "x\n")
    file = facts(write(*texts))
    assert file.lines == {SPANS: 1, METRICS: 1, None: 1}
    assert file.longest == len(texts[0]) - 1
    assert file.size == sum(map(len, texts))


def test_progress_ends_at_the_whole(write):
    seen = []
    survey(write('{"resourceSpans":[]}\n'), lambda _, part: seen.append(part))
    assert seen[-1] == 1.0


@pytest.mark.parametrize("make", [lambda _: None, lambda path: path.mkdir(), os.mkfifo])
def test_where_nothing_can_be_read_the_message_names_the_path(data, make):
    make(data)
    with pytest.raises(NoDataError, match="gputrace-data"):
        survey(data)


@pytest.mark.parametrize(
    "content", ["", "hello\n", '{"a": 1}\n', '[\n {"resource": 1}\n]\n', b"\xff\xfe\n", b"\0" * 9]
)
def test_foreign_files_are_refused_by_name(write, content):
    with pytest.raises(NoDataError, match=r"holds no gputrace data\. notes\.jsonl"):
        survey(write(content, name="notes.jsonl"))


def test_a_file_that_cannot_be_opened_is_named_and_the_others_are_read(write, monkeypatch):
    folder = write('{"resourceSpans":[]}\n', name="a.jsonl")
    write('{"resourceSpans":[]}\n', name="b.jsonl")
    opened = type(folder).open

    def refuse(path, *arguments, **options):
        if path.name == "a.jsonl":
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, *arguments, **options)

    monkeypatch.setattr(type(folder), "open", refuse)
    found = survey(folder)
    assert [file.path.name for file in found.files] == ["b.jsonl"]
    assert found.unreadable == ("a.jsonl was left out: Permission denied.",)
