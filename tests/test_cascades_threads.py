"""Cascades in many threads at once, while the settler runs: nothing is lost, doubled or mixed up."""

from __future__ import annotations

import threading
import time
from collections import Counter
from functools import partial

import gputrace
from gputrace import catalogue
from gputrace.testing import Recorder

THREADS, REQUESTS = 4, 40


def test_requests_of_many_threads_keep_their_stages_decisions_and_audits_apart() -> None:
    with Recorder() as recorder:
        cascade = gputrace.Cascade("answer", stages=("small", "large"), threshold=0.5, audit_rate=0.3, seed=1)
        audited: list[str] = []
        going = threading.Event()

        def settle() -> None:
            while not going.is_set():
                recorder.settle()
                time.sleep(0.001)

        def serve(number: int) -> None:
            for one in range(REQUESTS):
                with cascade.request(feature=f"f{number}") as request:
                    with request.stage("small"):
                        time.sleep(0.0002)
                    identity = request.id
                    if request.escalate(one % 2, audit=partial(audited.append, identity)):
                        with request.stage("large"):
                            time.sleep(0.0002)

        threads = [threading.Thread(target=serve, args=(number,)) for number in range(THREADS)]
        settler = threading.Thread(target=settle)
        for thread in (settler, *threads):
            thread.start()
        for thread in threads:
            thread.join()
        assert gputrace.Cascade.wait_for_audits()
        going.set()
        settler.join()
        recorder.settle()
        recorder.settle()
        decided = [event for event in recorder.events if event.name == catalogue.DECISION_EVENT]
        told = Counter(
            (event.attributes[catalogue.FEATURE], event.attributes[catalogue.ESCALATION_DECISION])
            for event in decided
        )
        assert len({event.attributes[catalogue.REQUEST_ID] for event in decided}) == THREADS * REQUESTS
        for number in range(THREADS):
            assert told[f"f{number}", "escalated"] == REQUESTS // 2
            assert told[f"f{number}", "kept"] + told[f"f{number}", "audited"] == REQUESTS // 2
        assert (
            len(audited) == sum(count for (_, decision), count in told.items() if decision == "audited") > 0
        )
        spent = sum(
            float(event.attributes[name])
            for event in decided
            for name in (catalogue.ESCALATION_LIGHT_TIME, catalogue.ESCALATION_HEAVY_TIME)
            if name in event.attributes
        )
        charged = sum(seconds for _, seconds in recorder.snapshot().feature_time_s)
        assert abs(spent - charged) < 1e-6, "all that was charged is in a stage or an audit"
        assert cascade.open_requests == set()
