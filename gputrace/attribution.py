"""What the current work is billed to.

An :class:`Attribution` is immutable: a call keeps the one it ends with, and a
later change of the scope cannot move what was already counted. A scope is
mutable: ``current().set(feature=…)`` replaces its attribution, so that a
dependency that runs in a copied context still reaches the request's scope.

Scopes live in a ContextVar and, for code that carries only the OpenTelemetry
context to another thread, in that context too.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from opentelemetry import context as context_api

from gputrace import catalogue, faults

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextvars import Token
    from types import TracebackType

    from opentelemetry.context import Context

    from gputrace.call import Call

FIELDS = ("feature", "tenant", "model", "variant", "stage")

#: The attribute under which each field is exported.
ATTRIBUTE_OF_FIELD = {
    "feature": catalogue.FEATURE,
    "tenant": catalogue.TENANT,
    "model": catalogue.MODEL,
    "variant": catalogue.VARIANT,
    "stage": catalogue.STAGE,
}

_SCOPE_KEY = context_api.create_key("gputrace-scope")


class Attribution:
    """One combination of feature, tenant, model, variant and stage.

    Compared by identity: the hot path looks merged combinations up by it.
    A field that nobody named is None.
    """

    __slots__ = FIELDS

    feature: str | None
    tenant: str | None
    model: str | None
    variant: str | None
    stage: str | None

    def __init__(self, **fields: str | None) -> None:
        for name in FIELDS:
            setattr(self, name, fields.get(name))

    def merged(self, overrides: Mapping[str, str]) -> Attribution:
        """Return the combination in which ``overrides`` win field by field."""
        if not overrides:
            return self
        fields = {name: getattr(self, name) for name in FIELDS}
        fields.update(overrides)
        return Attribution(**fields)

    def __repr__(self) -> str:
        named = ", ".join(f"{name}={getattr(self, name)!r}" for name in FIELDS if getattr(self, name) is not None)
        return f"Attribution({named})"


UNNAMED = Attribution()


class Scope:
    """A stretch of work whose attribution was given with :class:`attribute_to`.

    Attributes:
        attribution: What work started from here on is billed to.
        call: The nearest enclosing call, None outside of any.
    """

    __slots__ = ("attribution", "call")

    def __init__(self, attribution: Attribution, call: Call | None) -> None:
        self.attribution = attribution
        self.call = call


#: Whether any scope was ever mirrored: until then nobody needs to look.
mirrored = False

current_scope: ContextVar[Scope | Call | None] = ContextVar("gputrace_scope", default=None)


def scope_in_force() -> Scope | Call | None:
    """Return the innermost scope or call, from either context."""
    scope = current_scope.get()
    if scope is None and mirrored:
        scope = context_api.get_current().get(_SCOPE_KEY)  # type: ignore[assignment]
    return scope


def checked_fields(given: Mapping[str, Any], where: str) -> dict[str, str]:
    """Return the fields that were given, as strings.

    Args:
        given: Field name to value; None means not given.
        where: Who gave them, for the message.

    Raises:
        ValueError: A value starts with ``__``, which is reserved for gputrace's own rows.
    """
    fields = {}
    for name, value in given.items():
        if value is None:
            continue
        text = str(value)
        if text.startswith(catalogue.RESERVED_PREFIX):
            message = (
                f"{where}: {name}={text!r} starts with {catalogue.RESERVED_PREFIX!r}, which is reserved for "
                f"rows like {catalogue.NO_FEATURE!r}; choose another name"
            )
            raise ValueError(message)
        fields[name] = text
    return fields


def tolerated_fields(given: Mapping[str, Any], where: str) -> dict[str, str]:
    """Return the fields that are valid, dropping the others with one log line.

    Values that come with a request must not fail it.
    """
    fields = {}
    for name, value in given.items():
        try:
            fields.update(checked_fields({name: value}, where))
        except ValueError as error:
            faults.log_once(f"{where}:{name}", "%s; ignored", error)
    return fields


def mirror(scope: Scope | Call | None) -> Token[Context]:
    """Put a scope into the OpenTelemetry context too."""
    global mirrored  # noqa: PLW0603 - a latch
    mirrored = True
    return context_api.attach(context_api.set_value(_SCOPE_KEY, scope))


class attribute_to:  # noqa: N801 - used like a function
    """Bill the tracked work in this block to a feature, tenant, model, variant or stage.

    Only the fields that are given change; the others keep what encloses the
    block. Works with ``with`` in sync and async code.

    Args:
        feature: Product feature, the row of the report.
        tenant: Customer; on spans always, on metrics when opted in.
        model: Model that does the work.
        variant: Variant of the model.
        stage: Stage of a cascade or pipeline.
    """

    __slots__ = ("_fields", "_previous", "_scope", "_token")

    def __init__(
        self,
        feature: str | None = None,
        *,
        tenant: str | None = None,
        model: str | None = None,
        variant: str | None = None,
        stage: str | None = None,
    ) -> None:
        given = {"feature": feature, "tenant": tenant, "model": model, "variant": variant, "stage": stage}
        self._fields = tolerated_fields(given, "attribute_to")
        self._previous: list[Scope | Call | None] = []
        self._scope: list[Scope] = []
        self._token: list[Any] = []

    def __enter__(self) -> Scope:
        outer = scope_in_force()
        scope = Scope(
            (outer.attribution if outer is not None else UNNAMED).merged(self._fields), enclosing_call(outer)
        )
        self._previous.append(current_scope.get())
        self._scope.append(scope)
        current_scope.set(scope)
        self._token.append(mirror(scope))
        return scope

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        scope, previous, token = self._scope.pop(), self._previous.pop(), self._token.pop()
        # A generator that is closed by another task leaves this block in a
        # foreign context, which must not be touched.
        if current_scope.get() is scope:
            current_scope.set(previous)
        if context_api.get_current().get(_SCOPE_KEY) is scope:
            context_api.detach(token)


def enclosing_call(scope: Scope | Call | None) -> Call | None:
    """Return the call that a scope belongs to: itself where it is one."""
    return scope.call if isinstance(scope, Scope) else scope


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
        if self._scope is None:
            self._scope = Scope(UNNAMED, None)
            current_scope.set(self._scope)
        self._scope.attribution = self._scope.attribution.merged(fields)


def current() -> Current:
    """Return what the current work is billed to, and the means to change it."""
    return Current(scope_in_force())
