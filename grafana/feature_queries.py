"""What the boards of features share: whom they ask for, and what they say without data."""

from __future__ import annotations

from gputrace.grafana import recorded
from gputrace.grafana.promql import Scope

SCOPE = Scope(("currency", "environment", "job", "feature"))
#: Half a history would make everything look as if it had doubled.
COMPARABLE = f"and on () ({SCOPE.seen_before(recorded.FLEET_TIME)})"
NO_SPEND = "No spend: no priced device was used (see Telemetry health)"
NO_COMPARISON = "The range before was not recorded whole"
NO_REQUESTS = "No requests: nothing counts them here"
