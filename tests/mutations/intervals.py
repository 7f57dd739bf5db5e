"""Mutations of intervals that are told afterwards."""

from __future__ import annotations

from mutations import Mutation

INTERVALS = "gputrace/intervals.py"
DEVICES = "gputrace/settler_devices.py"
OF_INTERVALS = "tests/test_intervals.py::"
MUTATIONS = [
    Mutation(
        "intervals: final as soon as they are told",
        "gputrace/devices/reported.py",
        "        self.mapping_error_ns = LATEST_NS",
        "        self.mapping_error_ns = 0",
        OF_INTERVALS + "test_whatever_the_order_each_instant_is_shared_by_those_that_held_it",
    ),
    Mutation(
        "intervals: one that comes too late is charged in full",
        INTERVALS,
        "    return earliest_ns, max(earliest_ns, end_ns), LATE",
        "    return start_ns, end_ns, LATE",
        OF_INTERVALS + "test_what_cannot_be_charged_is_counted",
    ),
    Mutation(
        "intervals: the future is charged",
        INTERVALS,
        "    if end_ns > now_ns:",
        "    if False:",
        OF_INTERVALS + "test_what_cannot_be_charged_is_counted",
    ),
    Mutation(
        "intervals: charged before what is final",
        "gputrace/following.py",
        "                at_ns: int = max(mark, account.frontier_ns)",
        "                at_ns: int = mark",
        OF_INTERVALS + "test_one_that_stalls_on_its_way_is_never_charged_before_what_is_final",
    ),
    Mutation(
        "intervals: charged beside what the device times itself",
        DEVICES,
        "        return account if account in self._reported else None",
        "        return account",
        OF_INTERVALS + "test_a_device_that_times_calls_itself_needs_no_reports",
    ),
    Mutation(
        "intervals: calls are timed on a device that is told of",
        DEVICES,
        "        return None if account in self._reported else account",
        "        return account",
        OF_INTERVALS + "test_a_device_that_is_told_of_times_no_calls",
    ),
    Mutation(
        "intervals: a stop loses those that wait",
        "gputrace/settler.py",
        "        self._devices.await_more(more=False)\n",
        "",
        OF_INTERVALS + "test_a_flush_does_not_wait_for_other_intervals_and_a_stop_expects_none",
    ),
    Mutation(
        "intervals: a flush waits for others",
        "gputrace/settler.py",
        "one.call.closed and not is_told(one)",
        "one.call.closed",
        OF_INTERVALS + "test_a_flush_does_not_wait_for_other_intervals_and_a_stop_expects_none",
    ),
    Mutation(
        "intervals: the node is not told of the device",
        DEVICES,
        "                account = ReportedAccount(device, now_ns)",
        "                account = SharedAccount(device)",
        OF_INTERVALS + "test_the_node_charges_the_device_what_the_features_are_charged",
    ),
]
