"""The logging filter: records say what the work was billed to."""

from __future__ import annotations

import logging
import logging.handlers
import queue

import pytest

import gputrace

FORMAT = "%(message)s %(gputrace_feature)s/%(gputrace_tenant)s/%(gputrace_call_id)s"


class Lines(logging.Handler):
    def __init__(self):
        super().__init__()
        self.lines = []
        self.setFormatter(logging.Formatter(FORMAT))

    def emit(self, record):
        self.lines.append(self.format(record))


@pytest.fixture
def lines():
    handler = Lines()
    handler.addFilter(gputrace.LoggingFilter())
    logger = logging.getLogger("shop")
    logger.addHandler(handler)
    yield handler.lines
    logger.removeHandler(handler)


def test_a_record_says_what_the_work_is_billed_to(lines):
    log = logging.getLogger("shop.search")
    with gputrace.attribute_to(feature="search", tenant="acme"):
        log.warning("outside of a call")
        with gputrace.span("work"):
            log.warning("inside")
            inner = gputrace.current().call_id
    assert inner
    assert lines == ["outside of a call search/acme/", f"inside search/acme/{inner}"]


def test_a_format_works_where_nothing_is_in_force(lines):
    logging.getLogger("shop").warning("starting")
    with gputrace.attribute_to(tenant="acme"):
        logging.getLogger("shop").warning("nobody named a feature")
    assert lines == ["starting __none__//", "nobody named a feature __none__/acme/"]


def test_a_listener_in_another_thread_keeps_what_was_in_force(lines):
    waiting = queue.SimpleQueue()
    to_queue = logging.handlers.QueueHandler(waiting)
    to_queue.addFilter(gputrace.LoggingFilter())
    log = logging.Logger("elsewhere")  # noqa: LOG001 - one that goes with the test
    log.addHandler(to_queue)
    with gputrace.attribute_to(feature="search"):
        log.warning("queued")
    [handler] = logging.getLogger("shop").handlers
    listener = logging.handlers.QueueListener(waiting, handler)
    listener.start()
    listener.stop()
    assert lines == ["queued search//"]


def test_what_a_record_says_itself_holds(lines):
    logging.getLogger("shop").warning("given", extra={"gputrace_feature": "mine"})
    assert lines == ["given mine//"]


def test_the_name_of_a_logger_chooses_records_as_for_any_filter(lines):
    [handler] = logging.getLogger("shop").handlers
    handler.addFilter(gputrace.LoggingFilter("shop.search"))
    logging.getLogger("shop.cart").warning("not this one")
    logging.getLogger("shop.search").warning("this one")
    assert lines == ["this one __none__//"]
