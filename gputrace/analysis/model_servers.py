"""What the steps of model servers say: who spent them, on which phase, and how far that may be off.

All of it from metric points. A server is one model on devices of one type:
seconds of two types are never added, and two currencies neither.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from gputrace import catalogue

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from gputrace.analysis.readings import Series

    Key = tuple[str | None, str | None]


@dataclass(frozen=True, slots=True)
class Spender:
    """What one feature, or one of its tenants, had of the steps of a server; `None` is unknown.

    Attributes:
        feature: The feature.
        tenant: The tenant, where metrics show tenants.
        charged_s: Charged device time, seconds.
        share: Its part of the server's, 0 to 1.
        share_error: Standard error of the share, that of the weights alone, 0 to 1; of features alone.
        prefill_s: Of the charged time, that of prompt tokens.
        decode_s: That of tokens beyond the prompt.
        other_s: That of steps whose work is unknown, or that served nobody.
        tokens: By kind.
        cached_s: What tokens from the prefix cache would have taken.
        recomputed_s: Of the charged time, that of tokens that were computed once more.
    """

    feature: str
    tenant: str | None
    charged_s: float
    share: float | None
    share_error: float | None
    prefill_s: float
    decode_s: float
    other_s: float
    tokens: Mapping[str, int]
    cached_s: float
    recomputed_s: float


@dataclass(frozen=True, slots=True)
class Weight:
    """How long one of something takes, in steps of one regime on one kind of device.

    Attributes:
        device: `hw.name`.
        regime: Prompt tokens of the steps, of `catalogue.STEP_REGIMES`.
        coefficient: What, of `catalogue.STEP_COEFFICIENTS`.
        value_s: Seconds.
        error_s: Standard error.
        residual: Median of how far steps are off what the weights expect, as a part of that.
        steps: How many they are learnt from.
        version: How often they were learnt.
    """

    device: str | None
    regime: str
    coefficient: str
    value_s: float
    error_s: float | None
    residual: float | None
    steps: int | None
    version: int | None


@dataclass(frozen=True, slots=True)
class ModelServer:
    """One model on devices of one type; `None` is unknown.

    Attributes:
        model: The model.
        type: `hw.type` of its devices.
        steps: How many it took.
        sequences: How many a step served in the mean.
        charged_s: Charged device time, seconds.
        prefill_s: Of that, prompt tokens.
        decode_s: Tokens beyond the prompt.
        other_s: Steps whose work is unknown, or that served nobody: in no count of steps or tokens.
        constants_share: Part of the charged time that documented constants split, 0 to 1.
        tokens: By kind.
        tokens_per_s: Computed tokens for each second charged, but for steps whose tokens are unknown.
        cost: Of the charged time, in `currency`; `None` without a price, and with several currencies.
        currency: ISO 4217.
        tokens_per_currency: Computed tokens for each unit of the currency.
        cached_s: What tokens from the prefix cache would have taken.
        recomputed_s: Of the charged time, tokens that were computed once more.
        features: By charged time, largest first.
        tenants: Likewise, where metrics show tenants.
        weights: What was learnt, of the process that learnt from the most steps.
    """

    model: str | None
    type: str | None
    steps: int
    sequences: float | None
    charged_s: float
    prefill_s: float
    decode_s: float
    other_s: float
    constants_share: float | None
    tokens: Mapping[str, int]
    tokens_per_s: float | None
    cost: float | None
    currency: str | None
    tokens_per_currency: float | None
    cached_s: float
    recomputed_s: float
    features: tuple[Spender, ...]
    tenants: tuple[Spender, ...]
    weights: tuple[Weight, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the same as objects and lists."""
        return {name: list(one) if isinstance(one, tuple) else one for name, one in asdict(self).items()}


