"""Mutations of the settler: the order of a tick, what is final, and where a device's time goes."""

from __future__ import annotations

from mutations import Mutation

CALL = "gputrace/call.py"
SETTLER = "gputrace/settler.py"
FOLLOWING = "gputrace/following.py"
ACCOUNTS = "gputrace/accounts.py"
COSTS = "gputrace/costs.py"
OF_SETTLER = "tests/test_settler.py::"
OF_ORDER = "tests/test_settler_interleavings.py"
OF_COSTS = "tests/test_costs.py::"

MUTATIONS = [
    Mutation(
        "settling: untracked time is never counted",
        ACCOUNTS,
        "        untracked_ns = max(0, min(wall_ns, cpu_ns - self._cpu_ns) - charged_ns)\n",
        "        untracked_ns = 0\n",
        OF_SETTLER + "test_states_of_the_host_sum_to_its_wall_time",
    ),
    Mutation(
        "settling: untracked time is not bounded by the wall",
        ACCOUNTS,
        "min(wall_ns, cpu_ns - self._cpu_ns)",
        "(cpu_ns - self._cpu_ns)",
        OF_SETTLER + "test_states_of_the_host_sum_to_its_wall_time",
    ),
    Mutation(
        "settling: the queue is drained before the tick's instant",
        SETTLER,
        "        now_ns = self._clock()\n"
        "        for account in self.accounts.values():\n"
        "            account.sample(now_ns)\n"
        "        self._drain()\n",
        "        self._drain()\n"
        "        now_ns = self._clock()\n"
        "        for account in self.accounts.values():\n"
        "            account.sample(now_ns)\n",
        OF_ORDER,
    ),
    Mutation(
        "settling: a mark that is being taken does not hold the frontier back",
        SETTLER,
        "bounds[lane.account] = min(bounds[lane.account], followed.known_ns)",
        "pass",
        OF_ORDER,
    ),
    Mutation(
        "settling: marks are counted before it is read whether one is being taken",
        SETTLER,
        "            pending, closed = call.pending, call.closed\n"
        "            seen = followed.dropped + len(call.marks)\n",
        "            seen = followed.dropped + len(call.marks)\n"
        "            pending, closed = call.pending, call.closed\n",
        OF_ORDER,
    ),
    Mutation(
        "settling: an event that cannot be read counts as one that has not happened",
        SETTLER,
        "if not account.unreadable",
        "if True",
        OF_SETTLER + "test_a_device_that_cannot_be_read_now_is_not_charged_past_what_may_have_happened",
    ),
    Mutation(
        "settling: a settler follows whatever clock is in force",
        SETTLER,
        "        now_ns = self._clock()\n        for account",
        "        now_ns = calls.clock()\n        for account",
        OF_SETTLER + "test_a_settler_that_runs_meanwhile_keeps_its_clock",
    ),
    Mutation(
        "settling: marks that were read are kept",
        FOLLOWING,
        "            del marks[:read]\n            self.dropped += read\n",
        "            pass\n",
        OF_SETTLER + "test_a_stream_of_steps_does_not_grow",
    ),
    Mutation(
        "settling: a container is charged",
        SETTLER,
        "call.site.hold is not calls.HOLD_NONE and ",
        "",
        OF_SETTLER + "test_a_container_holds_nothing_and_its_children_belong_to_one_owner",
    ),
    Mutation(
        "cost: a price change within a call is not noticed",
        COSTS,
        "            bill.add(self._book.split(device, start_wall_ns, end_wall_ns, amount))\n"
        "        for state",
        "            bill.add(self._book.split(device, start_wall_ns, start_wall_ns, amount))\n"
        "        for state",
        OF_COSTS + "test_a_price_change_within_a_call_splits_its_cost",
    ),
    Mutation(
        "cost: time before there were prices is billed",
        COSTS,
        "            self._billed_ns[account, state] = spent_ns\n",
        "            pass\n",
        OF_COSTS + "test_prices_that_come_later_bill_from_then_on",
    ),
]
