"""Mutations of requests and batches: who is billed for what, and when it is told."""

from __future__ import annotations

from mutations import Mutation

BATCHING = "gputrace/batching.py"
REQUESTS = "gputrace/settler_requests.py"
CHARGES = "gputrace/settler_charges.py"
CALL = "gputrace/call.py"
OF_BATCHES = "tests/test_batching.py::"
OF_REQUESTS = "tests/test_requests.py::"
MUTATIONS = [
    Mutation(
        "batches: who was served waits for the batch alone, not for what it has begun",
        "gputrace/settler_batches.py",
        "            if not batch.following:\n",
        "            if call.site.is_batch:\n",
        OF_BATCHES + "test_a_request_waits_for_all_that_its_batch_has_begun",
    ),
    Mutation(
        "settling: a container is settled before what it began last is followed",
        "gputrace/settler.py",
        " and followed.is_entered(more_wait=bool(self.queue)):",
        ":",
        "tests/test_settler_interleavings.py::test_what_sums_up_others_is_told_after_all_of_them",
    ),
    Mutation(
        "cascades: wait for an item that no batch will serve",
        BATCHING,
        "            self.tally_awaited = False\n            self.tally.work.awaited.pop()",
        "            pass",
        OF_BATCHES + "test_nor_does_the_cascade_that_it_is_in",
    ),
    Mutation(
        "bentoml#2989: a batch is inside the request that started its thread",
        CALL,
        "    if call.root is not None and call.root.site.is_request:\n",
        "    if False:\n",
        "tests/telemetry/test_spans.py::"
        "test_bentoml_2989_the_span_of_a_batch_links_to_all_members_and_is_under_none",
    ),
    Mutation(
        "batches: what is under one is billed as it says itself",
        "gputrace/following.py",
        "            self.batch = None if parent is None or parent.settled is None else parent.settled.batch",
        "            self.batch = None",
        OF_BATCHES + "test_what_is_under_a_batch_is_split_and_keeps_its_own_name",
    ),
    Mutation(
        "batches: weights are not looked at",
        BATCHING,
        "[int(weight * scale) for weight in summed.values()]",
        "[1 for weight in summed.values()]",
        OF_BATCHES + "test_tokens_split_a_batch",
    ),
    Mutation(
        "batches: a member twice counts once",
        BATCHING,
        "            summed[one] = summed.get(one, Fraction(0)) + weight",
        "            summed[one] = weight",
        OF_BATCHES + "test_one_member_twice_counts_twice",
    ),
    Mutation(
        "batches: what rounding leaves is nobody's",
        BATCHING,
        "key=ahead.__getitem__)[:rest]:\n",
        "key=ahead.__getitem__)[:0]:\n",
        OF_BATCHES + "test_every_charge_is_split_whole_and_nobody_is_ever_given_less",
    ),
    Mutation(
        "batches: a request does not wait for its batch",
        BATCHING,
        "        made.awaited = True\n        request.expected.append(None)\n",
        "        made.awaited = False\n",
        OF_BATCHES + "test_a_member_that_has_ended_is_billed_and_told_when_its_batch_is_settled",
    ),
    Mutation(
        "batches: members of several features are named after the first",
        BATCHING,
        "features.pop() if len(features) == 1 else catalogue.SHARED",
        "self.members[0].attribution.feature",
        OF_BATCHES + "test_a_batch_counts_once_and_its_members_each",
    ),
    Mutation(
        "requests: told without the calls that go on",
        REQUESTS,
        "            if (request.open or request.expected) and",
        "            if request.expected and",
        OF_REQUESTS + "test_a_request_is_told_when_the_last_call_inside_it_is_settled",
    ),
    Mutation(
        "requests: held back for ever by what never ends",
        REQUESTS,
        " and now_ns - ended_ns < PATIENCE_NS:",
        ":",
        OF_REQUESTS + "test_what_never_ends_does_not_hold_a_request_back_for_ever",
    ),
    Mutation(
        "requests: one inside another is part of it",
        CALL,
        "        call.request = request\n        call.parent = call.root = None\n",
        "        call.request = request\n",
        OF_REQUESTS + "test_a_request_inside_another_is_one_of_its_own",
    ),
    Mutation(
        "requests: nothing has a price",
        CHARGES,
        "                        None if self.costs is None else self.costs.split(",
        "                        None if True else self.costs.split(",
        OF_REQUESTS + "test_a_request_costs_what_its_calls_cost",
    ),
]
