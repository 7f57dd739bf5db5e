"""Mutations of the steps of model servers: who is charged what, what is learnt, and when it is given up."""

from __future__ import annotations

from mutations import Mutation

STEPS = "gputrace/steps.py"
WORK = "gputrace/steps_work.py"
FIT = "gputrace/steps_fit.py"
WEIGHTS = "gputrace/steps_weights.py"
SHARES = "gputrace/steps_shares.py"
COUNTING = "gputrace/steps_counting.py"
SETTLER = "gputrace/settler_steps.py"
OF_STEPS = "tests/test_steps.py::"
OF_FIT = "tests/test_steps_fit.py::"
OF_WEIGHTS = "tests/test_steps_weights.py::"
OF_SETTLER = "tests/test_settler_steps.py::"
MUTATIONS = [
    Mutation(
        "steps: pairs of prompt tokens leave out what lies in the cache",
        WORK,
        "    pairs = prefill * context + prefill * (prefill + 1) / 2",
        "    pairs = prefill * (prefill + 1) / 2",
        OF_STEPS + "test_a_step_is_split_by_what_its_members_do",
    ),
    Mutation(
        "steps: cached tokens cost something",
        WORK,
        "    prefill, decode, context, _, _ = work\n",
        "    prefill, decode, context, cached, _ = work\n    prefill += cached\n",
        OF_STEPS + "test_cached_tokens_cost_nothing_and_recomputed_ones_what_others_do",
    ),
    Mutation(
        "steps: recomputed tokens are free",
        WORK,
        "    prefill, decode, context, _, _ = work\n",
        "    prefill, decode, context, _, recomputed = work\n    prefill -= recomputed\n",
        OF_STEPS + "test_cached_tokens_cost_nothing_and_recomputed_ones_what_others_do",
    ),
    Mutation(
        "steps: nobody bears the fixed part",
        WORK,
        "    return (1.0 / members, ",
        "    return (0.0, ",
        OF_STEPS + "test_a_step_is_split_by_what_its_members_do",
    ),
    Mutation(
        "steps: each member bears the fixed part whole",
        WORK,
        "    return (1.0 / members, ",
        "    return (1.0, ",
        OF_SETTLER + "test_vectors_of_members_sum_up",
    ),
    Mutation(
        "steps: the context that is read is free",
        WORK,
        "float(context if decode else 0)",
        "0.0",
        OF_STEPS + "test_a_step_is_split_by_what_its_members_do",
    ),
    Mutation(
        "steps: weights that come later change what a running step is split by",
        SETTLER,
        "        if not isinstance(served, StepBatch) or served.server is not None:",
        "        if not isinstance(served, StepBatch):",
        OF_SETTLER + "test_what_is_learnt_while_a_step_runs_does_not_change_how_it_is_split",
    ),
    Mutation(
        "steps: work that cannot be done is believed",
        WORK,
        "min(read) < 0 or ",
        "",
        OF_STEPS + "test_wrong_work_is_said_once_and_counts_alike",
    ),
    Mutation(
        "steps: one without members is billed to nobody's row",
        STEPS,
        "self._members or [_OVERHEAD]",
        "self._members or [as_member(None)]",
        OF_STEPS + "test_a_step_that_serves_nobody_is_overhead",
    ),
    Mutation(
        "steps: what another rank counts is counted twice",
        "gputrace/settler.py",
        "self.totals.calls[series] += followed.counted",
        "self.totals.calls[series] += 1",
        OF_STEPS + "test_a_step_that_is_counted_elsewhere_is_charged_and_no_more",
    ),
    Mutation(
        "steps: tokens that another rank counts are counted twice",
        COUNTING,
        "            if served.counted:\n",
        "            if True:\n",
        OF_SETTLER + "test_what_another_rank_counts_is_charged_and_not_counted",
    ),
    Mutation(
        "steps: what rounding leaves of a phase is lost",
        COUNTING,
        "weighing] += amount - prompts",
        "weighing] += int(amount * (1 - of_prompt))",
        OF_SETTLER + "test_to_the_unit_nothing_is_lost",
    ),
    Mutation(
        "steps: recomputed tokens are priced as if nothing lay before them",
        COUNTING,
        "Work(prefill=done.recomputed, context=done.context)",
        "Work(prefill=done.recomputed)",
        OF_SETTLER + "test_cached_tokens_show_what_they_saved_and_recomputed_ones_what_they_took",
    ),
    Mutation(
        "steps: what they leave open is anybody's",
        "gputrace/steps_fit.py",
        "_PRIOR_WIDTH = 1.0",
        "_PRIOR_WIDTH = 1e4",
        "tests/test_steps_weights.py::"
        "test_what_steps_leave_open_is_as_the_constants_have_it_and_said_to_be_unsure",
    ),
    Mutation(
        "steps: what they leave open is thought to be known",
        "gputrace/steps_fit.py",
        "        of_prior = [noise * one for one in sure]",
        "        of_prior = [0.0] * len(sure)",
        "tests/test_steps_weights.py::"
        "test_what_steps_leave_open_is_as_the_constants_have_it_and_said_to_be_unsure",
    ),
    Mutation(
        "steps: one that failed teaches",
        SETTLER,
        "        if followed.call.status is None and not broken",
        "        if not broken",
        OF_SETTLER + "test_a_step_that_failed_is_charged_and_teaches_nothing",
    ),
    Mutation(
        "steps: on two devices one takes twice as long",
        SETTLER,
        "followed.held_ns / max(1, len(followed.lanes))",
        "followed.held_ns",
        OF_SETTLER + "test_on_several_devices_a_step_took_as_long_as_on_one",
    ),
    Mutation(
        "steps: all models are one",
        SETTLER,
        "        attributes = {} if model is None else",
        "        attributes = {} if True else",
        OF_SETTLER + "test_each_model_has_weights_of_its_own",
    ),
    Mutation(
        "weights: an unknown may be negative",
        FIT,
        "        negative = [at for at, value in solution.items() if value <= 0]",
        "        negative: list[int] = []",
        OF_FIT + "test_no_other_unknowns_that_are_not_negative_fit_better",
    ),
    Mutation(
        "weights: errors take no account of how far steps are off",
        FIT,
        "            square = residual * residual",
        "            square = 1.0",
        OF_FIT + "test_errors_are_as_large_as_they_are",
    ),
    Mutation(
        "weights: a large step has the prices of its own regime alone",
        WEIGHTS,
        "        for regime, portion in _way(prefill):",
        "        for regime, portion in [(regime_of(prefill), 1.0)]:",
        OF_WEIGHTS
        + "test_a_large_step_has_the_prices_of_each_regime_that_it_grows_through "
        + OF_WEIGHTS
        + "test_shares_of_a_server_bound_by_arithmetic_or_by_memory",
    ),
    Mutation(
        "weights: constants weigh for ever",
        WEIGHTS,
        "            self.fit = Fit(self._version, self._candidate)",
        "            self.fit = Fit(self._version, None)",
        OF_WEIGHTS + "test_constants_weigh_the_first_500_steps",
    ),
    Mutation(
        "weights: a regime learns from the steps of the others",
        WEIGHTS,
        "        self.regimes[regime_of(x[_PREFILL])].learn(x, took_s)\n",
        "        for regime in self.regimes[:-1]:\n            regime.learn(x, took_s)\n",
        OF_WEIGHTS + "test_each_regime_is_learnt_from_its_own_steps",
    ),
    Mutation(
        "weights: nothing is ever forgotten",
        WEIGHTS,
        "        while self._seen - self._blocks[0][0] >= MEMORY + _BLOCK:",
        "        while False:",
        OF_WEIGHTS + "test_a_change_is_followed_within_20_000_steps",
    ),
    Mutation(
        "weights: a fit of a few steps is believed",
        WEIGHTS,
        "        if self._looked >= LEAST_STEPS and ",
        "        if ",
        OF_WEIGHTS + "test_constants_weigh_the_first_500_steps",
    ),
    Mutation(
        "weights: a fit is believed however far it is off",
        WEIGHTS,
        " and self.residual <= WORST_RESIDUAL:",
        ":",
        OF_WEIGHTS + "test_constants_weigh_while_half_of_the_steps_are_far_off",
    ),
    Mutation(
        "weights: what has never seen a prompt takes it for free",
        WEIGHTS,
        "        if every is None or (prefill and not (every.theta[_PREFILL] or every.theta[_PAIRS])):",
        "        if every is None:",
        OF_WEIGHTS + "test_a_regime_that_is_rarely_seen_takes_the_weights_of_all",
    ),
    Mutation(
        "weights: the error of a share is that of its feature alone",
        SHARES,
        "(one - share * other) / whole",
        "one / whole",
        OF_WEIGHTS + "test_errors_cover_the_truth",
    ),
]
