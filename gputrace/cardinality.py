"""How many names metrics may have: values of each attribute, and attribute sets of each instrument.

The first keep their names for the life of the process, what comes later is
counted as ``__other__``, and nothing ever moves: whether a name folds does not
depend on what was forgotten meanwhile, and once names of a kind fold, no later
one of that kind gets in, whatever the limits are by then.

An instrument folds tenants first, when some two thirds of its sets are taken,
then operations, then variants, so that there is room left for what remains of
later sets. Without such an order the first few thousand tenants would take all
of it, and a new feature could not be told from the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

from gputrace import catalogue
from gputrace.attribution import printable
from gputrace.settings_table import DEFAULT_SET_LIMIT, DEFAULT_VALUE_LIMIT

if TYPE_CHECKING:
    from collections.abc import Iterable

    Key = tuple[str, ...]

#: What has few values by its nature: never folded, so that no time is said to be measured that was not.
CLOSED = frozenset(
    {
        catalogue.STATUS,
        catalogue.TIME_SOURCE,
        catalogue.HW_TYPE,
        catalogue.HW_NAME,
        catalogue.CURRENCY,
        catalogue.ENERGY_SOURCE,
        catalogue.ENERGY_SPLIT,
        catalogue.STEP_PHASE,
        catalogue.STEP_WEIGHTS,
        catalogue.STEP_KIND,
    }
)

#: Features that no user can name: as good as declared, however many others there are.
_ROWS_OF_OUR_OWN = frozenset({catalogue.NO_FEATURE, catalogue.SHARED, catalogue.OVERHEAD, catalogue.OTHER})

Number = TypeVar("Number", int, float)


class _Step(NamedTuple):
    """One way to fold a set, on top of the steps before it.

    Attributes:
        share: Taken up to this share of the room, an instrument lets no more such sets in.
        folds: What becomes ``__other__``.
        spares: Not the declared values.
    """

    share: float
    folds: tuple[str, ...]
    spares: bool = True


_STEPS = (
    _Step(0.70, ()),
    _Step(0.85, (catalogue.TENANT,)),
    _Step(0.92, (catalogue.OPERATION,)),
    _Step(0.96, (catalogue.VARIANT,)),
    _Step(1.00, (catalogue.STAGE, catalogue.MODEL, catalogue.FEATURE)),
)
#: For declared features when even their models must fold: a row from the start, and one for each status.
_DECLARED_STEP = _Step(1.00, (catalogue.MODEL,), spares=False)
_ROWS_OF_DECLARED = 1 + len(catalogue.CALL_STATUSES)
#: What is left, one part in so many and at least so many, is for rows in which everything is folded: one for
#: each combination of what is closed, such as three statuses on two kinds of devices, measured or estimated.
_REST_PART, _LEAST_REST = 25, 12


class Series:
    """One set of metric attributes; compared by identity."""

    __slots__ = ("attributes",)

    def __init__(self, attributes: dict[str, str]) -> None:
        self.attributes = attributes


class _Sets:
    """The attribute sets of one instrument.

    Attributes:
        series: All of them.
        refused: The steps, by number, at which a set was turned away: they stay shut.
    """

    __slots__ = ("refused", "series")

    def __init__(self) -> None:
        self.series: dict[Key, Series] = {}
        self.refused: set[int] = set()

    def admitted(self, attributes: dict[str, str], step: int, most: int) -> Series | None:
        """Return the series of a set, new where there is room; None where it must fold further."""
        series = self.series.get(_key(attributes))
        if series is not None:
            return series
        if step in self.refused or len(self.series) >= most:
            self.refused.add(step)
            return None
        return self.of(attributes)

    def of(self, attributes: dict[str, str]) -> Series:
        """Return the series of a set, new whether there is room or not."""
        return self.series.setdefault(_key(attributes), Series(attributes))


def _key(attributes: dict[str, str]) -> Key:
    # One tuple, not one for each item: there may be thousands of them.
    return (*attributes, *attributes.values())


class Cap:
    """Which attribute values and sets keep their names in this process.

    Args:
        value_limit: Distinct values kept of each attribute.
        set_limit: Attribute sets of an instrument.
        features: Declared up front: they keep their names whatever comes before their first call.
        models: Likewise; where sets run out, a declared feature matters more than its models.
    """

    def __init__(
        self,
        value_limit: int = DEFAULT_VALUE_LIMIT,
        set_limit: int = DEFAULT_SET_LIMIT,
        features: Iterable[str] = (),
        models: Iterable[str] = (),
    ) -> None:
        self._kept: dict[str, set[str]] = {}
        self._full: set[str] = set()
        self._sets: dict[str, _Sets] = {}
        self.apply(value_limit, set_limit, features, models)

    def apply(
        self, value_limit: int, set_limit: int, features: Iterable[str] = (), models: Iterable[str] = ()
    ) -> None:
        """Use other limits from here on; what has a name keeps it, and what was folded stays folded."""
        self._value_limit = value_limit
        declared = {catalogue.FEATURE: features, catalogue.MODEL: models}
        self._declared = {name: frozenset(map(printable, values)) for name, values in declared.items()}
        for name, values in self._declared.items():
            self._kept.setdefault(name, set()).update(values)
        named = max(0, set_limit - max(set_limit // _REST_PART, _LEAST_REST))
        named_features = len(self._declared[catalogue.FEATURE]) + len(_ROWS_OF_OUR_OWN)
        reserved = _ROWS_OF_DECLARED * named_features
        room = named - min(reserved, named // 2)
        self._steps = (*((step, int(room * step.share)) for step in _STEPS), (_DECLARED_STEP, named))

    def value(self, name: str, value: str) -> str:
        """Return a value of an attribute under the name by which it is counted."""
        kept = self._kept.setdefault(name, set())
        if value in kept or (name == catalogue.FEATURE and value in _ROWS_OF_OUR_OWN):
            return value
        value = printable(value)
        if value in kept:
            return value
        if name not in self._full:
            if len(kept) < self._value_limit:
                kept.add(value)
                return value
            self._full.add(name)
        return catalogue.OTHER

    def series(self, metric: catalogue.Metric, attributes: dict[str, str]) -> Series:
        """Return the series under which an instrument counts a set.

        Args:
            metric: The instrument.
            attributes: The set, its values as ``value`` returned them, in the same order each time.
        """
        sets = self._sets.get(metric.name)
        if sets is None:
            sets = self._sets[metric.name] = _Sets()
        for number, (step, most) in enumerate(self._steps):
            attributes = self._folded(attributes, step)
            series = sets.admitted(attributes, number, most)
            if series is not None:
                return series
        # Of its open attributes nothing is told any more, not even which were given.
        rest = {
            name: attributes[name] if name in CLOSED else catalogue.OTHER
            for name in metric.attributes
            if name in attributes or not (name in CLOSED or name == catalogue.TENANT)
        }
        return sets.of(rest)

    def rows(
        self, metric: catalogue.Metric, rows: Iterable[tuple[dict[str, str], Number]]
    ) -> list[tuple[dict[str, str], Number]]:
        """Return the rows of an instrument, those of sets that fold summed.

        Args:
            metric: The instrument.
            rows: Attributes and value.
        """
        shown: dict[Series, Number] = {}
        for attributes, value in rows:
            series = self.series(metric, attributes)
            shown[series] = shown[series] + value if series in shown else value
        return [(series.attributes, value) for series, value in shown.items()]

    def _folded(self, attributes: dict[str, str], step: _Step) -> dict[str, str]:
        folds = [name for name in step.folds if name in attributes]
        if not folds:
            return attributes
        return attributes | {
            name: catalogue.OTHER
            for name in folds
            if not (step.spares and self._is_declared(name, attributes[name]))
        }

    def _is_declared(self, name: str, value: str) -> bool:
        return value in self._declared.get(name, ()) or value in _ROWS_OF_OUR_OWN
