"""Mutations of what NVML's bugs call for: one for each row of the table of public reports, by its number."""

from __future__ import annotations

from mutations import Mutation

LIBRARY = "gputrace/devices/nvml_library.py"
SAMPLER = "gputrace/devices/nvml.py"
FOLLOWER = "gputrace/devices/nvml_follower.py"
POLLER = "gputrace/devices/nvml_poller.py"
QUANTITY = "gputrace/devices/nvml_quantity.py"
SAMPLES = "gputrace/devices/nvml_samples.py"
PROCESSES = "gputrace/devices/nvml_processes.py"
WORKER = "gputrace/devices/nvml_worker.py"
ENERGY = "gputrace/devices/energy.py"
VISIBLE = "gputrace/devices/visible.py"
REPORTS = "tests/devices/test_nvml_reports.py::"
LOADING = "tests/devices/test_nvml_loading.py::"
FAULTS = "tests/devices/test_nvml_faults.py::"
OF_PROCESSES = "tests/devices/test_nvml_processes.py::"
OF_ENERGY = "tests/devices/test_energy.py::"
OF_VISIBLE = "tests/devices/test_visible.py::"

MUTATIONS = [
    Mutation(
        "report 01: a process that the driver does not name is idle",
        PROCESSES,
        "return next((one.percent for one in seen if one.pid == pid), None)",
        "return next((one.percent for one in seen if one.pid == pid), 0)",
        OF_PROCESSES + "test_hami_core_112_a_process_that_the_driver_does_not_name_is_unknown_not_idle",
    ),
    Mutation(
        "report 02: the inner id is taken for the host's",
        PROCESSES,
        "return ids[0] if ids",
        "return ids[-1] if ids",
        OF_PROCESSES + "test_nvidia_docker_1483_the_id_on_the_host_is_the_outermost",
    ),
    Mutation(
        "report 02: a container's own id is taken for the host's",
        PROCESSES,
        " and (len(ids) > 1 or namespace == _HOST_NAMESPACE)",
        "",
        OF_PROCESSES + "test_nvidia_docker_1483_the_id_on_the_host_is_the_outermost",
    ),
    Mutation(
        "report 03: percents beyond a hundred are believed",
        SAMPLES,
        "percent if 0 <= percent <= _WHOLE else None",
        "percent",
        REPORTS + "test_nvtop_110_junk_samples_are_dropped",
    ),
    Mutation(
        "report 03: samples of any time are believed",
        SAMPLES,
        "if oldest_us < one[0] <= now_us + AHEAD_US",
        "if one[0]",
        REPORTS + "test_nvtop_110_junk_samples_are_dropped",
    ),
    Mutation(
        "report 03: junk processes are believed",
        PROCESSES,
        "plausible = 0 < pid <= _LARGEST_PID and percent <= _WHOLE",
        "plausible = True",
        OF_PROCESSES + "test_nvtop_110_a_hundred_junk_processes_are_dropped",
    ),
    Mutation(
        "report 03: processes of any time are believed",
        PROCESSES,
        "        if plausible and last_seen_us < at_us <= now_us + AHEAD_US:",
        "        if plausible:",
        OF_PROCESSES + "test_nvtop_110_a_hundred_junk_processes_are_dropped",
    ),
    Mutation(
        "report 04: all processes are of the moment of the call",
        PROCESSES,
        "ProcessActivity(pid, last_seen_us, at_us, percent)",
        "ProcessActivity(pid, last_seen_us, now_us, percent)",
        OF_PROCESSES + "test_go_nvml_51_each_process_has_instants_of_its_own",
    ),
    Mutation(
        "report 04: a list that has grown is not asked for again",
        PROCESSES,
        "            if error.code != INSUFFICIENT_SIZE:\n                raise",
        "            raise",
        OF_PROCESSES + "test_go_nvml_11_a_list_that_has_grown_is_asked_for_again",
    ),
    Mutation(
        "report 05: scrambled ids are believed",
        PROCESSES,
        "    if any(not 0 < pid <= _LARGEST_PID for pid in pids):",
        "    if not pids and found:",
        OF_PROCESSES + "test_nvitop_75_scrambled_ids_are_refused",
    ),
    Mutation(
        "report 05: an undefined symbol leaves as what the binding raises",
        LIBRARY,
        '    except getattr(binding, "NVMLLibraryMismatchError", ()):\n        raise',
        "    except ZeroDivisionError:\n        raise",
        OF_PROCESSES + "test_pynvml_43_a_library_without_the_newest_function_is_an_old_driver",
    ),
    Mutation(
        "report 05: a scrambled struct leaves as what it turns into",
        LIBRARY,
        "    except (UnicodeDecodeError, MemoryError, OverflowError):",
        "    except ZeroDivisionError:",
        FAULTS + "test_pynvml_50_what_a_scrambled_struct_turns_into_is_refused",
    ),
    Mutation(
        "report 06: Unknown Error from everything is not noticed",
        POLLER,
        "            raise RefusedError(UNKNOWN)",
        "            return",
        REPORTS + "test_nvidia_container_toolkit_48_after_daemon_reload_the_library_is_opened_anew",
    ),
    Mutation(
        "report 06: a library that answers Unknown Error is not opened anew",
        SAMPLER,
        "next((code for code in codes if code in LIBRARY_GONE | {UNKNOWN}), None)",
        "None",
        REPORTS + "test_nvidia_container_toolkit_48_after_daemon_reload_the_library_is_opened_anew",
    ),
    Mutation(
        "report 06: a library that stays shut is tried at every poll",
        SAMPLER,
        "        if not self._backoff.due(now_ns):\n            return False\n",
        "",
        REPORTS + "test_a_library_that_stays_shut_is_tried_ever_less_often",
    ),
    Mutation(
        "report 07: a library that stays shut is an exception",
        SAMPLER,
        "            self._trouble = error.code\n            return False",
        "            raise",
        LOADING
        + "test_dask_cuda_949_what_keeps_the_library_shut_is_said_and_stops_nothing "
        + LOADING
        + "test_tensorpack_1244_calls_are_timed_while_the_library_does_not_fit",
    ),
    Mutation(
        "report 08: a GPU off the bus takes the others with it",
        FOLLOWER,
        "            self.failed(error.code, now_ns)\n            return None",
        "            raise",
        REPORTS + "test_dcgm_exporter_348_a_gpu_off_the_bus_leaves_the_others_alone",
    ),
    Mutation(
        "report 08: every turn of a device that hangs costs another thread",
        WORKER,
        "            self._hanging[key] = future\n",
        "",
        REPORTS + "test_dcgm_exporter_348_a_call_that_hangs_holds_up_no_other_device",
    ),
    Mutation(
        "report 09: a forked child goes on with what its parent had open",
        SAMPLER,
        "        self._library = Library()",
        "        self._library = vars(self).get('_library') or Library()",
        LOADING + "test_pynvml_16_a_forked_child_opens_the_library_for_itself",
    ),
    Mutation(
        "report 10: the binding is imported with us",
        LIBRARY,
        "#: What the binding calls the codes; the numbers are NVIDIA's and stand for good.",
        "import pynvml",
        LOADING + "test_vllm_32611_importing_and_making_a_sampler_touch_no_driver",
    ),
    Mutation(
        "report 10: making a sampler opens the library",
        SAMPLER,
        "        self._wall_ns = wall_ns\n        self._forget()",
        "        self._wall_ns = wall_ns\n        self._forget()\n        self.sample_once()",
        LOADING + "test_vllm_32611_importing_and_making_a_sampler_touch_no_driver",
    ),
    Mutation(
        "report 10: looking for the driver loads it",
        "gputrace/devices/cuda_runtime.py",
        "mode=no_load | os.RTLD_LAZY",
        "mode=os.RTLD_LAZY",
        "tests/devices/test_cuda_capture.py::test_the_capture_mode_is_exchanged_through_the_loaded_driver",
    ),
    Mutation(
        "report 11: what is no slice's UUID must be a number",
        VISIBLE,
        '    if name.startswith("MIG-"):',
        "    if not int(name):",
        OF_VISIBLE + "test_vllm_41848_an_environment_of_slices_is_no_number",
    ),
    Mutation(
        "report 12: CUDA's order is taken for NVML's",
        VISIBLE,
        "environment.get(ORDER_VARIABLE) == PCI_ORDER or len({gpu.name for gpu in gpus}) <= 1",
        "True",
        OF_VISIBLE + "test_pytorch_90543_the_order_of_different_gpus_is_known_only_where_it_is_pinned",
    ),
    Mutation(
        "report 12: a device is read where it stood before",
        FOLLOWER,
        "            self.poller.resume(handle)",
        "            self.poller.resume(self.poller.handle)",
        REPORTS + "test_gpustack_1633_devices_are_known_by_uuid_wherever_they_stand",
    ),
    Mutation(
        "report 13: a binding that takes bytes alone cannot find a device",
        LIBRARY,
        "    except TypeError:",
        "    except ZeroDivisionError:",
        REPORTS + "test_keepgpu_187_some_bindings_take_the_uuid_as_bytes",
    ),
    Mutation(
        "report 14: no counter is no energy, 0 J",
        POLLER,
        "span, energy_uj, flag = stretch.span, None, None",
        "span, energy_uj, flag = stretch.span, 0, None",
        REPORTS + "test_codecarbon_1316_no_counter_and_no_power_is_no_energy_not_zero",
    ),
    Mutation(
        "report 15: power stands in for a counter that fails later",
        POLLER,
        "        elif energy is None and self._counter.hopeless and",
        "        elif self._counter.never and",
        REPORTS + "test_zeus_181_two_sources_of_energy_never_stand_in_one_sum",
    ),
    Mutation(
        "report 16: a counter that goes backwards is an unsigned difference",
        ENERGY,
        "        if drawn_mj < 0:\n            return RESET\n",
        "        if drawn_mj < 0:\n            return None\n",
        REPORTS
        + "test_xpumanager_130_a_counter_that_lies_is_missing "
        + OF_ENERGY
        + "test_xpumanager_130_a_counter_that_goes_backwards_is_missing_not_terawatts",
    ),
    Mutation(
        "report 16: a counter that is frozen draws nothing",
        ENERGY,
        "            return FROZEN\n",
        "            return None\n",
        REPORTS
        + "test_xpumanager_130_a_counter_that_lies_is_missing "
        + OF_ENERGY
        + "test_amdsmi_38_a_frozen_counter_is_missing_not_zero",
    ),
    Mutation(
        "report 16: any jump of a counter is believed",
        ENERGY,
        "        return IMPLAUSIBLE if drawn_mj * _PJ_PER_MJ > most_pj else None",
        "        return None",
        OF_ENERGY + "test_rocm_smi_lib_180_a_jump_beyond_what_the_device_can_draw_is_missing",
    ),
    Mutation(
        "report 17: a sentinel is a value",
        QUANTITY,
        "    return value in _BLANKS_32 or value == _ALL_ONES_32 or value >= _FIRST_BLANK_64",
        "    return False",
        REPORTS
        + "test_dcgm_83_a_sentinel_is_no_value "
        + REPORTS
        + "test_dcgm_83_a_limit_that_is_a_sentinel_makes_no_energy_implausible",
    ),
    Mutation(
        "report 18: what was shown last is shown for good",
        SAMPLER,
        "return poller.gauges if age_ns <= STALE_POLLS * self._interval_ns else None",
        "return poller.gauges if age_ns >= 0 else None",
        REPORTS + "test_pai_889_what_is_stale_is_not_shown",
    ),
    Mutation(
        "report 19: a call is charged as busy as the device is",
        "gputrace/devices/readings.py",
        "        charged_ns=held_ns,",
        "        charged_ns=busy_ns,",
        "tests/devices/test_readings.py::test_nvidia_docker_807_utilisation_is_no_share_of_the_gpu",
    ),
    Mutation(
        "report 20: each process on a device is shown all of it",
        "gputrace/node_union.py",
        "        charged_ns = _measure(union)",
        "        charged_ns = _measure(held)",
        "tests/test_node_processes.py::"
        "test_dcgm_exporter_587_processes_that_share_a_gpu_by_time_slices_sum_to_one_gpu",
    ),
    Mutation(
        "errors: what stands in a refused field is a value",
        QUANTITY,
        "    if field.nvmlReturn != 0:",
        "    if field.nvmlReturn < 0:",
        REPORTS + "test_a_field_of_many_may_be_refused_by_itself",
    ),
    Mutation(
        "errors: a quantity that is refused is 0",
        QUANTITY,
        "            self._backoff.failed(now_ns)\n            return None",
        "            self._backoff.failed(now_ns)\n            return 0",
        FAULTS + "test_every_error_from_the_start_and_later",
    ),
    Mutation(
        "errors: those of a slice cost its GPU its readings",
        "gputrace/devices/nvml_devices.py",
        "            # Places stay empty where fewer slices were cut, and one lost slice is not all.\n"
        "            continue",
        "            raise",
        FAULTS + "test_an_error_of_a_slice_costs_neither_its_gpu_nor_the_other_slice",
    ),
    Mutation(
        "errors: a list that is refused is empty",
        PROCESSES,
        "        if error.code == NOT_FOUND:\n            return []\n        raise",
        "        return []",
        OF_PROCESSES + "test_slices_tell_no_processes",
    ),
]
