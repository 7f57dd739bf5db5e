"""Mutations of how telemetry reaches its readers, and of what a fork, an exit and a fault leave behind."""

from __future__ import annotations

from mutations import Mutation

PROCESS = "gputrace/lifecycle_process.py"
RUNTIME = "gputrace/lifecycle_runtime.py"
LIFECYCLE = "gputrace/lifecycle.py"
METRICS = "gputrace/telemetry/metrics.py"
SPANS = "gputrace/telemetry/spans.py"
PROVIDERS = "gputrace/telemetry/providers.py"
DELIVERY = "gputrace/telemetry/delivery.py"
SETTLING = "gputrace/telemetry/settling.py"
USERS = "gputrace/telemetry/users.py"
SETTLER = "gputrace/settler.py"
FAULTS = "gputrace/faults.py"
IDENTITY = "gputrace/identity.py"
FILES = "exporters/file.py"
OF_METRICS = "tests/telemetry/test_metrics.py::"
OF_SPANS = "tests/telemetry/test_spans.py::"
OF_LIFECYCLE = "tests/test_lifecycle.py::"
OF_EXIT = "tests/test_lifecycle_exit.py::"
OF_FORK = "tests/test_lifecycle_fork.py::"
OF_FILES = "tests/exporters/test_file.py::"
OF_OTLP = "tests/exporters/test_otlp.py::"

