"""The features of the simulated product: what each runs for a request, and how often it goes wrong."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Work:
    """One model call.

    Attributes:
        operation: Name of the work.
        model: Model that does it.
        variant: Variant of the model.
        cost: How much it computes for a request of mean size, in a unit of the simulation.
    """

    operation: str
    model: str
    variant: str | None
    cost: float


@dataclass(frozen=True, slots=True)
class Ladder:
    """A cascade of a light and a heavy model.

    Attributes:
        name: Of the cascade.
        threshold: Confidence below which it goes on to the heavy model.
        later: Threshold after it was raised.
        light: The first stage.
        heavy: The second.
        audit_rate: Share of kept requests whose heavy answer is made all the same.
        light_right: How often the light answer is right, at a confidence of 0 and of 1.
        heavy_right: How often the heavy one is.
    """

    name: str
    threshold: float
    later: float
    light: Work
    heavy: Work
    audit_rate: float
    light_right: tuple[float, float]
    heavy_right: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Served:
    """What a language-model server computes for a request.

    Attributes:
        model: Model that it serves. Whatever names the same one meets in the same steps.
        variant: Variant of the model.
        reads: How much longer prompts are than those of other requests.
        writes: How much longer answers are.
        cached: Which part of a prompt the prefix cache has, from and to.
    """

    model: str
    variant: str | None
    reads: float
    writes: float
    cached: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Kind:
    """What a feature does.

    Attributes:
        name: Of the feature.
        route: Under which its requests are counted.
        share: Of all requests, before any launch.
        works: Model calls of each request, in order; with a cascade, those before it.
        ladder: The cascade that answers; None where the last work does.
        served: What a model server does instead of all that; None where there is none.
        batched: Requests that are computed together; 1 where each is alone.
        outcome: Product event that a good answer brings about.
        succeeds: How often it does.
        errors: How often a request fails.
        cancels: How often one is cancelled.
    """

    name: str
    route: str
    share: float
    works: tuple[Work, ...]
    ladder: Ladder | None = None
    batched: int = 1
    outcome: str = "answer_used"
    succeeds: float = 0.5
    errors: float = 0.01
    cancels: float = 0.01
    served: Served | None = None


@dataclass(frozen=True, slots=True)
class Feature:
    """One feature: a kind under a name.

    Attributes:
        name: ``gputrace.feature``.
        kind: What it does.
        share: Of all requests, before any launch.
    """

    name: str
    kind: Kind
    share: float


_ANSWER = Ladder(
    "answer",
    threshold=0.7,
    later=0.7,
    light=Work("answer.small", "small-8b", "int8", 1.0),
    heavy=Work("answer.large", "large-70b", "fp8", 7.0),
    audit_rate=0.1,
    light_right=(0.25, 0.98),
    heavy_right=(0.8, 0.98),
)
_SUMMARY = Ladder(
    "summary",
    threshold=0.5,
    later=0.65,
    light=Work("summary.small", "small-8b", "fp16", 1.5),
    heavy=Work("summary.large", "large-70b", "fp8", 9.0),
    audit_rate=0.15,
    light_right=(0.72, 0.95),
    heavy_right=(0.78, 0.95),
)
KINDS = (
    Kind(
        "support-answer",
        "POST /answers",
        0.22,
        (Work("retrieve", "embedder", "fp16", 0.1),),
        _ANSWER,
        outcome="ticket_solved",
        succeeds=0.8,
    ),
    Kind(
        "semantic-search",
        "GET /search",
        0.34,
        (Work("embed", "embedder", "fp16", 0.1), Work("rerank", "reranker", "fp16", 0.4)),
        outcome="result_opened",
        succeeds=0.6,
        cancels=0.03,
    ),
    Kind(
        "document-summary",
        "POST /summaries",
        0.1,
        (),
        _SUMMARY,
        outcome="summary_kept",
        succeeds=0.7,
        errors=0.02,
    ),
    Kind(
        "code-completion",
        "POST /completions",
        0.2,
        (),
        outcome="suggestion_accepted",
        succeeds=0.3,
        cancels=0.08,
        served=Served("coder-15b", "int8", reads=0.6, writes=0.3, cached=(0.3, 0.8)),
    ),
    Kind(
        "code-review",
        "POST /reviews",
        0.06,
        (),
        outcome="finding_fixed",
        succeeds=0.4,
        served=Served("coder-15b", "int8", reads=5.0, writes=1.0, cached=(0.0, 0.3)),
    ),
    Kind(
        "image-moderation",
        "POST /images",
        0.08,
        (Work("classify", "vision-l", "fp16", 0.5),),
        batched=3,
        outcome="image_cleared",
        succeeds=0.9,
    ),
    Kind(
        "voice-notes",
        "POST /notes",
        0.06,
        (Work("transcribe", "speech-l", "fp16", 2.5),),
        outcome="note_saved",
        succeeds=0.8,
        errors=0.03,
    ),
)

TENANTS = ("acme", "globex", "initech", "umbrella", "hooli", "stark")


def features(number: int) -> tuple[Feature, ...]:
    """Return so many features; beyond those that have names of their own, ever less used ones."""
    found = []
    for index in range(number):
        kind, round_ = KINDS[index % len(KINDS)], index // len(KINDS)
        name = kind.name if not round_ else f"{kind.name}-{round_ + 1}"
        found.append(Feature(name, kind, kind.share / (1 + round_)))
    whole = sum(one.share for one in found)
    return tuple(Feature(one.name, one.kind, one.share / whole) for one in found)
