"""``request``: one unit of service, such as an HTTP request, and what the work inside it comes to."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from gputrace import call as calls, call_closing, catalogue, ledger
from gputrace.attribution import ATTRIBUTE_OF_FIELD, tolerated_fields
from gputrace.call_blocks import OpenCalls
from gputrace.call_site import HOLD_NONE, Site

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from opentelemetry.trace import Span

    from gputrace.attribution import Attribution
    from gputrace.call import Call
    from gputrace.prices_billing import Bill

_SITES_LIMIT = 1024


class RequestSite(Site):
    """The site of requests of one operation: containers, which hold nothing themselves."""

    __slots__ = ()

    is_request = True


_sites: dict[str, RequestSite] = {}


def _site(operation: str) -> RequestSite:
    site = _sites.get(operation)
    if site is None:
        if len(_sites) >= _SITES_LIMIT:
            _sites.clear()
        site = _sites[operation] = RequestSite(operation, {}, hold=HOLD_NONE)
    return site


class Request:
    """One request that is open or not settled yet.

    Attributes:
        call: Its container.
        route: ``http.route`` or the like, under which it is counted; None leaves the operation.
        calls: Tracked calls inside it that are settled.
        charged: What they were charged so far, batches included, in 1/``SCALE`` ns.
        bill: The same by price; None where nothing has a price.
        open: Calls inside it, itself included, that the settler follows.
        expected: Batches that it is a member of and that have not run, one entry each.
    """

    __slots__ = ("bill", "call", "calls", "charged", "expected", "open", "route")

    call: Call

    def __init__(self, route: str | None) -> None:
        self.route = route
        self.calls = 0
        self.charged = 0
        self.bill: Bill | None = None
        self.open = 0
        self.expected: deque[None] = deque()

    @property
    def id(self) -> str:
        """Identity of the request, for outcomes and scores that come later."""
        return self.call.id

    @property
    def attribution(self) -> Attribution:
        """What work inside it is billed to unless it says otherwise."""
        return self.call.attribution

    @property
    def charged_ns(self) -> int:
        """What its calls were charged so far, ns; grows until it is settled."""
        return self.charged // ledger.SCALE

    def describe(
        self,
        *,
        operation: str | None = None,
        route: str | None = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        """Say more about a request that is open: a framework knows the route only once it has chosen it.

        Args:
            operation: Name of the work, such as ``GET /answers/{id}``.
            route: What it is counted under.
            attributes: More attributes for its span.
        """
        call = self.call
        if route is not None:
            self.route = route
        if operation is not None:
            call.site = self._site(operation)
        if call.span is not None:
            if operation is not None:
                call.span.update_name(operation)
            if attributes:
                call.span.set_attributes(attributes)

    def _site(self, operation: str) -> Site:
        return _site(operation)

    def describe_to(self, span: Span) -> None:
        """Write whom the request is billed to, and its id, to a span that someone else makes of it.

        Args:
            span: Such as the server span of a framework.
        """
        if span.is_recording():
            billed = self.attribution
            said = {name: getattr(billed, field) for field, name in ATTRIBUTE_OF_FIELD.items()}
            span.set_attributes({name: value for name, value in said.items() if value is not None})
            span.set_attribute(catalogue.REQUEST_ID, self.id)

    def set(self, **fields: Any) -> None:
        """Change what the request is billed to from now on; as ``current().set``.

        Args:
            **fields: feature, tenant, model, variant or stage.
        """
        self.call.attribution = self.call.attribution.merged(tolerated_fields(fields, "request"))

    def close(
        self, error: BaseException | None = None, *, status: str | None = None, error_type: str | None = None
    ) -> None:
        """End the request now, though its block goes on.

        What is tracked in the rest of the block, such as work after the response was
        sent, is billed to the same feature and linked to the request, but no part of it.
        May be called from any task or thread; only the first time counts.

        Args:
            error: What ended it.
            status: ``error`` or ``cancelled``; what ``error`` says by default, else ok.
            error_type: As ``error.type``, where there is no exception.
        """
        if not self.call.closed:
            call_closing.close(self.call, error, status=status, error_type=error_type)


class request:  # noqa: N801 - used like a function
    """Sum up the tracked work of one request, and bill it to a feature unless it says otherwise.

    A container: it holds no device itself, so that a request which waits is
    charged nothing. Counted by route and feature in ``gputrace.request.*``.

    Args:
        operation: Name of the work, such as ``GET /answers/{id}``.
        route: What it is counted under; the operation by default.
        feature: Product feature that is billed; else that of the enclosing scope.
        tenant: Customer that is billed.
        attributes: More attributes for its span.
    """

    __slots__ = ("_attributes", "_calls", "_fields", "_operation", "_route")

    def __init__(
        self,
        operation: str,
        *,
        route: str | None = None,
        feature: str | None = None,
        tenant: str | None = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        self._operation = operation
        self._route = route
        self._fields = tolerated_fields({"feature": feature, "tenant": tenant}, "request")
        self._attributes = attributes
        self._calls = OpenCalls()

    def __enter__(self) -> Request:
        opened = Request(self._route)
        call = opened.call = calls.enter(_site(self._operation), request=opened)
        if self._fields:
            call.attribution = call.attribution.merged(self._fields)
        if self._attributes and call.span is not None:
            call.span.set_attributes(self._attributes)
        self._calls.entered(call)
        return opened

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        call = self._calls.left()
        if call is None:
            return
        if call.closed:
            call_closing.retire(call)
        else:
            calls.leave(call, error, block=True)
