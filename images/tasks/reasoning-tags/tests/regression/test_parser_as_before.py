"""Detectors, protocol and parser construction without `reasoning_tags`."""

import pytest
from pydantic import ValidationError

from sglang.srt.entrypoints.openai.protocol import (
    ChatCompletionRequest,
    CompletionRequest,
)
from sglang.srt.parser.reasoning_parser import ReasoningParser

USER = {"role": "user", "content": "hi"}
THINK = [
    "deepseek-r1",
    "qwen3",
    "qwen3-thinking",
    "glm45",
    "kimi_k2",
    "nano_v3",
    "step3",
]


def run_stream(parser, chunks):
    pieces = [parser.parse_stream_chunk(chunk) for chunk in chunks]
    return "".join(p[0] for p in pieces), "".join(p[1] for p in pieces)


@pytest.mark.parametrize("model_type", THINK)
def test_think_tags(model_type):
    parser = ReasoningParser(model_type)
    assert parser.parse_non_stream("<think>a </think> b ") == ("a ", "b")
    chunks = ["<think>", "a", " b ", "</think>", "c ", "d"]
    assert run_stream(ReasoningParser(model_type), chunks) == ("a b ", "c d")


def test_kimi_tags():
    chunks = ["◁think▷", "a", "◁/think▷", "b"]
    assert run_stream(ReasoningParser("kimi"), chunks) == ("a", "b")
    parser = ReasoningParser("KIMI")
    assert parser.parse_non_stream("".join(chunks)) == ("a", "b")


def test_start_tag_in_pieces():
    chunks = ["<th", "ink>", "a", "</thi", "nk>", "b"]
    assert run_stream(ReasoningParser("qwen3"), chunks) == ("a", "b")


def test_forced_reasoning():
    assert ReasoningParser("deepseek-r1").parse_non_stream("a</think>b") == ("a", "b")
    assert ReasoningParser("qwen3").parse_non_stream("a") == ("", "a")
    parser = ReasoningParser("qwen3", force_reasoning=True)
    assert parser.parse_non_stream("a") == ("a", "")
    parser = ReasoningParser("qwen3-thinking", force_reasoning=False)
    assert parser.parse_non_stream("a</think>b") == ("a", "b")


def test_reasoning_not_streamed():
    parser = ReasoningParser("deepseek-r1", stream_reasoning=False)
    assert parser.parse_stream_chunk("a") == ("", "")
    assert parser.parse_stream_chunk("b") == ("", "")
    assert parser.parse_stream_chunk("</think>c") == ("ab", "c")
    assert parser.parse_stream_chunk("d") == ("", "d")


def test_append_think_and_gpt_oss():
    parser = ReasoningParser("minimax-append-think")
    assert run_stream(parser, ["a", "b"]) == ("", "<think>ab")
    parser = ReasoningParser("gpt-oss")
    text = "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>b<|return|>"
    assert parser.parse_non_stream(text) == ("a", "b")


@pytest.mark.parametrize(
    "previous, text, expected",
    [
        ("<think>a", "b</think>c", ("b", "c")),
        ("<think>a</think>b", "c", ("", "c")),
        ("x", "<think>b</think>c", ("b", "c")),
    ],
)
def test_continue_final_message(previous, text, expected):
    request = ChatCompletionRequest(
        messages=[USER, {"role": "assistant", "content": previous}],
        continue_final_message=True,
    )
    parser = ReasoningParser("qwen3", request=request)
    assert parser.parse_non_stream(text) == expected


def test_model_type_errors():
    for missing in (None, ""):
        with pytest.raises(ValueError, match="^Model type must be specified$"):
            ReasoningParser(missing)
    with pytest.raises(ValueError, match="^Unsupported model type: nope$"):
        ReasoningParser("nope")


def test_a_request_of_another_kind_is_ignored():
    # The native endpoint hands in its raw HTTP request, the Responses API one of its own.
    parser = ReasoningParser("qwen3", request=object())
    assert parser.parse_non_stream("<think>a</think>b") == ("a", "b")


def test_tokens_that_the_scheduler_reads():
    expected = {
        "qwen3": ("<think>", "</think>"),
        "kimi": ("◁think▷", "◁/think▷"),
        "gpt-oss": ("<|channel|>analysis<|message|>", "<|end|>"),
    }
    for name, tokens in expected.items():
        detector = ReasoningParser(name, stream_reasoning=False).detector
        assert (detector.think_start_token, detector.think_end_token) == tokens


def test_the_list_of_parsers():
    assert {"deepseek-v3", "interns1", "minimax", "step3p5", *THINK} <= set(
        ReasoningParser.DetectorMap
    )


def test_constraints_without_tags():
    request = ChatCompletionRequest(
        messages=[USER],
        separate_reasoning=False,
        response_format={"type": "json_object"},
    )
    params = request.to_sampling_params([], {})
    assert params["json_schema"] == '{"type": "object"}'
    regex = ChatCompletionRequest(messages=[USER], regex="a+")
    assert regex.to_sampling_params(["s"], {"top_k": 7})["regex"] == "a+"
    assert regex.to_sampling_params(["s"], {"top_k": 7})["top_k"] == 7
    assert regex.to_sampling_params(["s"], {})["stop"] == ["s"]


def test_other_request_fields():
    request = ChatCompletionRequest(messages=[USER], reasoning={"effort": "low"}, x=1)
    assert request.reasoning_effort == "low"
    assert request.tool_choice == "none"
    assert request.separate_reasoning and request.stream_reasoning
    with pytest.raises(ValidationError):
        ChatCompletionRequest(messages=[USER], stop=5)
    with pytest.raises(ValidationError, match="max_tokens must be positive"):
        CompletionRequest(prompt="a", max_tokens=0)
