"""What a client of /v1/chat/completions sees when it sends tags."""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from chat_server import ChatServer, collect  # noqa: E402

PARSERS = [None, "qwen3", "deepseek-r1", "kimi"]


@pytest.mark.parametrize("reasoning_parser", PARSERS)
def test_plain_response(reasoning_parser):
    server = ChatServer(["a<pad>b</pad>c"], reasoning_parser=reasoning_parser)
    message = server.post(reasoning_tags="pad").choices[0].message
    assert (message.reasoning_content, message.content) == ("b", "ac")


@pytest.mark.parametrize("reasoning_parser", PARSERS)
def test_streamed_response(reasoning_parser):
    server = ChatServer(list("a<pad>b</pad>c"), reasoning_parser=reasoning_parser)
    assert collect(server.stream(reasoning_tags="pad")) == ("b", "ac", "stop")


def test_plain_choices_are_apart():
    server = ChatServer(["<pad>a"], ["b</pad>"], ["<pad>c</pad>d"])
    choices = server.post(reasoning_tags="pad", n=3).choices
    seen = [(c.message.reasoning_content, c.message.content) for c in choices]
    assert seen == [("a", None), (None, "b</pad>"), ("c", "d")]


def test_streamed_choices_are_apart():
    server = ChatServer(list("<pad>a</pad>b"), list("x</pad><pad>y"), ["<p", "ad"])
    events = server.stream(reasoning_tags="pad", n=3)
    assert collect(events, 0) == ("a", "b", "stop")
    assert collect(events, 1) == ("y", "x</pad>", "stop")
    assert collect(events, 2) == ("", "<pad", "stop")


@pytest.mark.parametrize(
    "pieces, expected",
    [
        (["1 ", "<p"], ("", "1 <p", "stop")),
        (["1 ", "<p", ""], ("", "1 <p", "stop")),
        (["<pad>1", "</"], ("1</", "", "stop")),
        (["<pad>", "1</", ""], ("1</", "", "stop")),
        (["<"], ("", "<", "stop")),
    ],
)
@pytest.mark.parametrize("stream_reasoning", [True, False])
def test_held_text_is_sent_before_the_finish(pieces, expected, stream_reasoning):
    server = ChatServer(pieces, reasoning_parser="qwen3")
    events = server.stream(reasoning_tags="pad", stream_reasoning=stream_reasoning)
    assert collect(events) == expected


def test_an_open_block_is_not_lost_when_reasoning_is_not_streamed():
    server = ChatServer(list("a<pad>still thinking"))
    events = server.stream(reasoning_tags="pad", stream_reasoning=False)
    assert collect(events) == ("still thinking", "a", "stop")


def test_held_text_goes_through_the_tool_parser():
    call = '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'
    pieces = list("<pad>a</pad>" + call)
    server = ChatServer(pieces + ["<"], tool_call_parser="qwen25")
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    events = server.stream(reasoning_tags="pad", tools=tools)
    names = [
        tool["function"]["name"]
        for choice in events
        for tool in choice["delta"].get("tool_calls") or []
        if tool["function"]["name"]
    ]
    reasoning, content, finish = collect(events)
    assert (names, reasoning, finish) == (["f"], "a", "tool_calls")
    assert "tool_call" not in content


def test_a_tool_call_whose_last_character_was_held_back():
    # The tool-call end tag ends in what may become a reasoning tag: only the flush completes the call.
    call = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
    pieces = list(">>thinka<<" + call)
    server = ChatServer(pieces, tool_call_parser="qwen25")
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    events = server.stream(
        reasoning_tags={"start": ">>think", "end": "<<"}, tools=tools
    )
    calls = [t for c in events for t in c["delta"].get("tool_calls") or []]
    arguments = "".join(t["function"]["arguments"] or "" for t in calls)
    assert arguments.replace(" ", "") == '{"a":1}'
    assert collect(events) == ("a", "", "tool_calls")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", ["gpt-oss", "minimax-append-think", "GPT-OSS"])
def test_parsers_that_cannot_be_replaced_give_400(name, stream):
    server = ChatServer(["x"], reasoning_parser=name)
    response = server.post(reasoning_tags="pad", stream=stream)
    assert response.status_code == 400
    message = f"reasoning_tags is not supported with reasoning parser '{name}'"
    assert message in str(response.content)
    assert server.model.calls == 0
