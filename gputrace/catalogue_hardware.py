"""The metrics of what the driver says of GPUs, named by OpenTelemetry; see ``gputrace.catalogue``."""

from __future__ import annotations

from gputrace.catalogue_attributes import ENERGY_SOURCE, ERROR_TYPE, HW_ID, HW_NAME, HW_PARENT, HW_TYPE
from gputrace.catalogue_kinds import Kind, Metric

_HARDWARE_FAMILY = (HW_ID, HW_TYPE, HW_NAME, HW_PARENT)

HW_GPU_UTILIZATION = Metric(
    "hw.gpu.utilization",
    Kind.GAUGE,
    "1",
    "Share of the last sample period in which any kernel ran; not how much of the GPU it used.",
    _HARDWARE_FAMILY,
    "hw_gpu_utilization_ratio",
)
HW_GPU_MEMORY_USAGE = Metric(
    "hw.gpu.memory.usage",
    Kind.UP_DOWN_COUNTER,
    "By",
    "GPU memory in use.",
    _HARDWARE_FAMILY,
    "hw_gpu_memory_usage_bytes",
)
HW_GPU_MEMORY_LIMIT = Metric(
    "hw.gpu.memory.limit",
    Kind.UP_DOWN_COUNTER,
    "By",
    "GPU memory that there is.",
    _HARDWARE_FAMILY,
    "hw_gpu_memory_limit_bytes",
)
HW_ENERGY = Metric(
    "hw.energy",
    Kind.COUNTER,
    "J",
    "Energy that the device drew in the periods that were read.",
    (*_HARDWARE_FAMILY, ENERGY_SOURCE),
    "hw_energy_joules_total",
)
HW_POWER = Metric(
    "hw.power",
    Kind.GAUGE,
    "W",
    "Power that the device draws.",
    _HARDWARE_FAMILY,
    "hw_power_watts",
)
HW_TEMPERATURE = Metric(
    "hw.temperature",
    Kind.GAUGE,
    "Cel",
    "Temperature of the device.",
    _HARDWARE_FAMILY,
    "hw_temperature_celsius",
)
HW_ERRORS = Metric(
    "hw.errors",
    Kind.COUNTER,
    "{error}",
    "Times that the driver refused to read the device, by reason.",
    (*_HARDWARE_FAMILY, ERROR_TYPE),
    "hw_errors_total",
)
