"""Boards and rules, made from the catalogue: nothing here can ask for a metric that gputrace does not emit."""
