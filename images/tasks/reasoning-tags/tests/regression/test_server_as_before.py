"""/v1/chat/completions for requests that name no tags."""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from chat_server import ChatServer, collect  # noqa: E402

TEXT = ["<think>", "a", "</think>", "b"]


def test_plain_with_a_parser():
    message = ChatServer(TEXT, reasoning_parser="qwen3").post().choices[0].message
    assert (message.reasoning_content, message.content) == ("a", "b")


def test_streamed_with_a_parser():
    server = ChatServer(TEXT, reasoning_parser="qwen3")
    assert collect(server.stream()) == ("a", "b", "stop")


@pytest.mark.parametrize(
    "parser, fields",
    [
        (None, {}),
        (None, {"separate_reasoning": False}),
        ("qwen3", {"separate_reasoning": False}),
    ],
)
def test_not_separated(parser, fields):
    server = ChatServer(TEXT, reasoning_parser=parser)
    message = server.post(**fields).choices[0].message
    assert (message.reasoning_content, message.content) == (None, "".join(TEXT))
    assert collect(server.stream(**fields)) == ("", "".join(TEXT), "stop")


def test_reasoning_not_streamed():
    server = ChatServer(TEXT[1:], reasoning_parser="deepseek-r1")
    events = server.stream(stream_reasoning=False)
    assert collect(events) == ("a", "b", "stop")


def test_parsers_with_fixed_tags_still_serve():
    server = ChatServer(["x"], reasoning_parser="minimax-append-think")
    assert server.post().choices[0].message.content == "<think>x"
    channels = [
        "<|channel|>analysis<|message|>a<|end|>",
        "<|start|>assistant<|channel|>final<|message|>b<|return|>",
    ]
    server = ChatServer(channels, reasoning_parser="gpt-oss")
    message = server.post().choices[0].message
    assert (message.reasoning_content, message.content) == ("a", "b")


def test_choices_apart():
    server = ChatServer(TEXT, ["<think>", "c"], reasoning_parser="qwen3")
    events = server.stream(n=2)
    assert collect(events, 0) == ("a", "b", "stop")
    assert collect(events, 1) == ("c", "", "stop")


def test_tool_calls_after_reasoning():
    call = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    server = ChatServer(
        TEXT[:3] + [call], reasoning_parser="qwen3", tool_call_parser="qwen25"
    )
    choice = server.post(tools=tools).choices[0]
    assert choice.message.reasoning_content == "a"
    assert choice.message.tool_calls[0].function.name == "f"
    assert choice.finish_reason == "tool_calls"


def test_request_errors():
    response = ChatServer(["x"]).post(messages=[])
    assert response.status_code == 400
    assert "Messages cannot be empty." in str(response.content)
    response = ChatServer(["x"]).post(tool_choice="required")
    assert "Tools cannot be empty" in str(response.content)
