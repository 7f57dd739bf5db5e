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
from opentelemetry.context import Context

from gputrace import catalogue, faults

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

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
_NOWHERE = Context()

#: Links followed outward from a scope: they form a ring where a generator is read by a task that it started.
_DEEPEST = 64


class Attribution:
    """One combination of feature, tenant, model, variant and stage.

    Compared by identity: the hot path looks merged combinations up by it.
    A field that nobody named is None.
    """

    __slots__ = FIELDS

    def __init__(
        self,
        feature: str | None = None,
        tenant: str | None = None,
        model: str | None = None,
        variant: str | None = None,
        stage: str | None = None,
    ) -> None:
        # One by one: every request makes some of these.
        self.feature = feature
        self.tenant = tenant
        self.model = model
        self.variant = variant
        self.stage = stage

    def merged(self, overrides: Mapping[str, str]) -> Attribution:
        """Return the combination in which ``overrides`` win field by field."""
        if not overrides:
            return self
        fields = {name: getattr(self, name) for name in FIELDS}
        fields.update(overrides)
        return Attribution(**fields)

    def __repr__(self) -> str:
        given = {name: getattr(self, name) for name in FIELDS}
        named = ", ".join(f"{name}={value!r}" for name, value in given.items() if value is not None)
        return f"Attribution({named})"


UNNAMED = Attribution()


class Scope:
    """A stretch of work whose attribution was given with :class:`attribute_to`.

    Attributes:
        attribution: What work started from here on is billed to.
        call: The nearest enclosing call, None outside of any.
        block: The ``attribute_to`` that made it: one may be open in several tasks at once.
        previous: What it replaced.
        outside: The OpenTelemetry context around it.
        inside: The one that was attached for it.
    """

    __slots__ = ("attribution", "block", "call", "inside", "outside", "previous")

    def __init__(
        self,
        attribution: Attribution,
        call: Call | None,
        *,
        block: attribute_to | None = None,
        previous: Scope | Call | None = None,
    ) -> None:
        self.attribution = attribution
        self.call = call
        self.block = block
        self.previous = previous
        self.outside = self.inside = _NOWHERE


#: Whether any scope was ever mirrored, or set for the whole process: until then nobody needs to look.
mirrored = False

#: What encloses everything in this process, whatever thread it runs on.
outermost: Scope | Call | None = None

current_scope: ContextVar[Scope | Call | None] = ContextVar("gputrace_scope", default=None)


def scope_in_force() -> Scope | Call | None:
    """Return the innermost scope or call, from either context, else that of the whole process."""
    scope = current_scope.get()
    if scope is None and mirrored:
        scope = context_api.get_current().get(_SCOPE_KEY)  # type: ignore[assignment]
        if scope is None:
            scope = outermost
    return scope


def scope_in(context: Context | None) -> Scope | Call | None:
    """Return the innermost scope or call, where an OpenTelemetry context was handed on by itself.

    Args:
        context: That context; None for the current one.
    """
    scope = current_scope.get()
    if scope is None:
        known = context_api.get_current() if context is None else context
        scope = known.get(_SCOPE_KEY)  # type: ignore[assignment]
    return outermost if scope is None else scope


def unclaimed(fields: Mapping[str, str], scope: Scope | Call | None) -> dict[str, str]:
    """Return those of the fields that a scope leaves open; that of the whole process leaves all."""
    if scope is None or scope is outermost:
        return dict(fields)
    return {name: value for name, value in fields.items() if getattr(scope.attribution, name) is None}


def billed_in(context: Context, fields: Mapping[str, str]) -> Context:
    """Return an OpenTelemetry context in which the fields hold that nobody has named there.

    Args:
        context: The context.
        fields: Came from outside, and rank below every explicit value.
    """
    global mirrored  # noqa: PLW0603 - a latch
    mirrored = True
    outer = scope_in(context)
    billed = UNNAMED if outer is None else outer.attribution
    scope = Scope(billed.merged(unclaimed(fields, outer)), enclosing_call(outer))
    return context_api.set_value(_SCOPE_KEY, scope, context)


def enclose(scope: Scope | Call | None) -> None:
    """Let a scope or call enclose all that begins from here on in this process, on every thread.

    Args:
        scope: Anything more explicit wins over it, field by field; None takes it away.
    """
    global mirrored, outermost  # noqa: PLW0603 - one a process
    mirrored = True
    outermost = scope


