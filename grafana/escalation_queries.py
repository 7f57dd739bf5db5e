"""What the rows of the escalation board share: whom they ask for, and what they say without data."""

from __future__ import annotations

from gputrace import catalogue
from gputrace.grafana.promql import Scope, match

SCOPE = Scope(("currency", "environment", "job", "feature", "cascade"))
ESCALATED = match(catalogue.ESCALATION_DECISION, "escalated")
NO_CASCADE = "No cascade decided anything: see docs/cascades.md"
