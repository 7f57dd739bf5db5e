"""Mutations of the devices of a node: what is published, what features bear of it, and who goes on where."""

from __future__ import annotations

from mutations import Mutation

HARDWARE = "gputrace/hardware.py"
PUBLISHED = "gputrace/hardware_published.py"
FEATURES = "gputrace/hardware_features.py"
OWN = "gputrace/hardware_own.py"
GAUGES = "gputrace/hardware_gauges.py"
HANDOVER = "gputrace/node_handover.py"
NODE = "gputrace/node.py"
AGENT = "gputrace/cli/agent.py"
OF_PUBLISHED = "tests/test_hardware_published.py::"
OF_FEATURES = "tests/test_hardware_features.py::"
OF_HARDWARE = "tests/test_hardware.py::"
OF_ROLES = "tests/test_hardware_roles.py::"
OF_DRIVER = "tests/test_hardware_driver.py::"
OF_HANDOVER = "tests/test_node_handover.py::"
OF_AGENT = "tests/cli/test_agent.py::"
MUTATIONS = [
    Mutation(
        "killed: what entered since the last tick is not counted",
        "gputrace/node_reader.py",
        "        max(accepted, node_layout.read_entered(read_at)),",
        "        accepted,",
        "tests/test_hardware_exports.py::"
        "test_what_a_killed_process_accepted_and_did_not_export_is_lost_to_the_call",
    ),
    Mutation(
        "killed: what was exported since the last tick is not counted",
        "gputrace/settler_counts.py",
        "        self._exported = self._shown\n        self.tell()",
        "        pass",
        "tests/test_hardware_exports.py::"
        "test_what_a_killed_process_accepted_and_did_not_export_is_lost_to_the_call",
    ),
    Mutation(
        "published: the last seconds of a GPU that fell off the bus are in no state",
        "gputrace/hardware.py",
        "                silent = self._errors.silent(published.device.id)",
        "                silent = False",
        "tests/test_hardware_driver.py::test_a_gpu_that_fell_off_the_bus_is_unknown_to_the_very_end",
    ),
    Mutation(
        "published: a gap between two readings is told with the reading after it",
        PUBLISHED,
        "                yield from self._told(self._told_ns, reading.start_ns, None, held_between)",
        "                yield from self._told(self._told_ns, reading.start_ns, reading, held_between)",
        OF_PUBLISHED + "test_time_between_two_readings_is_unknown_unless_it_was_held",
    ),
    Mutation(
        "published: a reading that came too late speaks for the rest",
        PUBLISHED,
        "            whole = reading if reading.start_ns == self._told_ns else None",
        "            whole = reading",
        OF_PUBLISHED + "test_a_reading_that_comes_too_late_for_a_part_says_nothing_of_the_rest",
    ),
    Mutation(
        "published: what may have been held is idle",
        PUBLISHED,
        "        doubtful_ns = min(missed_ns, split.idle_ns)",
        "        doubtful_ns = 0",
        OF_PUBLISHED + "test_what_may_have_been_held_is_unknown_and_never_idle",
    ),
    Mutation(
        "published: more may have been held than there was idle time",
        PUBLISHED,
        "        doubtful_ns = min(missed_ns, split.idle_ns)",
        "        doubtful_ns = missed_ns",
        OF_PUBLISHED + "test_the_states_sum_to_the_time_that_was_told",
    ),
    Mutation(
        "published: a driver that never answers is waited for for ever",
        PUBLISHED,
        "        if final_ns - self._told_ns > PATIENCE_NS and not self._waiting:",
        "        if False:",
        OF_PUBLISHED + "test_without_a_reading_time_is_unknown_once_it_was_waited_for",
    ),
    Mutation(
        "published: the window begins with the first reading, whoever held before",
        PUBLISHED,
        "self._begin(reading.start_ns if held_ns is None else min(held_ns, reading.start_ns))",
        "self._begin(reading.start_ns)",
        OF_PUBLISHED + "test_the_window_begins_with_a_holder_before_the_first_reading",
    ),
    Mutation(
        "published: a publisher that goes on begins another window",
        PUBLISHED,
        "        self._begun = not_before_ns is None",
        "        self._begun = False",
        OF_PUBLISHED + "test_a_publisher_that_goes_on_has_no_window_to_begin",
    ),
    Mutation(
        "published: time of another publisher is told too",
        PUBLISHED,
        "        self.frontier_ns = self._told_ns = at_ns",
        "        self.frontier_ns = at_ns",
        OF_PUBLISHED + "test_after_a_time_in_which_another_process_published_it_goes_on_from_there",
    ),
    Mutation(
        "published: energy of two sources is one sum",
        PUBLISHED,
        "            (source, split_name(shared)), dict",
        '            ("counter", split_name(shared)), dict',
        OF_PUBLISHED + "test_energy_is_split_by_time_until_idle_power_was_seen_and_the_two_are_never_mixed",
    ),
    Mutation(
        "published: the energy of unknown time is nobody's",
        PUBLISHED,
        '        states["unknown"] += shared.unknown_uj',
        '        states["unknown"] += 0',
        OF_PUBLISHED + "test_the_energy_sums_to_the_measurement_by_source",
    ),
    Mutation(
        "published: a series moves when its name is told late",
        PUBLISHED,
        "        if self._label is None:",
        "        if True:",
        OF_PUBLISHED + "test_a_name_that_is_told_late_counts_until_the_device_was_shown",
    ),
    Mutation(
        "features: a stretch counts whole in each period that it touches",
        FEATURES,
        "                part = _part(amount, before_ns, within_ns, length_ns)",
        "                part = amount",
        OF_FEATURES + "test_periods_that_follow_each_other_lose_nothing_of_a_stretch",
    ),
    Mutation(
        "features: parts of a stretch are rounded one by one",
        FEATURES,
        "    return amount * (before_ns + within_ns) // length_ns - amount * before_ns // length_ns",
        "    return amount * within_ns // length_ns",
        OF_FEATURES + "test_periods_that_follow_each_other_lose_nothing_of_a_stretch",
    ),
    Mutation(
        "features: this process bears the energy of all processes",
        FEATURES,
        "        own_uj = all_uj * min(held_ns, told.split.charged_ns) // told.split.charged_ns",
        "        own_uj = all_uj",
        OF_FEATURES + "test_another_process_bears_its_part_in_proportion_to_what_it_held",
    ),
    Mutation(
        "features: a hold that came too late bears more than the device drew",
        FEATURES,
        "min(held_ns, told.split.charged_ns) //",
        "held_ns //",
        OF_FEATURES + "test_a_hold_that_came_too_late_for_the_device_bears_no_more_than_that_did",
    ),
    Mutation(
        "features: a busy share is told of periods in which another process held too",
        FEATURES,
        "        if alone and held_ns == told.split.charged_ns:",
        "        if alone:",
        OF_FEATURES + "test_a_period_that_others_may_have_had_a_part_in_tells_no_busy_share",
    ),
    Mutation(
        "features: a busy share is told of periods in which somebody may have held",
        FEATURES,
        "alone and not told.any_missed and",
        "alone and",
        OF_FEATURES + "test_a_period_that_others_may_have_had_a_part_in_tells_no_busy_share",
    ),
    Mutation(
        "features: a busy share is told of periods in which processes held at once",
        FEATURES,
        " and device.overlap_ns <= told.start_ns",
        "",
        OF_FEATURES + "test_a_period_that_others_may_have_had_a_part_in_tells_no_busy_share",
    ),
    Mutation(
        "own: a busy share is told although others declared the device",
        OWN,
        "alone=device_id not in others)",
        "alone=True)",
        OF_ROLES + "test_where_another_program_may_hold_the_device_too_there_is_no_busy_share",
    ),
    Mutation(
        "own: what this process does not hold is read",
        OWN,
        "        if reading.device not in self._frontiers:\n            return",
        "        self._frontiers.setdefault(reading.device, reading.end_ns)",
        OF_ROLES + "test_what_a_program_does_not_hold_it_keeps_no_reading_of",
    ),
    Mutation(
        "roles: no word is left when an agent takes the role",
        HARDWARE,
        "        self._advance(now_ns, last)\n        self._leave_word()",
        "        self._advance(now_ns, last)",
        OF_ROLES + "test_the_agent_takes_the_role_and_nothing_is_charged_twice_or_lost",
    ),
    Mutation(
        "roles: what became final in the tick that gives way is lost",
        HARDWARE,
        "        self._advance(now_ns, last)\n        self._leave_word()",
        "        self._leave_word()",
        OF_ROLES + "test_the_agent_takes_the_role_and_nothing_is_charged_twice_or_lost",
    ),
    Mutation(
        "roles: what a reader sees is shown again by the next publisher",
        HARDWARE,
        "            self._leave_word()\n            self._seen_ns = self._now_ns",
        "            self._seen_ns = self._now_ns",
        OF_ROLES + "test_a_publisher_that_is_killed_is_resumed_where_it_was_seen_last",
    ),
    Mutation(
        "roles: what the last publisher left untold is nobody's",
        HARDWARE,
        "            if shown.untold_ns:",
        "            if False:",
        OF_ROLES + "test_what_the_first_left_untold_is_unknown_by_the_second",
    ),
    Mutation(
        "roles: what the dead held is removed before it was seen",
        HARDWARE,
        "self.node.reap(shown_ns))",
        "self.node.reap())",
        OF_ROLES + "test_what_the_dead_held_stays_until_a_reader_saw_it",
    ),
    Mutation(
        "costs: what a process that stalled held is not billed",
        HARDWARE,
        "        start_ns = min(published.frontier_ns, end_ns - increment.charged_ns)",
        "        start_ns = published.frontier_ns",
        OF_HARDWARE + "test_what_a_process_that_stalled_held_is_billed",
    ),
    Mutation(
        "driver: a GPU in slices is published beside them",
        HARDWARE,
        "            elif not device.sliced:",
        "            else:",
        OF_DRIVER + "test_a_gpu_in_slices_is_not_published_and_its_slices_are",
    ),
    Mutation(
        "driver: a name that is told late is not believed",
        HARDWARE,
        "                published.named(device.name, device.parent)",
        "                pass",
        OF_HARDWARE + "test_a_driver_that_names_devices_late",
    ),
    Mutation(
        "driver: an error counts for as long as it lasts",
        GAUGES,
        "            if self._troubled.get(uuid) != reason:",
        "            if True:",
        OF_DRIVER + "test_errors_count_each_time_that_a_device_stops_answering",
    ),
    Mutation(
        "driver: an old utilisation is shown as the present",
        GAUGES,
        "            if busy is not None and latest.at_ns - busy[0] <= _STALE_NS:",
        "            if busy is not None:",
        OF_DRIVER + "test_what_was_read_long_ago_is_not_shown_as_the_present",
    ),
    Mutation(
        "driver: hw.* is shown although another exporter has it",
        HARDWARE,
        "            if self._standard_metrics:",
        "            if True:",
        OF_DRIVER + "test_without_hw_metrics_the_rest_is_shown",
    ),
    Mutation(
        "end: a reading that came after the last tick is not told",
        HARDWARE,
        "        self._advance(now_ns, self.node.conclude(now_ns))",
        "        self._hold_all(self.node.conclude(now_ns))",
        OF_HARDWARE + "test_at_the_end_everything_that_is_known_is_told",
    ),
    Mutation(
        "end: a file number is closed twice",
        "gputrace/node_files.py",
        "        descriptor, self._descriptor = self._descriptor, None",
        "        descriptor = self._descriptor",
        OF_HARDWARE + "test_after_the_end_it_can_begin_anew",
    ),
    Mutation(
        "end: a call that goes on holds nothing after a new beginning",
        HARDWARE,
        "                    self.node.ring.start(device_id, now_ns)",
        "                    pass",
        OF_HARDWARE + "test_after_the_end_it_can_begin_anew",
    ),
    Mutation(
        "fork: what is forgotten is not closed",
        HARDWARE,
        "        self.closed = True\n        self.node.forget()",
        "        self.node.forget()",
        OF_HARDWARE + "test_a_forked_child_leaves_everything_to_its_parent",
    ),
    Mutation(
        "handover: the clock of another boot is believed",
        HANDOVER,
        '        if found["boot"] != node_folder.boot_id():\n            return {}',
        '        found["boot"]',
        OF_HANDOVER + "test_the_clock_of_another_boot_means_nothing",
    ),
    Mutation(
        "handover: word of long ago is resumed",
        NODE,
        "for device_id, one in shown.items() if one.final_ns >= since_ns}",
        "for device_id, one in shown.items()}",
        OF_HANDOVER + "test_word_from_before_this_process_began_is_not_resumed",
    ),
    Mutation(
        "handover: what nobody showed since this process began is lost",
        NODE,
        "        begins_ns = now_ns if found is None else since_ns",
        "        begins_ns = now_ns",
        OF_HANDOVER + "test_what_no_word_speaks_of_was_never_shown",
    ),
    Mutation(
        "handover: anybody leaves word",
        NODE,
        "        if self.is_publisher and self.folder is not None:\n            node_handover",
        "        if self.folder is not None:\n            node_handover",
        OF_HANDOVER + "test_only_the_publisher_leaves_word",
    ),
    Mutation(
        "costs: the price in force does not say where it is from",
        "gputrace/costs.py",
        "                    catalogue.PRICE_SOURCE: price.source,",
        "                    catalogue.PRICE_SOURCE: None,",
        OF_HARDWARE + "test_the_price_in_force_says_where_it_is_from",
    ),
    Mutation(
        "agent: bad settings are no failure",
        AGENT,
        '        print(f"gputrace agent: {error}", file=sys.stderr)\n        return FAILED',
        '        print(f"gputrace agent: {error}", file=sys.stderr)\n        return 0',
        OF_AGENT + "test_a_setting_that_cannot_be_used_is_one_line",
    ),
    Mutation(
        "agent: SIGTERM kills it",
        "gputrace/cli/stopping.py",
        "        for number in (signal.SIGTERM, signal.SIGINT):",
        "        for number in (signal.SIGINT,):",
        OF_AGENT + "test_a_signal_ends_it_well",
    ),
]
