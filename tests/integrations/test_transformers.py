"""Transformers with a tiny random model: whom `generate`, pipelines and continuous batching are billed to."""

from __future__ import annotations

import inspect
import threading
from typing import TYPE_CHECKING, Any

import pytest

import gputrace
from gputrace import catalogue, faults

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# They load torch, and its first steps are slow beside other tests.
pytestmark = [pytest.mark.requires("torch", "transformers"), pytest.mark.timeout(60)]

END, PAD = 2, 0


@pytest.fixture(scope="module")
def model() -> Any:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=256,
        pad_token_id=PAD,
        bos_token_id=1,
        eos_token_id=END,
        name_or_path="tiny-llama",
    )
    return LlamaForCausalLM(config).eval()


@pytest.fixture
def transformers() -> Iterator[Any]:
    from gputrace.integrations import transformers

    assert transformers.instrument()
    yield transformers
    transformers.uninstrument()


@pytest.fixture
def timed(bench: Any, model: Any) -> Iterator[Any]:
    """Each forward takes 10 ns a token, padding included."""
    widths: list[int] = []

    def advance(_: Any, __: Any, kwargs: Any) -> None:
        tokens = kwargs["input_ids"].numel()
        widths.append(tokens)
        bench.time.advance(10 * tokens)

    hook = model.register_forward_pre_hook(advance, with_kwargs=True)
    bench.widths = widths
    yield bench
    hook.remove()


def member(feature: str | None) -> Any:
    if feature is None:
        return gputrace.member()
    with gputrace.attribute_to(feature=feature):
        return gputrace.member()


def units(bench: Any) -> dict[tuple[str, str], float]:
    return {
        (attributes[catalogue.FEATURE], attributes[catalogue.UNIT_NAME]): amount
        for attributes, amount in bench.snapshot().units
    }


def charged_ns(bench: Any) -> dict[str, int]:
    return {name: round(seconds * 1e9) for name, seconds in bench.time_by().items() if seconds}


