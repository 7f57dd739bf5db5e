"""``current``: how user code asks what its work is billed to, and changes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputrace import attribution, catalogue
from gputrace.attribution import (
    UNNAMED,
    Scope,
    current_scope,
    enclosing_call,
    scope_in_force,
    tolerated_fields,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gputrace.attribution import Attribution
    from gputrace.call import Call


class Current:
    """A view of the scope in force when it was asked for; see :func:`current`."""

    __slots__ = ("_scope",)

    def __init__(self, scope: Scope | Call | None) -> None:
        self._scope = scope

    @property
    def attribution(self) -> Attribution:
        """What work started now is billed to."""
        return self._scope.attribution if self._scope is not None else UNNAMED

    @property
    def feature(self) -> str:
        """The feature that work started now is billed to, ``__none__`` if nobody named one."""
        return self.attribution.feature or catalogue.NO_FEATURE

    @property
    def tenant(self) -> str | None:
        """The tenant that work started now is billed to."""
        return self.attribution.tenant

    @property
    def call_id(self) -> str | None:
        """Identity of the innermost open call, None outside of any."""
        call = enclosing_call(self._scope)
        return None if call is None else call.id

    def set(
        self,
        feature: str | None = None,
        *,
        tenant: str | None = None,
        model: str | None = None,
        variant: str | None = None,
        stage: str | None = None,
    ) -> None:
        """Change what the running scope is billed to, from now on.

        The call that is open keeps what it was already charged under its
        former name if that was published; all the rest goes to the new one.
        """
        given = {"feature": feature, "tenant": tenant, "model": model, "variant": variant, "stage": stage}
        fields = tolerated_fields(given, "current().set")
        scope = self._scope
        call = enclosing_call(scope)
        over = call is None or call.closed
        if scope is None or scope is attribution.outermost or (scope is call and over):
            # What a call was charged stays where it is, though work that it started goes on.
            # What encloses the whole process is not for one part of it to change.
            scope = Scope(self.attribution, None if over else call)
            current_scope.set(scope)
            self._scope = scope
        scope.attribution = scope.attribution.merged(fields)

    def add_units(self, **amounts: float) -> None:
        """Count units of work that were done for what is billed here: ``add_units(tokens=812)``.

        They stay under the feature that is in force now, whatever :meth:`set` says later.

        Args:
            amounts: How many, by name of the unit. A negative one, or one that is no number, is
                left out with one log line.
        """
        count_units(self.attribution, amounts)


#: Counts units of work; the module that counts puts itself here when it is imported.
count_units: Callable[[Attribution, Mapping[str, float]], None] = lambda *_: None  # noqa: E731


def current() -> Current:
    """Return what the current work is billed to, and the means to change it."""
    return Current(scope_in_force())
