"""A real two-model service on this machine, and the report of what it spent.

What ``gputrace demo`` runs: models trained on the spot (:mod:`.models`), a FastAPI
service (:mod:`.service`) that a separate process puts under load (:mod:`.load`), and
a driver (:mod:`.driver`) that measures with its own clocks (:mod:`.truth`) what the
report ought to say.
"""