@pytest.fixture(scope="module")
def prompts() -> tuple[Any, Any]:
    """Two rows of 6 tokens, of which the first has 2 of padding."""
    import torch

    rows = torch.randint(3, 64, (2, 6), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(rows)
    mask[0, :2] = 0
    return rows, mask


EXACTLY = {"max_new_tokens": 4, "min_new_tokens": 4, "do_sample": False}


def test_generate_is_one_call_of_its_caller(timed: Any, transformers: Any, model: Any, prompts: Any) -> None:
    rows, mask = prompts
    with gputrace.attribute_to(feature="chat"):
        model.generate(rows, attention_mask=mask, **EXACTLY)
    (call,) = timed.settled()
    assert (call.operation, call.model, call.feature) == ("generate LlamaForCausalLM", "tiny-llama", "chat")
    assert call.charged_ns == 10 * sum(timed.widths)
    # Three of the four tokens were put through the model.
    assert units(timed) == {("chat", "prefill"): 10, ("chat", "decode"): 2 * 3}


def test_the_callers_name_for_the_model_stands(
    timed: Any, transformers: Any, model: Any, prompts: Any
) -> None:
    with gputrace.attribute_to(model="ours"):
        model.generate(prompts[0], **EXACTLY)
    assert [call.model for call in timed.settled()] == ["ours"]


@pytest.mark.parametrize("width", [1, 3])
def test_rows_are_split_by_real_tokens_and_padding_is_everybodys(
    width: int, timed: Any, transformers: Any, model: Any, prompts: Any
) -> None:
    rows, mask = prompts
    with transformers.serving([member("search"), member("chat")]):
        model.generate(input_ids=rows, attention_mask=mask, num_beams=width, **EXACTLY)
    # 12 tokens in the prompts, 2 of them padding, then three times 2; all times the beams.
    whole = 10 * width * (12 + 3 * 2)
    assert sum(timed.widths) == whole // 10
    assert charged_ns(timed) == {"search": whole * 4 // 10, "chat": whole * 6 // 10}
    assert units(timed) == {
        ("search", "prefill"): 4 * width,
        ("chat", "prefill"): 6 * width,
        ("search", "decode"): 3 * width,
        ("chat", "decode"): 3 * width,
    }


def test_the_span_says_how_much_was_padding(transformers: Any, traced: Any, model: Any, prompts: Any) -> None:
    rows, mask = prompts
    with transformers.serving([member("search"), member("chat")]):
        model.generate(rows, attention_mask=mask, **EXACTLY)
    span = traced.spans()["generate LlamaForCausalLM"]
    assert span.attributes[catalogue.BATCH_PADDING] == pytest.approx(2 / 12)


def test_another_number_of_rows_is_shared_equally_and_said(
    timed: Any, transformers: Any, model: Any, prompts: Any, caplog: pytest.LogCaptureFixture
) -> None:
    faults.reset()
    with transformers.serving([member("search"), member("chat"), member("mail")]):
        model.generate(prompts[0], **EXACTLY)
    shares = charged_ns(timed)
    assert set(shares) == {"search", "chat", "mail"}
    assert max(shares.values()) - min(shares.values()) <= 1
    assert "3 members for a generate of 2 rows" in caplog.text


def test_embedded_prompts_are_not_repeated_in_the_answer(
    timed: Any, transformers: Any, model: Any, prompts: Any
) -> None:
    rows, mask = prompts
    embedded = model.get_input_embeddings()(rows)
    advance = next(iter(model._forward_pre_hooks))
    # It takes no ids the first time.
    hook = model._forward_pre_hooks.pop(advance)
    with gputrace.attribute_to(feature="chat"):
        model.generate(inputs_embeds=embedded, attention_mask=mask, **EXACTLY)
    model._forward_pre_hooks[advance] = hook
    assert units(timed) == {("chat", "prefill"): 10, ("chat", "decode"): 2 * 3}


def test_a_decoder_of_its_own_computes_the_whole_answer(bench: Any, transformers: Any) -> None:
    import torch
    from transformers import BartConfig, BartForConditionalGeneration

    layers = {"encoder_layers": 1, "decoder_layers": 1, "d_model": 16, "vocab_size": 32}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
    config = BartConfig(**layers, **heads, encoder_ffn_dim=16, decoder_ffn_dim=16)
    summariser = BartForConditionalGeneration(config).eval()
    with transformers.serving([member("chat"), member("search")]):
        answers = summariser.generate(torch.full((2, 5), 7), num_beams=2, max_new_tokens=4, min_new_tokens=4)
    assert units(bench) == {
        # The encoder runs once, whatever the beams.
        ("chat", "prefill"): 5,
        ("search", "prefill"): 5,
        ("chat", "decode"): 2 * (answers.shape[1] - 1),
        ("search", "decode"): 2 * (answers.shape[1] - 1),
    }


def test_what_is_no_text_has_no_tokens_and_is_shared_equally(bench: Any) -> None:
    import torch
    from transformers import GenerationMixin

    from gputrace.integrations import transformers as instrumentation, transformers_shapes

    class Listener:
        device = "cpu"
        config = type("Config", (), {"is_encoder_decoder": True, "name_or_path": "/models/whisper-tiny/"})
        generation_config = None

    generation = transformers_shapes.Generation(
        GenerationMixin.generate, Listener(), (torch.zeros(2, 80, 3_000),), {}
    )
    assert generation.real_tokens() == [0, 0]
    assert generation.name == "whisper-tiny"
    with instrumentation._block(generation, [member("chat"), member("search")]):
        bench.time.advance(10)
    assert charged_ns(bench) == {"chat": 5, "search": 5}


def test_a_generate_that_raises_is_an_error(timed: Any, transformers: Any, model: Any, prompts: Any) -> None:
    with pytest.raises(ValueError, match="no_such_argument"):
        model.generate(prompts[0], no_such_argument=1)
    assert [call.status for call in timed.settled()] == ["error"]


def test_what_an_assistant_generates_is_inside(
    timed: Any, transformers: Any, model: Any, prompts: Any
) -> None:
    import copy

    row = prompts[0][1:]
    with gputrace.attribute_to(feature="chat"), transformers.serving([member("chat")]):
        model.generate(row, assistant_model=copy.deepcopy(model), **EXACTLY)
    assert units(timed) == {("chat", "prefill"): 6, ("chat", "decode"): 3}
    operations = [call.operation for call in timed.settled() if call.call.site.is_batch]
    assert operations == ["generate LlamaForCausalLM"]


def test_a_streamer_carries_whose_it_is_into_the_thread(
    timed: Any, transformers: Any, model: Any, prompts: Any
) -> None:
    from transformers import TextIteratorStreamer

    class Tokenizer:
        def decode(self, tokens: Any, **_: Any) -> str:
            return f"{tokens}\n"

    with gputrace.request("POST /chat", feature="chat") as request:
        streamer = TextIteratorStreamer(Tokenizer(), timeout=20)
        given = {"inputs": prompts[0][:1], "streamer": streamer, **EXACTLY}
        thread = threading.Thread(target=model.generate, kwargs=given)
        thread.start()
        assert list(streamer)
        thread.join()
    (call,) = [one for one in timed.settled() if not one.call.site.is_request]
    assert (call.feature, call.call.root.request) == ("chat", request)
    assert units(timed) == {("chat", "prefill"): 6, ("chat", "decode"): 3}


def test_a_thread_that_says_whose_it_is_keeps_it(
    timed: Any, transformers: Any, model: Any, prompts: Any
) -> None:
    from transformers import TextStreamer

    with gputrace.attribute_to(feature="chat"):
        streamer = TextStreamer(None)
        streamer.put = streamer.end = lambda *_: None

    def generate() -> None:
        with gputrace.attribute_to(feature="batch-job"):
            model.generate(prompts[0][:1], streamer=streamer, **EXACTLY)

    thread = threading.Thread(target=generate)
    thread.start()
    thread.join()
    assert [call.feature for call in timed.settled()] == ["batch-job"]


def test_a_pipeline_is_timed_where_it_is_on_the_device(timed: Any, transformers: Any, model: Any) -> None:
    from transformers import Pipeline

    class Plain(Pipeline):
        def _sanitize_parameters(self, **_: Any) -> Any:
            return {}, {}, {}

        def preprocess(self, inputs: Any, **_: Any) -> Any:
            timed.time.advance(1_000)
            return {"input_ids": inputs[None]}

        def _forward(self, inputs: Any, **_: Any) -> Any:
            return {"tokens": self.model.generate(**inputs, **EXACTLY)}

        def postprocess(self, outputs: Any, **_: Any) -> Any:
            timed.time.advance(1_000)
            return outputs["tokens"]

    import torch

    pipe = Plain(model, task="test", tokenizer=None)
    with gputrace.attribute_to(feature="chat"):
        pipe(torch.tensor([3, 4, 5]))
    calls = {call.operation: call for call in timed.settled()}
    assert set(calls) == {"pipeline test", "generate LlamaForCausalLM"}
    assert calls["generate LlamaForCausalLM"].call.parent is calls["pipeline test"].call
    assert charged_ns(timed) == {"chat": 10 * sum(timed.widths)}


@pytest.fixture
def paged(model: Any) -> Iterator[Callable[..., Any]]:
    """`paged(prompts, features)` puts prompts through continuous batching; outputs by request."""
    from transformers import ContinuousBatchingConfig, GenerationConfig

    def ran(prompts: list[list[int]], features: list[str | None], **options: Any) -> dict[str, Any]:
        config = GenerationConfig(max_new_tokens=5, eos_token_id=END, pad_token_id=PAD, do_sample=False)
        config.update(**options)
        small = ContinuousBatchingConfig(num_blocks=16, page_size=16, max_batch_tokens=16)
        manager = model.init_continuous_batching(generation_config=config, continuous_batching_config=small)
        manager.start()
        answers = len(prompts) * (config.num_return_sequences or 1)
        try:
            for prompt, feature in zip(prompts, features, strict=True):
                if feature is None:
                    manager.add_request(prompt)
                else:
                    with gputrace.attribute_to(feature=feature):
                        manager.add_request(prompt)
            results = {}
            while len(results) < answers:
                result = manager.get_result(timeout=60)
                assert result is not None
                if result.is_finished():
                    results[result.request_id] = result
        finally:
            manager.stop(block=True)
        return results

    attention = model.config._attn_implementation
    yield ran
    model.set_attn_implementation(attention)


def test_continuous_batching_counts_what_was_computed_for_each_request(
    timed: Any, transformers: Any, paged: Any
) -> None:
    features = ["search", "chat", "mail", "notes", "code", "alerts"]
    # Longer than a step, so that a prompt is put through in parts.
    prompts = [[3 + number] * length for number, length in enumerate((3, 7, 21, 1, 12, 40))]
    results = paged(prompts, features)
    counted = units(timed)
    for number, (feature, prompt) in enumerate(zip(features, prompts, strict=True)):
        output = len(results[f"req_{number}"].generated_tokens)
        assert counted[feature, "prefill"] == len(prompt)
        assert counted[feature, "prefill"] + counted[feature, "decode"] == len(prompt) + output - 1
    steps = timed.settled()
    assert {one.operation for one in steps} == {"step LlamaForCausalLM"}
    assert sum(charged_ns(timed).values()) == sum(one.held_ns for one in steps) == 10 * sum(timed.widths)
    assert set(charged_ns(timed)) == set(features)


def test_several_answers_are_billed_to_who_asked(timed: Any, transformers: Any, paged: Any) -> None:
    results = paged([[3, 4, 5]], ["chat"], num_return_sequences=2, do_sample=True)
    outputs = sum(len(result.generated_tokens) for result in results.values())
    assert len(results) == 2
    # The prompt is computed once but for its last token, which each answer begins with.
    assert units(timed) == {("chat", "prefill"): 2 + 2, ("chat", "decode"): outputs - 2}


def test_nobody_is_made_up(timed: Any, transformers: Any, paged: Any) -> None:
    """The thread of the loop is started by the first request."""
    with gputrace.attribute_to(feature="first"):
        paged([[3, 4, 5], [6, 7]], ["first", "chat"])
    paged([[8, 9]], [None])
    assert set(charged_ns(timed)) == {"first", "chat", "__none__"}


def test_a_request_that_lost_its_cache_is_still_whose_it_was(transformers: Any) -> None:
    import copy
    import pickle

    from transformers.generation.continuous_batching.requests import RequestState

    from gputrace.integrations import transformers_continuous as continuous

    token = continuous._asking.set(True)
    with gputrace.attribute_to(feature="chat"):
        state = RequestState("r", [3, 4, 5])
    continuous._asking.reset(token)
    whose = getattr(state, continuous._WHOSE)
    whose.computed = 5
    state.generated_tokens = [6, 7, 8]
    again = state.create_equivalent_initial_request()
    again.position_offset = 6
    future = type("Future", (), {"state": again, "query_length": 6})
    part = continuous._part(future)
    assert part == (whose.member, 6, 0, 0, 0, 5)
    forked = copy.deepcopy(again)
    assert getattr(forked, continuous._WHOSE).member is whose.member
    sent = pickle.loads(pickle.dumps(again))  # noqa: S301
    assert getattr(sent, continuous._WHOSE).member is None


def test_a_request_that_never_ran_is_waited_for_no_longer(bench: Any, transformers: Any) -> None:
    from transformers.generation.continuous_batching.requests import RequestState

    from gputrace.integrations import transformers_continuous as continuous

    with gputrace.request("POST /chat") as request:
        token = continuous._asking.set(True)
        state = RequestState("r", [3, 4, 5])
        continuous._asking.reset(token)
        assert len(request.expected) == 1
        del state
        assert len(request.expected) == 0


def test_signatures_stay_and_it_is_undone(transformers: Any) -> None:
    from transformers import GenerationMixin

    assert list(inspect.signature(GenerationMixin.generate).parameters)[:3] == [
        "self",
        "inputs",
        "generation_config",
    ]
    assert transformers.instrument()
    transformers.uninstrument()
    assert not hasattr(GenerationMixin.generate, "__gputrace_original__")


def test_another_version_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    from transformers import GenerationMixin
    from transformers.generation.continuous_batching import continuous_api

    from gputrace.integrations import transformers

    def other(self: Any, network: Any) -> None:
        """Has another parameter."""

    faults.reset()
    monkeypatch.setattr(continuous_api.ContinuousBatchProcessor, "_generation_step", other)
    assert not transformers.instrument()
    assert not hasattr(GenerationMixin.generate, "__gputrace_original__")
    (line,) = [text for text in caplog.messages if text.startswith("gputrace")]
    assert "_generation_step is not as in Transformers 5.24" in line