def measure(series: Sequence[Series]) -> tuple[ModelServer, ...]:
    """Return what each model server spent, the most charged first.

    Args:
        series: Every series over the window.
    """
    of_server: dict[Key, list[Series]] = defaultdict(list)
    for one in series:
        if one.metric in _METRICS:
            of_server[_key(one)].append(one)
    prices = _prices(series)
    servers = [_server(key, found, prices.get(key)) for key, found in of_server.items()]
    spent = [one for one in servers if one.charged_s or one.steps]
    return tuple(sorted(spent, key=lambda one: (-one.charged_s, one.model or "", one.type or "")))


_METRICS = frozenset(metric.name for metric in catalogue.STEP_METRICS)


def _key(one: Series) -> Key:
    return one.attributes.get(catalogue.MODEL), one.attributes.get(catalogue.HW_TYPE)


def _prices(series: Iterable[Series]) -> dict[Key, tuple[str, float]]:
    """Return the currency of each server and what a second of its model cost, where there is but one."""
    times: Counter[Key] = Counter()
    costs: dict[Key, Counter[str]] = defaultdict(Counter)
    for one in series:
        if one.metric == catalogue.FEATURE_TIME.name:
            times[_key(one)] += one.value  # type: ignore[assignment]
        elif one.metric == catalogue.FEATURE_COST.name:
            costs[_key(one)][one.attributes.get(catalogue.CURRENCY, "?")] += one.value  # type: ignore[assignment]
    found = {}
    for key, by_currency in costs.items():
        paid = [(currency, cost) for currency, cost in by_currency.items() if cost]
        if len(paid) == 1 and times[key]:
            found[key] = (paid[0][0], paid[0][1] / times[key])
    return found


def _server(key: Key, series: Sequence[Series], price: tuple[str, float] | None) -> ModelServer:
    times = _by(series, catalogue.STEP_TIME, catalogue.STEP_PHASE)
    charged_s = math.fsum(times.values())
    weighing = _by(series, catalogue.STEP_TIME, catalogue.STEP_WEIGHTS)
    weighed = weighing.get("fitted", 0.0) + weighing.get("constants", 0.0)
    tokens = _tokens(series)
    computed = tokens["prefill"] + tokens["decode"]
    steps = round(_sum(series, catalogue.STEPS))
    cost = None if price is None else price[1] * charged_s
    features = _spenders(series, charged_s, tenants=False)
    # What served nobody is a part of what tokens cost.
    unknown_s = math.fsum(one.other_s for one in features if one.feature != catalogue.OVERHEAD)
    known_s = charged_s - unknown_s if computed else 0.0
    return ModelServer(
        model=key[0],
        type=key[1],
        steps=steps,
        sequences=_sum(series, catalogue.STEP_MEMBERS) / steps if steps else None,
        charged_s=charged_s,
        prefill_s=times.get("prefill", 0.0),
        decode_s=times.get("decode", 0.0),
        other_s=_other(times),
        constants_share=weighing.get("constants", 0.0) / weighed if weighed else None,
        tokens=tokens,
        tokens_per_s=computed / known_s if known_s > 0 else None,
        cost=cost,
        currency=None if price is None else price[0],
        tokens_per_currency=computed * charged_s / known_s / cost if cost and known_s > 0 else None,
        cached_s=_sum(series, catalogue.STEP_CACHED_TIME),
        recomputed_s=_sum(series, catalogue.STEP_RECOMPUTED_TIME),
        features=features,
        tenants=_spenders(series, charged_s, tenants=True),
        weights=tuple(_weights(series)),
    )


def _spenders(series: Iterable[Series], whole_s: float, *, tenants: bool) -> tuple[Spender, ...]:
    """Return what each feature had, or each of its tenants, where metrics show them."""
    of_one: dict[tuple[str, str | None], list[Series]] = defaultdict(list)
    for one in series:
        feature, tenant = one.attributes.get(catalogue.FEATURE), one.attributes.get(catalogue.TENANT)
        if feature is not None and (tenant is not None or not tenants):
            of_one[feature, tenant if tenants else None].append(one)
    spenders = [_spender(*names, found, whole_s) for names, found in of_one.items()]
    spenders = [one for one in spenders if one.charged_s or any(one.tokens.values())]
    return tuple(sorted(spenders, key=lambda one: (-one.charged_s, one.feature, one.tenant or "")))


