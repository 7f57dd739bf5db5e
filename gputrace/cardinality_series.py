"""Which series a call is counted under: its metric attributes, as the cap lets them be named."""

from __future__ import annotations

from collections import deque
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from gputrace import catalogue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gputrace.accounts import Account
    from gputrace.attribution import Attribution
    from gputrace.call import Call
    from gputrace.cardinality import Cap, Series

_fields = attrgetter("feature", "model", "variant", "stage")

#: Combinations whose series are remembered: those that never come again must not pile up.
_REMEMBERED_LIMIT = 4_096


class CallSeries:
    """The series of calls, remembered by what the calls are billed to.

    By value, not by identity: each request makes an attribution of its own. And
    by no more than metrics show: tenants that fold, or that nobody opted in, are
    all alike.

    Args:
        cap: Which names there are.

    Attributes:
        cap: ``cap``.
    """

    def __init__(self, cap: Cap) -> None:
        self.cap = cap
        self._declared: deque[dict[str, str]] = deque()
        self.apply((), (), ())

    def apply(
        self, metric_attributes: tuple[str, ...], features: tuple[str, ...], models: tuple[str, ...]
    ) -> None:
        """Use other settings from here on.

        Args:
            metric_attributes: Attributes on metrics beyond the defaults.
            features: What ``take_declared`` shows; declared to the cap as well.
            models: Likewise.
        """
        self._with_tenant = "tenant" in metric_attributes
        for feature in features:
            self._declared.append({catalogue.FEATURE: self.cap.value(catalogue.FEATURE, feature)})
        for model in models:
            named = self.cap.value(catalogue.MODEL, model)
            self._declared.append({catalogue.FEATURE: catalogue.NO_FEATURE, catalogue.MODEL: named})
        # Last: what another thread finds meanwhile by the former settings goes into the former memory.
        self._remembered: dict[Any, tuple[Series, int]] = {}

    def take_declared(self) -> Iterator[tuple[Series, Series]]:
        """Yield what is to be shown from the start, once: the series of time and that of calls."""
        while self._declared:
            attributes = self._declared.popleft()
            yield (
                self.cap.series(catalogue.FEATURE_TIME, attributes),
                self.cap.series(catalogue.CALLS, attributes),
            )

    def of_time(self, call: Call, account: Account, billed: Attribution, *, estimated: bool) -> Series:
        """Return the series under which a call's time on a device is counted."""
        remembered = self._remembered
        tenant = self.tenant_shown(billed)
        key = (_fields(billed), tenant, call.site.operation, account, estimated)
        found = remembered.get(key)
        if found is None:
            attributes = self.attributes_of(call, billed, account, estimated=estimated)
            found = self._found(catalogue.FEATURE_TIME, attributes)
            _remember(remembered, key, found)
        return found[0]

    def of_call(self, call: Call, account: Account | None, status: str) -> tuple[Series, int]:
        """Return the series under which a finished call is counted, and how many values were folded."""
        remembered = self._remembered
        billed = call.attribution
        tenant = self.tenant_shown(billed)
        estimated = account is not None and call.timer is not None and call.timer.estimated
        key = (_fields(billed), tenant, call.site.operation, account, estimated, status)
        found = remembered.get(key)
        if found is None:
            attributes = self.attributes_of(call, billed, account, estimated=estimated)
            attributes[catalogue.STATUS] = status
            found = self._found(catalogue.CALLS, attributes)
            _remember(remembered, key, found)
        return found

    def tenant_shown(self, billed: Attribution) -> str | None:
        """Return the tenant as metrics show it: None where nobody asked for tenants on them."""
        return self._tenant(billed) if self._with_tenant else None

    def _tenant(self, attribution: Attribution) -> str | None:
        tenant = attribution.tenant
        return None if tenant is None else self.cap.value(catalogue.TENANT, tenant)

    def attributes_of(
        self, call: Call, attribution: Attribution, account: Account | None, *, estimated: bool
    ) -> dict[str, str]:
        """Return the metric attributes of a call on a device."""
        given = {
            catalogue.FEATURE: attribution.feature or catalogue.NO_FEATURE,
            catalogue.OPERATION: call.site.operation,
            catalogue.MODEL: attribution.model,
            catalogue.VARIANT: attribution.variant,
            catalogue.STAGE: attribution.stage,
        }
        attributes = {name: self.cap.value(name, value) for name, value in given.items() if value is not None}
        tenant = self.tenant_shown(attribution)
        if tenant is not None:
            attributes[catalogue.TENANT] = tenant
        if account is not None:
            attributes[catalogue.TIME_SOURCE] = "estimated" if estimated else account.device.source
            attributes[catalogue.HW_TYPE] = account.device.type
            if account.device.name:
                attributes[catalogue.HW_NAME] = account.device.name
        return attributes

    def _found(self, metric: catalogue.Metric, attributes: dict[str, str]) -> tuple[Series, int]:
        series = self.cap.series(metric, attributes)
        return series, sum(series.attributes.get(name) == catalogue.OTHER for name in attributes)


def _remember(remembered: dict[Any, tuple[Series, int]], key: Any, found: tuple[Series, int]) -> None:
    if len(remembered) >= _REMEMBERED_LIMIT:
        remembered.clear()
    remembered[key] = found
