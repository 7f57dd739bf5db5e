"""What time is charged on: GPUs timed with events, and the host that stands in for one."""
