"""Mutations of the instrumentation of Ray Serve: each starts Serve, for most of a minute."""

from __future__ import annotations

from mutations import Mutation

BATCH = "integrations/ray_serve_batch.py"
CALLS = "integrations/ray_serve_calls.py"
CONTEXT = "integrations/ray_serve_context.py"
SERVE = "tests/integrations/test_ray_serve.py::"
MUTATIONS = [
    Mutation(
        "serve, ray#60223: a call of a deployment takes nothing along",
        CONTEXT,
        "        setattr(metadata, ATTRIBUTE, Sent(carrier, members))",
        "        pass",
        SERVE + "test_feature_and_tenant_are_equal_at_the_leaf_on_either_transport",
    ),
    Mutation(
        "serve: the stage that stands for a deployment goes on to the next",
        CONTEXT,
        " if own.get(name) != value}",
        "}",
        SERVE + "test_feature_and_tenant_are_equal_at_the_leaf_on_either_transport",
    ),
    Mutation(
        "serve: the deployment beats the stage that its caller named",
        CONTEXT,
        'named = {"stage": sent.carrier.get("stage", own["stage"])}',
        "named = dict(own)",
        SERVE + "test_a_stage_that_was_named_is_kept_and_one_that_was_not_is_the_deployment",
    ),
    Mutation(
        "serve: what a batch hands on is for nobody",
        CONTEXT,
        "        shares = () if served is None else served.shares",
        "        shares: tuple[Share, ...] = ()",
        SERVE + "test_a_batch_that_hands_on_is_split_as_it_is_two_hops_below",
    ),
    Mutation(
        "serve, bentoml#2989: a batch is billed to its first request",
        BATCH,
        "    members = [one.member for one in shares]",
        "    members = [shares[0].member for one in shares]",
        SERVE + "test_each_of_three_tenants_in_a_batch_is_charged_its_share",
    ),
    Mutation(
        "serve: nobody asks what an item weighs",
        BATCH,
        "    if weigh is None:",
        "    if True:",
        SERVE + "test_each_of_three_tenants_in_a_batch_is_charged_its_share",
    ),
    Mutation(
        "serve: batches run in the context of the first request for ever",
        BATCH,
        "        ray_serve_context.outside().run(original, self, *args, **kwargs)",
        "        original(self, *args, **kwargs)",
        SERVE + "test_an_item_that_was_cancelled_in_the_queue_pays_nothing",
    ),
    Mutation(
        "serve: the route of a plain deployment is not told",
        CALLS,
        "                handling.chosen(Endpoint(_marked(replica, info.callable), path), scope)",
        "                pass",
        SERVE + "test_a_plain_deployment_is_a_route_and_a_stage",
    ),
    Mutation(
        "serve: a stream in the loop of the replica is over before it has begun",
        CALLS,
        "        if enqueue is None:",
        "        if False:",
        SERVE + "test_code_in_the_loop_of_the_replica_is_billed_alike",
    ),
    Mutation(
        "serve: a replica that stops says nothing more",
        "integrations/ray_serve.py",
        "                await asyncio.to_thread(gputrace.flush, asgi.FLUSH_TIMEOUT_S)",
        "                pass",
        SERVE + "test_the_last_that_a_replica_does_is_not_lost",
    ),
    Mutation(
        "batches: a request waits for an item that was taken out of its queue",
        "gputrace/batching.py",
        "        if self.awaited and self.request is not None:",
        "        if False and self.request is not None:",
        "tests/test_batching.py::test_a_request_does_not_wait_for_an_item_that_no_batch_will_serve",
    ),
]
