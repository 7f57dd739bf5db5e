"""``Cascade``: a light model answers first, a heavy one takes the requests that it is unsure of."""

from __future__ import annotations

import threading
from time import monotonic
from typing import TYPE_CHECKING, Any
from weakref import WeakSet, WeakValueDictionary

from gputrace import cascades_audits, cascades_counting, cascades_shadow, faults
from gputrace.attribution import checked_fields, tolerated_fields
from gputrace.call_site import HOLD_CALL, checked_options
from gputrace.cascades_audits import Audits
from gputrace.cascades_policy import checked_policy, checked_stages, checked_thresholds
from gputrace.cascades_requests import CascadeBlock, CascadeRequest
from gputrace.staged import StagedSite, container_site

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gputrace.cascades_policy import Policy

_SCORING = faults.contained("keep a score")
_SITES_LIMIT = 1024

_known: WeakSet[Cascade] = WeakSet()
#: Of several with one name, the last shows its threshold.
_by_name: WeakValueDictionary[str, Cascade] = WeakValueDictionary()
_knowing = threading.RLock()


class Cascade:
    """A cascade of models, and the record of what it decides and costs.

    One object a cascade, made where the program starts. Everything after the first
    stage is the heavy side.

    Args:
        name: Name of the cascade.
        stages: Their names, the lightest first.
        threshold: A request is escalated where the confidence is below it; a tie is kept. One
            for each stage but the last, or one for all.
        rule: In its place: a function of the confidence that returns whether to escalate.
        higher_is_better: False where a low confidence value is the surer, as entropy is.
        policy: Name of this version of the rule; made from the thresholds by default.
        audit_rate: Probability that a kept request is audited, or a function of its
            confidence that returns it: the heavy stage then runs as well, later and unseen.
        audit_share: Budget of audits as a share of all requests.
        audit_seconds_per_hour: Budget of audits in device seconds an hour.
        audit_load: No audit is drawn while more requests than this are open, or while this
            function returns true.
        seed: Of the draws, for runs that can be repeated.
        hold: How stages and audits hold the device, both alike: ``call`` from their beginning
            to their end whatever they await, ``steps`` only while code of the block runs, where
            the request stands in a tracked coroutine or generator, or ``none``: for stages that
            only wait, for another process or for a batch. By default ``call`` where it is an
            ``async with`` or an audit, ``steps`` where it is a ``with``.

    Raises:
        ValueError: An argument cannot be used; names it.
    """

    def __init__(  # noqa: PLR0913 - what a cascade is
        self,
        name: str,
        *,
        stages: Sequence[str] = ("light", "heavy"),
        threshold: float | Sequence[float] | None = None,
        rule: Callable[[Any], object] | None = None,
        higher_is_better: bool = True,
        policy: str | None = None,
        audit_rate: float | Callable[[Any], float] = 0.0,
        audit_share: float | None = None,
        audit_seconds_per_hour: float | None = None,
        audit_load: int | Callable[[], object] | None = None,
        seed: float | str | None = None,
        hold: str | None = None,
    ) -> None:
        self.name = checked_fields({"name": name}, "Cascade").get("name", "")
        if not self.name:
            message = f"Cascade({name!r}): a cascade must have a name"
            raise ValueError(message)
        self.stages = checked_stages(self.name, stages)
        self.policy: Policy = checked_policy(
            self.name, self.stages, threshold, rule, higher_is_better=higher_is_better, name=policy
        )
        self.audits = Audits(
            self.name,
            audit_rate,
            share=audit_share,
            seconds_per_hour=audit_seconds_per_hour,
            load=audit_load,
            seed=seed,
        )
        checked_options(f"Cascade({name!r})", hold or HOLD_CALL, None, None, 1, None)
        self.hold = hold
        #: Those whose block was not left.
        self.open_requests: set[CascadeRequest] = set()
        self._sites: dict[Any, StagedSite] = {}
        self._make_known()

    def __getstate__(self) -> dict[str, Any]:
        # A worker of Ray or multiprocessing has none of the requests, and sites know their process.
        return {**self.__dict__, "open_requests": set(), "_sites": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._make_known()

    def _make_known(self) -> None:
        with _knowing:
            _known.add(self)
            _by_name[self.name] = self

    @property
    def threshold(self) -> float | tuple[float, ...] | None:
        """Threshold in force, several where there are more than two stages; None where a rule decides.

        May be set at any time: requests that are decided later go by the new one, and are
        recorded with it.
        """
        thresholds = self.policy.thresholds
        return thresholds[0] if thresholds is not None and len(thresholds) == 1 else thresholds

    @threshold.setter
    def threshold(self, threshold: float | Sequence[float]) -> None:
        if self.policy.thresholds is None:
            message = f"Cascade({self.name!r}): a rule decides; there is no threshold to set"
            raise ValueError(message)
        self.policy = self.policy.with_thresholds(
            checked_thresholds(self.name, threshold, len(self.stages) - 1)
        )

    def request(  # noqa: PLR0913 - what can be said about a request
        self,
        operation: str | None = None,
        *,
        route: str | None = None,
        feature: str | None = None,
        tenant: str | None = None,
        input_size: float | None = None,
        audit: Callable[[], Any] | None = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> CascadeBlock:
        """Open a request, with ``with`` or ``async with``.

        A container that holds nothing itself: a request of its own, as ``gputrace.request``
        makes it, unless it stands in one, of which it then is a part.

        Args:
            operation: Name of the work; that of the cascade by default.
            route: What a request of its own is counted under; the operation by default.
            feature: Product feature that is billed; else that of the enclosing scope.
            tenant: Customer that is billed.
            input_size: How large the input is, in whatever unit the program counts.
            audit: What an audit runs; see ``escalate``.
            attributes: More attributes for its span.
        """
        cascades_counting.ready()
        return CascadeBlock(
            self,
            operation,
            route=route,
            feature=feature,
            tenant=tenant,
            input_size=input_size,
            audit=audit,
            attributes=attributes,
        )

    @staticmethod
    def wait_for_audits(timeout: float = 10.0) -> bool:
        """Wait until no audit of this process waits or runs: in a script, before it ends.

        In a coroutine, ``await asyncio.to_thread(…)`` it: audits may run in its own loop.

        Args:
            timeout: Upper bound, s.

        Returns:
            Whether all of them ended in time.
        """
        counting = cascades_counting.in_force()
        return counting is None or counting.finish(monotonic() + timeout)

    def request_site(self, operation: str, *, is_request: bool) -> StagedSite:
        """Return the site of requests of one operation."""
        key = (operation, is_request)
        site = self._sites.get(key)
        if site is None:
            site = self._remembered(key, container_site(operation, is_request=is_request))
        return site

    def stage_site(  # noqa: PLR0913 - what a stage may say
        self, name: Any, model: Any, variant: Any, hold: str, devices: Any, streams: Any
    ) -> StagedSite:
        """Return the site of a stage.

        Raises:
            ValueError: ``hold``, ``devices`` or ``streams`` cannot be used; names it.
        """
        key = (name, model, variant, hold)
        plain = devices is None and streams is None and all(type(one) in {str, type(None)} for one in key)
        site = self._sites.get(key) if plain else None
        if site is None:
            options = checked_options("stage", hold, devices, streams, 1, None)
            fields = tolerated_fields({"model": model, "variant": variant, "stage": name}, "stage")
            if fields.get("stage") not in self.stages:
                faults.log_once(
                    f"cascade:{self.name}:stage",
                    "gputrace: cascade %r has the stages %s; any other counts as heavy",
                    self.name,
                    ", ".join(self.stages),
                )
                fields.setdefault("stage", self.stages[-1])
            site = StagedSite(f"{self.name}.{fields['stage']}", fields, **options)
            if plain:
                self._remembered(key, site)
        return site

    def _remembered(self, key: Any, site: StagedSite) -> StagedSite:
        if len(self._sites) >= _SITES_LIMIT:
            self._sites.clear()
        self._sites[key] = site
        return site


def score(
    request_id: str,
    value: float,
    name: str = "quality",
    *,
    stage: str | None = None,
    label_propensity: float | None = None,
) -> None:
    """Say how good an answer was: now, later, or from another process.

    Worth telling of the light answer of an escalated request as well, and of the
    answer that an audit got: what escalation wins is the difference. Whatever
    cannot be used is left out with one log line, and never raises.

    Args:
        request_id: Identity of the request, as ``request.id`` gave it.
        value: The score, a finite number; 0 and 1 for wrong and right.
        name: What is judged.
        stage: Stage whose answer it is; by default the one that was served.
        label_propensity: Probability that this answer would be scored at all, where that is a
            sample, and not the same for all.
    """
    counting = cascades_counting.ready()
    if counting is not None:
        with _SCORING:
            counting.scores.add(request_id, value, name, stage, label_propensity)


def _thresholds() -> list[tuple[str, tuple[str, ...], Policy]]:
    with _knowing:
        return [(name, one.stages, one.policy) for name, one in sorted(_by_name.items())]


def reset() -> None:
    """Begin anew in a forked child: other draws than the parent's, and none of its requests."""
    global _knowing  # noqa: PLW0603 - state of a process
    _knowing = threading.RLock()
    lineage = cascades_audits.after_fork_in_child()
    cascades_counting.record(None)
    cascades_shadow.reset()
    for one in list(_known):
        one.open_requests.clear()
        one.audits.after_fork(lineage)


cascades_counting.thresholds = _thresholds
