"""Follows the steps of model servers: weighs their members, learns from how long they took, counts them."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from gputrace import catalogue
from gputrace.steps import StepBatch
from gputrace.steps_counting import Counting
from gputrace.steps_shares import Shares
from gputrace.steps_weights import Weights, regime_of
from gputrace.steps_work import COEFFICIENTS, summed

if TYPE_CHECKING:
    from gputrace.accounts import Account, Totals
    from gputrace.call import Call
    from gputrace.following import Followed
    from gputrace.steps_work import Vector

    Rows = list[tuple[dict[str, str], float]]

_NS_PER_S = 1_000_000_000


class Server:
    """What is known of one model on one kind of device.

    Attributes:
        attributes: Of its metrics.
        weights: How long its tokens take.
        shares: What its features did, of the steps that were split by learnt weights.
        steps: How many it took, by regime.
    """

    __slots__ = ("attributes", "shares", "steps", "weights")

    def __init__(self, attributes: dict[str, str]) -> None:
        self.attributes = attributes
        self.weights = Weights()
        self.shares = Shares()
        self.steps = [0] * len(catalogue.STEP_REGIMES)


class Steps:
    """The steps that are followed.

    Args:
        totals: Caps the names, and how many sets there are of them.
    """

    def __init__(self, totals: Totals) -> None:
        self._totals = totals
        self._servers: dict[tuple[tuple[str, str], ...], Server] = {}
        self._counting = Counting(totals)

    # --- one step -----------------------------------------------------------

    def opened(self, followed: Followed) -> None:
        """Take note of a call that takes part in the ledger: what it is charged may be split from here on."""
        served = followed.batch
        if not isinstance(served, StepBatch) or served.server is not None:
            return
        server = served.server = self._server(_step_of(followed.call), followed.lanes[0].account)
        served.read()
        served.weigh(server.weights.prices(served.total))

    def concluded(self, followed: Followed) -> None:
        """Learn from a step that is settled."""
        served = followed.call.batch
        if not isinstance(served, StepBatch) or served.server is None or not served.vectors:
            return
        timer = followed.call.timer
        broken = any(lane.broken or lane.account.lost for lane in followed.lanes)
        if followed.call.status is None and not broken and not (timer is not None and timer.estimated):
            # On each of its devices and streams it holds as long.
            took_ns = followed.held_ns / max(1, len(followed.lanes))
            served.server.weights.learn(served.total, took_ns / _NS_PER_S)

    def served(self, served: object) -> None:
        """Count a step once it is settled, with all under it."""
        if not isinstance(served, StepBatch) or served.server is None:
            return
        server: Server = served.server
        self._counting.add(served, server.attributes)
        if served.counts_members and served.work:
            server.steps[regime_of(served.total[1])] += 1
        if served.prices.parts:
            server.shares.add(self._done(served), served.prices)

    def _done(self, served: StepBatch) -> list[tuple[str, Vector]]:
        vectors: dict[str | None, list[Vector]] = defaultdict(list)
        for one, x in zip(served.served, served.vectors, strict=True):
            vectors[one.attribution.feature].append(x)
        return [
            (self._totals.kept(catalogue.FEATURE, feature or catalogue.NO_FEATURE), summed(of_feature))
            for feature, of_feature in vectors.items()
        ]

    def _server(self, call: Call, account: Account) -> Server:
        device, model = account.device, call.attribution.model
        attributes = {} if model is None else {catalogue.MODEL: self._totals.kept(catalogue.MODEL, model)}
        attributes[catalogue.HW_TYPE] = device.type
        if device.name:
            attributes[catalogue.HW_NAME] = device.name
        key = tuple(attributes.items())
        found = self._servers.get(key)
        if found is None:
            found = self._servers[key] = Server(attributes)
        return found

    # --- what is shown ------------------------------------------------------

    def rows(self) -> dict[str, Rows]:
        """Return what to show, by the name of the metric."""
        rows: dict[str, Rows] = defaultdict(list, self._counting.rows())
        for server in self._servers.values():
            rows[catalogue.STEPS.name] += [
                ({**server.attributes, catalogue.STEP_REGIME: regime}, count)
                for regime, count in zip(catalogue.STEP_REGIMES, server.steps, strict=True)
                if count
            ]
            rows[catalogue.STEP_SHARE_ERROR.name] += [
                ({catalogue.FEATURE: feature, **server.attributes}, error)
                for feature, (_, error) in server.shares.of(server.weights).items()
            ]
            _show_weights(server, rows)
        return dict(rows)


def _show_weights(server: Server, rows: dict[str, Rows]) -> None:
    for name, regime in zip(catalogue.STEP_REGIMES, server.weights.regimes, strict=True):
        named = {**server.attributes, catalogue.STEP_REGIME: name}
        if not regime.steps:
            continue
        rows[catalogue.STEP_WEIGHT_VERSION.name].append((named, regime.fit.version))
        rows[catalogue.STEP_WEIGHT_STEPS.name].append((named, regime.steps))
        if regime.residual is not None:
            rows[catalogue.STEP_WEIGHT_RESIDUAL.name].append((named, regime.residual))
        solution = regime.fit.solution
        if solution is None:
            continue
        for at, coefficient in enumerate(COEFFICIENTS):
            of_one = {**named, catalogue.STEP_COEFFICIENT: coefficient}
            rows[catalogue.STEP_WEIGHT.name].append((of_one, solution.theta[at]))
            if solution.covariance[at][at] > 0:
                rows[catalogue.STEP_WEIGHT_ERROR.name].append((of_one, solution.covariance[at][at] ** 0.5))


def _step_of(call: Call) -> Call:
    """Return the step that a call is or is made in."""
    while not call.site.is_batch and call.parent is not None:
        call = call.parent
    return call