def _spender(feature: str, tenant: str | None, series: Sequence[Series], whole_s: float) -> Spender:
    times = _by(series, catalogue.STEP_TIME, catalogue.STEP_PHASE)
    charged_s = math.fsum(times.values())
    return Spender(
        feature=feature,
        tenant=tenant,
        charged_s=charged_s,
        share=charged_s / whole_s if whole_s else None,
        # Of several processes the least sure.
        share_error=max(
            (one.value for one in series if one.metric == catalogue.STEP_SHARE_ERROR.name), default=None
        ),
        prefill_s=times.get("prefill", 0.0),
        decode_s=times.get("decode", 0.0),
        other_s=_other(times),
        tokens=_tokens(series),
        cached_s=_sum(series, catalogue.STEP_CACHED_TIME),
        recomputed_s=_sum(series, catalogue.STEP_RECOMPUTED_TIME),
    )


def _weights(series: Iterable[Series]) -> Iterator[Weight]:
    values: dict[str, dict[tuple[str | None, str | None, str | None, str], float]] = defaultdict(dict)
    for one in series:
        device, regime, coefficient = (
            one.attributes.get(name)
            for name in (catalogue.HW_NAME, catalogue.STEP_REGIME, catalogue.STEP_COEFFICIENT)
        )
        values[one.metric][device, regime, coefficient, one.process] = one.value
    steps = values[catalogue.STEP_WEIGHT_STEPS.name]
    best: dict[tuple[str | None, str | None], tuple[float, str]] = {}
    for device, regime, coefficient, process in values[catalogue.STEP_WEIGHT.name]:
        if coefficient is not None:
            learnt = (steps.get((device, regime, None, process), 0.0), process)
            best[device, regime] = max(learnt, best.get((device, regime), learnt))
    for (device, regime), (count, process) in sorted(best.items(), key=_place):
        for coefficient in catalogue.STEP_COEFFICIENTS:
            value_s = values[catalogue.STEP_WEIGHT.name].get((device, regime, coefficient, process))
            if value_s is None:
                continue
            version = values[catalogue.STEP_WEIGHT_VERSION.name].get((device, regime, None, process))
            yield Weight(
                device=device,
                regime=regime or "?",
                coefficient=coefficient,
                value_s=value_s,
                error_s=values[catalogue.STEP_WEIGHT_ERROR.name].get((device, regime, coefficient, process)),
                residual=values[catalogue.STEP_WEIGHT_RESIDUAL.name].get((device, regime, None, process)),
                steps=round(count) or None,
                version=None if version is None else round(version),
            )


def _place(found: tuple[tuple[str | None, str | None], tuple[float, str]]) -> tuple[str, int]:
    device, regime = found[0]
    known = catalogue.STEP_REGIMES
    return device or "", known.index(regime) if regime in known else len(known)


def _other(times: Mapping[str, float]) -> float:
    return math.fsum(seconds for phase, seconds in times.items() if phase not in {"prefill", "decode"})


def _tokens(series: Iterable[Series]) -> dict[str, int]:
    counts = _by(series, catalogue.STEP_TOKENS, catalogue.STEP_KIND)
    return {kind: round(counts.get(kind, 0.0)) for kind in catalogue.STEP_KINDS}


def _by(series: Iterable[Series], metric: catalogue.Metric, attribute: str) -> dict[str, float]:
    parts: dict[str, list[float]] = defaultdict(list)
    for one in series:
        if one.metric == metric.name:
            parts[one.attributes.get(attribute, "?")].append(one.value)
    return {name: math.fsum(values) for name, values in parts.items()}


def _sum(series: Iterable[Series], metric: catalogue.Metric) -> float:
    return math.fsum(one.value for one in series if one.metric == metric.name)
