"""Mutations of simulations and of remote write."""

from __future__ import annotations

from mutations import Mutation

BY_HAND = "gputrace/telemetry/by_hand.py"
COLLECTING = "gputrace/telemetry/collecting.py"
FLEET = "gputrace/simulate/fleet.py"
PROCESS = "gputrace/simulate/process.py"
SERVICE = "gputrace/simulate/service.py"
TRUTH = "gputrace/simulate/truth.py"
SERVER = "gputrace/simulate/model_server.py"
SERVING = "gputrace/simulate/serving.py"
DEMAND = "gputrace/simulate/demand.py"
RUNNING = "gputrace/simulate/running.py"
REMOTE = "exporters/remote_write.py"
HISTORY = "gputrace/simulate/history.py"
WATCHING = "gputrace/simulate/watching.py"
BATCHED = "tests/simulate/test_model_server.py::"
SERVED = "tests/simulate/test_serving.py::"
REPORTED = "tests/simulate/test_report.py::"
PLAYED = "tests/simulate/test_process.py::"
WATCHED = "tests/simulate/test_watching.py::"
ASKED = "tests/simulate/test_demand.py::"
WRITTEN = "tests/exporters/test_remote_write.py::"
IN_PROMETHEUS = "tests/integration/test_simulated_history.py::"