MUTATIONS = [
    Mutation(
        "fork: the version is found on the thread that collects",
        "gputrace/telemetry/metrics.py",
        "        build = {catalogue.BUILD_VERSION: _version()}\n"
        "        self._observe(meter, catalogue.BUILD_INFO, lambda _: [(build, 1)])\n",
        "        self._observe(meter, catalogue.BUILD_INFO, "
        "lambda _: [({catalogue.BUILD_VERSION: _version()}, 1)])\n",
        "tests/test_lifecycle_fork.py::test_no_thread_of_ours_imports_anything",
    ),
    Mutation(
        "fork: what sends the first request imports on a thread of ours",
        "exporters/otlp.py",
        "import netrc  # noqa: F401\n",
        "",
        "tests/test_lifecycle_fork.py::test_no_thread_of_ours_imports_anything",
    ),
    Mutation(
        "readers: a new series begins with its value",
        METRICS,
        "                value = 0  # noqa: PLW2901 - this time\n",
        "",
        OF_METRICS + "test_every_reader_sees_a_new_series_as_0_first_and_then_its_value",
    ),
    Mutation(
        "readers: all count as one",
        METRICS,
        '            reader = frame.f_locals.get("metric_reader")',
        "            reader = None",
        OF_METRICS + "test_every_reader_sees_a_new_series_as_0_first_and_then_its_value",
    ),
    Mutation(
        "readers: any frame is taken for a collection",
        METRICS,
        '        if frame.f_code.co_name == "collect":',
        "        if True:",
        OF_METRICS + "test_the_reader_is_told_by_the_collection_that_runs_on_this_thread",
    ),
    Mutation(
        "readers: the last collection shows 0",
        METRICS,
        "if key in shown.series or last or not value:",
        "if key in shown.series or not value:",
        OF_METRICS + "test_a_reader_that_will_not_come_again_gets_the_value_at_once",
    ),
    Mutation(
        "readers: each instrument takes a snapshot of its own",
        METRICS,
        "        if asked is None or name in asked:",
        "        if True:",
        OF_METRICS + "test_what_is_collected_together_balances",
    ),
    Mutation(
        "readers: one snapshot for ever",
        METRICS,
        "        if asked is None or name in asked:",
        "        if asked is None:",
        OF_METRICS + "test_every_reader_sees_a_new_series_as_0_first_and_then_its_value",
    ),
    Mutation(
        "flush: leaves readers with a 0",
        USERS,
        "        if owes():\n",
        "        if False:\n",
        OF_METRICS + "test_a_flush_leaves_no_reader_with_a_0_in_place_of_a_value",
    ),
    Mutation(
        "flush: leaves a value to a thread that has yet to export it",
        METRICS,
        "                self._collection.stepped = True",
        "                pass",
        OF_METRICS + "test_a_flush_does_not_leave_a_value_to_another_thread_that_is_still_exporting_it",
    ),
    Mutation(
        "readers: collections overtake each other",
        "gputrace/telemetry/outlets.py",
        "        with self.ordering:",
        "        if True:",
        "tests/telemetry/test_outlets.py",
    ),
    Mutation(
        "flush: collects what Prometheus scrapes",
        USERS,
        'if type(reader).__name__ != "PrometheusMetricReader"',
        "if reader is not None",
        OF_METRICS + "test_a_flush_leaves_scrapes_alone",
    ),
    Mutation(
        "flush: a span processor that flushes waits for itself",
        SETTLER,
        "        self._emit_lock = threading.RLock()",
        "        self._emit_lock = threading.Lock()",
        OF_LIFECYCLE + "test_a_span_processor_that_flushes_does_not_wait_for_itself",
    ),
    Mutation(
        "flush: a signal handler that flushes settles in the midst of settling",
        SETTLER,
        "        if self._settling:\n            return\n",
        "",
        OF_LIFECYCLE + "test_a_signal_handler_that_flushes_does_not_wait_for_what_it_interrupted",
    ),
    Mutation(
        "spans: an unsampled root is not attached",
        SPANS,
        "        context_api.attach(call.context)\n        call.span = span\n",
        "        span.is_recording() and context_api.attach(call.context)\n        call.span = span\n",
        OF_SPANS + "test_an_unsampled_root_is_attached_so_that_nothing_below_begins_a_trace",
    ),
    Mutation(
        "spans: a span ends when it is settled",
        SPANS,
        '        span.end(max(end_ns + wall_offset_ns, getattr(span, "start_time", None) or 0))',
        "        span.end()",
        OF_SPANS + "test_a_span_ends_when_its_call_did_however_late_it_is_settled",
    ),
    Mutation(
        "spans: a step of the wall clock is not followed",
        SPANS,
        "        wall_offset_ns = offset_ns",
        "        pass",
        OF_SPANS + "test_a_wall_clock_that_was_set_is_followed",
    ),
    Mutation(
        "spans: a failing processor reaches the user",
        FAULTS,
        "        return not os.environ.get(RAISE_VARIABLE)",
        "        return False",
        OF_SPANS + "test_a_span_processor_that_fails_is_kept_from_the_user_and_counted",
    ),
    Mutation(
        "configure: after the first call it changes nothing",
        LIFECYCLE,
        "        if not _process.make_missing_providers(chosen) and (endpoint or data_dir):",
        "        if _process.runtime is not None:\n            return\n"
        "        if not _process.make_missing_providers(chosen) and (endpoint or data_dir):",
        OF_LIFECYCLE + "test_what_was_tracked_before_configure_counts",
    ),
    Mutation(
        "configure: a missing meter provider stays missing",
        PROCESS,
        "        if not (no_spans or no_metrics):",
        "        if not no_spans:",
        OF_LIFECYCLE + "test_a_missing_meter_provider_is_made_beside_the_users_tracer_provider",
    ),
    Mutation(
        "configure: a missing tracer provider stays missing",
        PROCESS,
        "        if not (no_spans or no_metrics):",
        "        if not no_metrics:",
        OF_LIFECYCLE + "test_a_missing_tracer_provider_is_made_beside_the_users_meter_provider",
    ),
    Mutation(
        "configure: a provider that was shut down is respected",
        PROCESS,
        "            self._retired = (*self._retired, own.tracer_provider, own.meter_provider)",
        "            pass",
        OF_LIFECYCLE + "test_after_shutdown_configure_begins_again",
    ),
    Mutation(
        "configure: the environment's identity is replaced",
        PROVIDERS,
        "    instance = identity.settled()",
        "    instance = identity.instance_id()",
        OF_LIFECYCLE + "test_the_identity_that_the_environment_gives_is_kept",
    ),
    Mutation(
        "identity: the user's resource is not asked",
        IDENTITY,
        "        _instance_id = _of_providers() or str(uuid.uuid4())",
        "        _instance_id = str(uuid.uuid4())",
        "tests/test_identity.py",
    ),
    Mutation(
        "shutdown: the totals of the user's readers begin anew",
        PROCESS,
        "            self._parked = runtime\n",
        "            pass\n",
        OF_LIFECYCLE + "test_what_the_users_readers_see_never_shrinks",
    ),
    Mutation(
        "shutdown: the user's readers see time go on",
        RUNTIME,
        "        self.instruments.take_snapshot = lambda: final",
        "        del final",
        OF_LIFECYCLE + "test_what_the_users_readers_see_never_shrinks",
    ),
    Mutation(
        "exit: a provider that was set late comes first",
        SPANS,
        "        on_provider()\n",
        "",
        OF_EXIT + "test_the_users_providers_get_what_waited_whenever_they_were_set",
    ),
    Mutation(
        "exit: the exporters of the user's come before us",
        SETTLING,
        "        multi._span_processors = (processor, *processors[:-1])",
        "        pass",
        OF_EXIT + "test_a_provider_that_the_user_shuts_down_gets_what_waited",
    ),
    Mutation(
        "exit: the user's readers are collected once",
        RUNTIME,
        "        if not self.instruments.complete():",
        "        if False:",
        OF_EXIT + "test_the_users_providers_get_what_waited_whenever_they_were_set",
    ),
    Mutation(
        "exit: our own readers are collected once",
        "gputrace/telemetry/outlets.py",
        "        if owes():\n",
        "        if False:\n",
        OF_EXIT + "test_a_flush_exports_values_and_not_only_first_zeros",
    ),
    Mutation(
        "exit: what was lost is not said",
        RUNTIME,
        "    if lost:\n",
        "    if False:\n",
        OF_EXIT + "test_a_collector_that_takes_nothing_holds_no_program_up",
    ),
    Mutation(
        "exit: a collection that hangs is no loss",
        PROVIDERS,
        "        silent = {name for name, task in metrics.items() if not task.succeeded(until[name])}",
        "        silent = {name for name in metrics if self._metric_outlets[name].exporter.undelivered}",
        OF_EXIT + "test_a_collection_that_hangs_is_no_silent_loss",
    ),
    Mutation(
        "exit: spans that were refused are not counted",
        DELIVERY,
        "                self._on_lost(len(batch))",
        "                pass",
        OF_EXIT + "test_spans_that_an_exporter_gave_up_on_are_counted_while_the_program_runs",
    ),
    Mutation(
        "exit: a thread is started",
        "gputrace/telemetry/closing.py",
        "        task = Task(action)\n",
        "        task = Task(action)\n        threading.Thread(target=id, args=(0,)).start()\n",
        OF_EXIT + "test_no_thread_is_started_at_exit",
    ),
    Mutation(
        "fork: the parent's counts are exported once more",
        PROVIDERS,
        "                _renew(self.meter_provider)\n",
        "                pass\n",
        OF_FORK + "test_the_users_own_tracers_and_instruments_go_on_in_a_child",
    ),
    Mutation(
        "fork: histograms begin with the parent's",
        PROVIDERS,
        "            self.histograms.reset()",
        "            pass",
        OF_FORK + "test_histograms_are_a_childs_own_too",
    ),
    Mutation(
        "fork: a child shows the parent's totals",
        PROCESS,
        "            self.instruments.reset(Snapshot)",
        "            pass",
        OF_FORK + "test_with_the_users_providers_a_child_counts_its_own_calls",
    ),
    Mutation(
        "fork: the child is its parent",
        LIFECYCLE,
        "    identity.reset()\n",
        "",
        OF_FORK + "test_a_device_is_a_processes_own",
    ),
    Mutation(
        "fork: children of multiprocessing keep what they counted",
        PROCESS,
        "            pools.Finalize(None, self._at_exit, exitpriority=100)",
        "            pass",
        OF_FORK + "test_children_of_multiprocessing_are_flushed",
    ),
    Mutation(
        "fork: the child waits for a lock of the collection",
        PROVIDERS,
        "    consumer._lock = threading.Lock()  # noqa: SLF001\n",
        "",
        OF_FORK + "test_a_child_waits_for_no_lock_that_its_parent_held",
    ),
    Mutation(
        "fork: the child waits for a lock of the process",
        PROCESS,
        "        self.lock = threading.RLock()\n        self._losing = threading.RLock()\n        if",
        "        if",
        OF_FORK + "test_a_child_waits_for_no_lock_that_its_parent_held",
    ),
    Mutation(
        "fork: a child waits in the SDK's own hook",
        LIFECYCLE,
        "import concurrent.futures.thread  # noqa: F401\n",
        "",
        OF_FORK + "test_a_child_is_not_held_up_by_the_sdks_own_fork_hook",
    ),
    Mutation(
        "fork: recording begins again after shutdown",
        LIFECYCLE,
        "        if _process.stopped:\n            return\n",
        "",
        OF_FORK + "test_a_child_configures_itself_or_stays_unrecorded_after_shutdown",
    ),
    Mutation(
        "files: a child writes to its parent's",
        FILES,
        "        if self._pid != os.getpid():",
        "        if False:",
        OF_FILES + "test_a_forked_child_never_writes_to_its_parents_file",
    ),
    Mutation(
        "files: never rotated",
        FILES,
        "self._size and self._size + len(data) > self._max_bytes",
        "False",
        OF_FILES + "test_files_rotate_by_size_and_the_oldest_go",
    ),
    Mutation(
        "files: the oldest stay",
        FILES,
        "            self._paths.pop(0).unlink(missing_ok=True)",
        "            self._paths.pop(0)",
        OF_FILES + "test_files_rotate_by_size_and_the_oldest_go",
    ),
    Mutation(
        "files: a line that was cut short goes on",
        FILES,
        "            self._cut = bool(view)",
        "            pass",
        OF_FILES + "test_a_line_cut_short_is_the_last_of_its_file",
    ),
    Mutation(
        "files: what cannot be written counts as delivered",
        FILES,
        "        return SpanExportResult.FAILURE if self._lines.failed else result",
        "        return result",
        OF_FILES + "test_a_folder_that_cannot_be_written_is_one_line_and_a_failure_each_time",
    ),
    Mutation(
        "OTLP: histograms are cumulative whatever is preferred",
        DELIVERY,
        "        return temporality is AggregationTemporality.CUMULATIVE and not",
        "        return not",
        OF_OTLP + "test_deltas_where_they_are_preferred_and_never_in_files",
    ),
    Mutation(
        "OTLP: a child talks through its parent's connection",
        DELIVERY,
        "        self._inner = None\n        self.delivered = self.refused = 0",
        "        self.delivered = self.refused = 0",
        OF_OTLP + "test_a_forked_child_has_connections_of_its_own",
    ),
]