_READING = faults.contained("make a string of a value to bill to")


def _text(value: Any) -> str:
    # A string says what it holds: str() of a member of a (str, Enum) is its name in the code.
    text = str.__str__(value) if isinstance(value, str) else str(value)
    return printable(text)


def printable(text: str) -> str:
    """Return a text that every exporter can encode: half a surrogate pair would spoil a whole line."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace").decode("utf-8")
    return text


def _refusal(where: str, name: str, text: str) -> str | None:
    if not text.startswith(catalogue.RESERVED_PREFIX):
        return None
    return (
        f"{where}: {name}={text!r} starts with {catalogue.RESERVED_PREFIX!r}, which is reserved for "
        f"rows like {catalogue.NO_FEATURE!r}; choose another name"
    )


def checked_fields(given: Mapping[str, Any], where: str) -> dict[str, str]:
    """Return the fields that were given, as strings: True, 1 and 1.0 are three values.

    Args:
        given: Field name to value; None means not given.
        where: Who gave them, for the message.

    Raises:
        ValueError: A value starts with ``__``, which is reserved for gputrace's own rows.
    """
    fields = {name: _text(value) for name, value in given.items() if value is not None}
    for name, text in fields.items():
        refusal = _refusal(where, name, text)
        if refusal is not None:
            raise ValueError(refusal)
    return fields


def tolerated_fields(given: Mapping[str, Any], where: str) -> dict[str, str]:
    """Return the fields that are valid, dropping the others with one log line.

    Values that come with a request must not fail it.
    """
    fields = {}
    for name, value in given.items():
        if value is None:
            continue
        with _READING:
            text = _text(value)
            refusal = _refusal(where, name, text)
            if refusal is None:
                fields[name] = text
            else:
                faults.log_once(f"{where}:{name}", "%s; ignored", refusal)
    return fields


def mirror(outermost: Scope, innermost: Scope) -> None:
    """Put scopes into the OpenTelemetry context too, around whatever it holds now."""
    global mirrored  # noqa: PLW0603 - a latch
    mirrored = True
    outermost.outside = context_api.get_current()
    inside = context_api.set_value(_SCOPE_KEY, innermost, outermost.outside)
    innermost.inside = inside
    context_api.attach(inside)


def unmirror(outermost: Scope, innermost: Scope) -> None:
    """Take scopes out of the OpenTelemetry context, where they are in it.

    Not with a token, which only the task that made it could use, and leaving
    alone what others attached in the meantime.
    """
    now = context_api.get_current()
    if now is outermost.inside:
        context_api.attach(outermost.outside)
    elif now.get(_SCOPE_KEY) is innermost:
        context_api.attach(context_api.set_value(_SCOPE_KEY, outermost.outside.get(_SCOPE_KEY), now))


def scopes_within(call: Call, inner: Scope | Call | None) -> list[Scope]:
    """Return the scopes opened in the body of ``call`` and open at ``inner``, the innermost first."""
    found: list[Scope] = []
    for _ in range(_DEEPEST):
        if inner is call:
            return found
        if inner is None:
            break
        if isinstance(inner, Scope):
            found.append(inner)
        inner = inner.previous
    return []


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

    __slots__ = ("_fields",)

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

    def __enter__(self) -> Scope:
        outer = scope_in_force()
        billed = (UNNAMED if outer is None else outer.attribution).merged(self._fields)
        scope = Scope(billed, enclosing_call(outer), block=self, previous=current_scope.get())
        current_scope.set(scope)
        mirror(scope, scope)
        return scope

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # The scope is found in the context, not kept here: other tasks may be in this block too. A generator
        # that another task closes leaves the block in a foreign context, which must not be touched.
        # What it replaced is forgotten: a task that starts its successor in here would else keep them all.
        scope = current_scope.get()
        if isinstance(scope, Scope) and scope.block is self:
            current_scope.set(scope.previous)
            scope.previous = None
        scope = context_api.get_current().get(_SCOPE_KEY)  # type: ignore[assignment]
        if isinstance(scope, Scope) and scope.block is self:
            unmirror(scope, scope)
            scope.outside = scope.inside = _NOWHERE


def enclosing_call(scope: Scope | Call | None) -> Call | None:
    """Return the call that a scope belongs to: itself where it is one."""
    return scope.call if isinstance(scope, Scope) else scope
