"""Instrumentation of frameworks; imported as ``gputrace.integrations``."""
