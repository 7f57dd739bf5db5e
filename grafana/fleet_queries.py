"""What boards ask of devices: which of them, and what their time went to."""

from __future__ import annotations

from gputrace import catalogue
from gputrace.grafana.promql import Scope, match

SCOPE = Scope(("environment", "hw_type", "hw_name", "currency"))
#: The bill as a whole: it does not change with the features that are chosen.
FLEET = Scope(("currency", "environment"))
CHARGED = match(catalogue.DEVICE_STATE, "charged")
UNTRACKED = match(catalogue.DEVICE_STATE, "untracked")
IDLE = match(catalogue.DEVICE_STATE, "idle")
UNKNOWN = match(catalogue.DEVICE_STATE, "unknown")
USED = match(catalogue.DEVICE_STATE, "charged|untracked", "=~")
READ = match(catalogue.DEVICE_STATE, "unknown", "!=")
UNREAD = "No device is read here: run `gputrace agent` on the node"
