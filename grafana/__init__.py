"""Boards and rules, made from the catalogue: none can ask for a metric that gputrace does not emit."""
