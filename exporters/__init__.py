"""Where telemetry goes; imported as ``gputrace.exporters``."""
