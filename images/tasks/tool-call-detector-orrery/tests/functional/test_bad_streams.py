"""Streams of a model that makes mistakes: what follows a mistake comes out whole."""

import json
import random

import pytest
from orrery import BROKEN, PARIS, PARIS_ARGS, TZ, TZ_ARGS, call, pieces, random_pieces, stream


def cuts(output, seed):
    rng = random.Random(seed)
    yield [output]
    for at in range(1, len(output)):
        yield [output[:at], output[at:]]
    for size in (1, 2, 3, 5, 8, 13):
        yield pieces(output, size)
    for _ in range(25):
        yield random_pieces(output, rng, 12)


def check_neighbours(chunks, text):
    """The call before and the call after the broken one are whole; the broken one may be there, once."""
    client = stream(chunks)
    assert client.text == text, chunks
    names = [item.name for item in client.calls]
    assert names in (["get_time", "ping"], ["get_time", "get_weather", "ping"]), chunks
    assert json.loads(client.calls[0].arguments) == TZ_ARGS, chunks
    assert json.loads(client.calls[-1].arguments) == {"n": 1}, chunks


@pytest.mark.parametrize("why", list(BROKEN))
def test_broken_arguments_do_not_harm_the_calls_around_them(why):
    output = "Go.\n" + call("get_time", TZ) + "\n" + call("get_weather", BROKEN[why]) + "\nand\n" + call("ping", '{"n": 1}') + "\nok"
    for chunks in cuts(output, why):
        check_neighbours(chunks, "Go.\nand\nok")


@pytest.mark.parametrize("why", list(BROKEN))
def test_broken_arguments_without_end_marker_do_not_harm_the_calls_around_them(why):
    output = call("get_time", TZ) + "\n" + call("get_weather", BROKEN[why], end="") + call("ping", '{"n": 1}') + "\nok"
    for chunks in cuts(output, why):
        check_neighbours(chunks, "ok")


@pytest.mark.parametrize(
    "body",
    [
        pytest.param("[1, {}]", id="array"),
        pytest.param('"{}"', id="string"),
        pytest.param("null", id="null"),
        pytest.param("say {}", id="text"),
        pytest.param("@@ {}", id="nearly a marker"),
        pytest.param("@@call me {}", id="nearly a header"),
        pytest.param("-", id="one character"),
    ],
)
def test_the_name_of_a_call_without_an_object_is_never_sent(body):
    output = "Go.\n" + call("get_weather", body) + "\n" + call("get_time", TZ) + "\nok"
    for chunks in cuts(output, body):
        assert stream(chunks).result() == ("Go.\nok", [("get_time", TZ_ARGS)]), chunks


@pytest.mark.parametrize(
    "body",
    [
        pytest.param("", id="header"),
        pytest.param("\n \n", id="whitespace"),
        pytest.param("[", id="bracket"),
        pytest.param("null", id="null"),
    ],
)
def test_a_stream_that_stops_before_the_arguments_sends_no_name(body):
    output = "Go.\n" + call("get_time", TZ) + "\n@@call get_weather\n" + body
    for chunks in cuts(output, body):
        assert stream(chunks).result() == ("Go.\n", [("get_time", TZ_ARGS)]), chunks


def test_a_stream_that_stops_inside_the_arguments_has_sent_a_part_of_them():
    body = json.dumps({"path": "notes.txt", "text": "lorem ipsum " * 40})
    output = call("get_time", TZ) + "\n@@call write_file\n" + body[:-100]
    for size in (1, 4, 16):
        client = stream(pieces(output, size))
        assert [item.name for item in client.calls] == ["get_time", "write_file"]
        assert json.loads(client.calls[0].arguments) == TZ_ARGS
        assert "lorem ipsum lorem ipsum" in client.calls[1].arguments


def test_an_unknown_tool_is_forwarded_on_request(monkeypatch):
    monkeypatch.setenv("SGLANG_FORWARD_UNKNOWN_TOOLS", "true")
    output = call("launch", '{"now": true}') + "\nthen\n" + call("get_weather", PARIS) + "\n" + call("land", "")
    expected = ("then\n", [("launch", {"now": True}), ("get_weather", PARIS_ARGS), ("land", {})])
    for chunks in cuts(output, "forward"):
        assert stream(chunks).result() == expected, chunks


def test_a_flood_of_nearly_markers_is_text():
    rng = random.Random("flood")
    parts = ["@", "@@", "@@c", "@@call", "@@call ", "@@end", " ", "!", "\n", "\n\n", "@@call a b"]
    for _ in range(300):
        output = "".join(rng.choice(parts) for _ in range(rng.randint(1, 12))) + "!"
        assert stream(random_pieces(output, rng, 6)).result() == (output, []), output
