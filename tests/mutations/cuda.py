"""Mutations of what is known of CUDA's events: each practical line of theirs, and the test that holds it."""

from __future__ import annotations

from mutations import Mutation

CUDA = "gputrace/devices/cuda.py"
DEVICE = "gputrace/devices/cuda_device.py"
CLOCK = "gputrace/devices/cuda_clock.py"
CAPTURE = "gputrace/devices/cuda_capture.py"
FOLLOWING = "gputrace/following.py"
TIMING = "tests/devices/test_cuda.py::"
CALLS = "tests/devices/test_cuda_calls.py::"
OF_CAPTURE = "tests/devices/test_cuda_capture.py::"
OF_CLOCK = "tests/devices/test_cuda_clock.py::"

MUTATIONS = [
    Mutation(
        "events: one that nobody recorded has happened",
        CLOCK,
        "            try:\n                self._record(event)\n            except RuntimeError:\n"
        "                self._pool.release(event)\n                raise\n"
        "            self._pending = (event, low_ns)\n",
        "            self._pending = (event, low_ns)\n            self._record(event)\n",
        OF_CLOCK + "test_a_reference_that_could_not_be_recorded_has_not_happened",
    ),
    Mutation(
        "events: used again once the start was read",
        FOLLOWING,
        "        read -= read & 1\n",
        "",
        CALLS + "test_an_event_is_not_used_again_before_both_of_its_pair_were_read",
    ),
    Mutation(
        "events: those of a stream of steps are kept to its end",
        FOLLOWING,
        "if read > 2 or (read and not closed):",
        "if read and closed:",
        CALLS + "test_a_stream_of_steps_gives_its_events_back_pair_by_pair",
    ),
    Mutation(
        "events: one pool for all devices",
        DEVICE,
        "        self.pool = EventPool(functools.partial(found.Event, enable_timing=True))",
        "        self.pool = _devices[0].pool if _devices else "
        "EventPool(functools.partial(found.Event, enable_timing=True))",
        CALLS + "test_events_stay_on_the_device_that_recorded_them_first",
    ),
    Mutation(
        "events: made without timing, as torch's default is",
        DEVICE,
        "enable_timing=True",
        "enable_timing=False",
        TIMING + "test_a_call_is_timed_on_the_current_stream_of_the_current_device",
    ),
    Mutation(
        "events: asked for the time while they have not happened",
        DEVICE,
        "                if not event.query():\n                    return None\n",
        "",
        CALLS + "test_a_kernel_that_has_not_ended_is_asked_about_and_never_waited_for",
    ),
    Mutation(
        "clock: the reference is never renewed",
        CLOCK,
        "if not self._references or self._age_ns() >= self._renewal_ns:",
        "if not self._references:",
        OF_CLOCK + "test_hours_of_calls_are_told_to_the_microsecond",
    ),
    Mutation(
        "clock: an event is measured from the newest reference, however far",
        CLOCK,
        "        if abs(ticks - newest.ticks) <= _PRECISE_NS:\n            return ticks\n",
        "        if newest:\n            return ticks\n",
        OF_CLOCK + "test_an_event_in_flight_across_renewals_stays_readable",
    ),
    Mutation(
        "clock: after an idle hour the old reference serves",
        CLOCK,
        "if not self._references or self._age_ns() > _PRECISE_NS:",
        "if not self._references:",
        OF_CLOCK + "test_after_an_idle_hour_a_call_waits_for_a_new_reference",
    ),
    Mutation(
        "capture: polling does not exchange the thread's mode",
        CAPTURE,
        "    previous = _exchange(RELAXED)",
        "    previous: int | None = 0",
        CALLS
        + "test_a_tick_in_the_background_breaks_no_capture "
        + OF_CAPTURE
        + "test_polling_in_the_background_breaks_no_capture",
    ),
    Mutation(
        "capture: polled although the mode cannot be exchanged",
        CAPTURE,
        "        _thread.forbidden = not users_thread or runtime.is_current_stream_capturing()",
        "        _thread.forbidden = False",
        CALLS + "test_where_the_mode_cannot_be_exchanged_a_capture_waits_for_no_tick",
    ),
    Mutation(
        "capture: the user's thread polls while it captures",
        CAPTURE,
        "        _thread.forbidden = not users_thread or runtime.is_current_stream_capturing()",
        "        _thread.forbidden = not users_thread",
        CALLS + "test_where_the_mode_cannot_be_exchanged_a_capture_waits_for_no_tick",
    ),
    Mutation(
        "capture: a call within one is marked",
        CUDA,
        "        if found.is_current_stream_capturing():\n            self.unmeasured = GRAPH_CAPTURE\n"
        "            return\n",
        "",
        OF_CAPTURE + "test_a_call_inside_a_capture_is_not_measured_and_the_capture_holds",
    ),
    Mutation(
        "capture: the end of a call is marked within one",
        CUDA,
        "            elif self._capturing():",
        "            elif self._capturing() and not self.slots:",
        OF_CAPTURE + "test_a_call_that_ends_inside_a_capture_is_not_measured",
    ),
    Mutation(
        "calls: one whose end cannot be recorded is charged until it is concluded",
        FOLLOWING,
        "        if not self.broken and self.read & 1:",
        "        if not self.broken and not self.read:",
        CALLS + "test_a_step_whose_end_cannot_be_recorded_is_charged_no_further",
    ),
    Mutation(
        "calls: a lost device is charged until the code on the host ends",
        "gputrace/settler.py",
        "            if lane.is_silent():",
        "            if False:",
        CALLS + "test_a_device_lost_under_a_call_that_goes_on_is_charged_no_further",
    ),
    Mutation(
        "calls: a lost device is an exception of the user's",
        CUDA,
        "            events = self._record()\n        except RuntimeError as error:",
        "            events = self._record()\n        except ZeroDivisionError as error:",
        CALLS + "test_a_device_lost_in_a_call_leaves_it_unmeasured_and_the_rest_as_it_was",
    ),
    Mutation(
        "calls: what is cancelled has no end",
        "gputrace/call.py",
        "    call.pending = True\n    try:\n        timer = call.timer\n"
        "        call.marks.append(clock() if timer is None else timer.mark())",
        "    call.pending = True\n    try:\n        timer = call.timer\n"
        "        if error is None:\n"
        "            call.marks.append(clock() if timer is None else timer.mark())",
        CALLS
        + "test_a_cancelled_call_is_charged_what_its_kernels_take "
        + CALLS
        + "test_a_failed_call_is_charged_what_its_kernels_take",
    ),
    Mutation(
        "calls: another stream at exit is not noticed",
        CUDA,
        "                self.estimated = self.estimated or current != slot.stream",
        "                self.estimated = False",
        TIMING + "test_leaving_on_another_stream_is_an_estimate",
    ),
]