MUTATIONS = (
    Mutation(
        "simulate: what is computed once more after a preemption is new",
        SERVER,
        "again = min(computed, self._lost)",
        "again = 0",
        BATCHED + "test_who_came_last_makes_room_and_is_computed_once_more",
    ),
    Mutation(
        "simulate: a prompt waits for answers to end",
        SERVER,
        "key=lambda one: one.reads)",
        "key=lambda one: one.reads)[:1]",
        BATCHED + "test_answers_go_on_while_a_prompt_is_computed",
    ),
    Mutation(
        "simulate: the truth of a step is shared out equally",
        SERVING,
        "owed[feature, phase] += round(took_s * _PER_S)",
        "owed[feature, phase] += took_s > 0",
        SERVED + "test_shares_are_near_the_truth",
    ),
    Mutation(
        "simulate: a model server is asked for one thing at a time",
        DEMAND,
        "moments.draw()",
        "begin_ns + int(dice.random() * cell_ns)",
        SERVED + "test_steps_and_tokens_are_what_was_launched",
    ),
    Mutation(
        "simulate: audits that compute longer than a request waits are left out",
        PROCESS,
        "            _wait_for(_PATIENCE_NS)\n",
        "",
        WATCHED + "test_long_audits_are_waited_for",
    ),
    Mutation(
        "simulate: a watcher knows what is decided later",
        WATCHING,
        '            known = one.columns["time"] <= at_ns / NS_PER_S\n',
        '            known = one.columns["time"] > 0\n',
        WATCHED + "test_it_begins_without_bounds_and_asks_for_audits",
    ),
    Mutation(
        "simulate: an audit is given the score of the light answer",
        SERVICE,
        "float(one.heavy_right), name=",
        "float(one.light_right), name=",
        WATCHED + "test_bounds_hold_what_was_drawn",
    ),
    Mutation(
        "simulate: the watcher takes the name of a process",
        WATCHING,
        "made_up.instance_id(plan, plan.processes)",
        "made_up.instance_id(plan, 0)",
        WATCHED + "test_one_publisher_speaks_for_all_processes",
    ),
    Mutation(
        "simulate: the watcher exports before it knows anything",
        WATCHING,
        "            if self._rows:\n",
        "            if self._rows is not None:\n",
        WATCHED + "test_one_publisher_speaks_for_all_processes",
    ),
    Mutation(
        "simulate: estimates are left out without a word",
        WATCHING,
        "        _logger.warning(",
        "        _logger.debug(",
        WATCHED + "test_without_numpy_it_says_so_once",
    ),
    Mutation(
        "simulate: what is written is not marked",
        BY_HAND,
        "                catalogue.SIMULATED: True,\n",
        "",
        REPORTED + "test_every_line_says_that_it_is_simulated",
    ),
    Mutation(
        "simulate: series of Prometheus are not marked",
        HISTORY,
        '_PROMOTED = ("deployment.environment.name", catalogue.SIMULATED)',
        '_PROMOTED = ("deployment.environment.name",)',
        IN_PROMETHEUS + "test_every_series_is_named_by_the_catalogue_and_marked",
    ),
    Mutation(
        "simulate: a lost GPU is still read",
        PROCESS,
        "            if not is_lost and hardware is not None:",
        "            if hardware is not None:",
        PLAYED + "test_a_gpu_that_is_lost_is_unknown_from_then_on",
    ),
    Mutation(
        "simulate: what ran on a lost GPU goes on",
        FLEET,
        "                one._replace(end_ns=min(one.end_ns, now_ns))",
        "                one",
        "tests/simulate/test_fleet.py::test_what_runs_on_a_gpu_ends_where_that_is_lost",
    ),
    Mutation(
        "simulate: calls end when they begin",
        SERVICE,
        "            await Until(self._fleet.launch(",
        "            (self._fleet.launch(",
        REPORTED + "test_percentiles_are_of_the_simulated_time",
    ),
    Mutation(
        "simulate: draws are not the seed's",
        DEMAND,
        'random.Random(f"{plan.seed}/{process}/demand")',
        "random.Random()",
        PLAYED + "test_the_same_seed_gives_the_same_numbers",
    ),
    Mutation(
        "simulate: the settler's time is the machine's",
        PROCESS,
        "            clocks.monotonic_ns = clocks.wall_ns = calls.clock = self.clock",
        "            calls.clock = self.clock",
        REPORTED + "test_decisions_are_told_one_by_one",
    ),
    Mutation(
        "simulate: the process is not left as it was",
        PROCESS,
        "    clocks.monotonic_ns, clocks.wall_ns = time.monotonic_ns, time.time_ns",
        "    pass",
        PLAYED + "test_the_process_is_left_as_it_was",
    ),
    Mutation(
        "simulate: new series begin with their value",
        COLLECTING,
        "        metric_reader = self\n        observed = metric_reader._observed",
        "        for _, callback in self._observed:\n            list(callback(_OPTIONS))\n"
        "        observed = self._observed",
        IN_PROMETHEUS + "test_its_sums_are_those_of_the_files",
    ),
    Mutation(
        "simulate: a launch changes nothing",
        DEMAND,
        "    return 2.0 if launched else 1.0",
        "    return 1.0",
        ASKED + "test_a_launch_doubles_the_traffic_of_one_feature",
    ),
    Mutation(
        "simulate: the truth forgets that work shares a GPU",
        TRUTH,
        "part_s = (end_ns - start_ns) / NS_PER_S / len(held)",
        "part_s = (end_ns - start_ns) / NS_PER_S",
        "tests/simulate/test_truth.py::test_who_computes_together_shares",
    ),
    Mutation(
        "simulate: a folder that holds files is written into",
        RUNNING,
        "    outputs.check()\n",
        "",
        REPORTED + "test_a_folder_that_holds_files_is_refused",
    ),
    Mutation(
        "remote write: labels are not sorted",
        REMOTE,
        "    for key in sorted(named):",
        "    for key in named:",
        WRITTEN + "test_a_series_is_read_as_it_was_written",
    ),
    Mutation(
        "remote write: a frame says a length that is one too large",
        REMOTE,
        "(len(message) - 1).to_bytes",
        "len(message).to_bytes",
        WRITTEN + "test_frames_of_all_sizes",
    ),
    Mutation(
        "remote write: the last part is not sent",
        REMOTE,
        "        if waiting:\n            self._post",
        "        if not size:\n            self._post",
        WRITTEN + "test_much_is_sent_in_parts_and_nothing_twice",
    ),
    Mutation(
        "remote write: a busy receiver is not asked again",
        REMOTE,
        "error.code == _TOO_MANY or error.code >= _SERVER_ERROR",
        "False",
        WRITTEN + "test_a_receiver_that_is_busy_is_asked_again",
    ),
)
