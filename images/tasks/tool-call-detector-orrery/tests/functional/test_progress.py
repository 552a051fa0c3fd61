"""A stream is passed on while it arrives, and the detector's bookkeeping serves the serving layer."""

import json

import pytest
from orrery import CASE_IDS, CASES, TZ, TZ_ARGS, Client, call, pieces, stream

VALUE = "".join(f"{n:05d} " for n in range(400))


@pytest.mark.parametrize("size", [1, 3, 16])
@pytest.mark.parametrize(
    "ending",
    [
        pytest.param('"}\n@@end', id="one argument"),
        pytest.param('",\n "path": "a.txt"}\n@@end', id="two arguments"),
        pytest.param('"}', id="no end marker"),
    ],
)
def test_arguments_are_passed_on_while_they_arrive(size, ending):
    head = '@@call write_file\n{"text": "'
    client = Client()
    fed = 0
    for chunk in pieces(head + VALUE + ending, size):
        client.feed(chunk)
        fed += len(chunk)
        of_value = min(max(fed - len(head), 0), len(VALUE))
        if of_value > 64:
            sent = client.calls[0].arguments
            value_sent = sent[sent.index(VALUE[:6]) :]
            assert len(value_sent) >= of_value - 64, f"{len(value_sent)} of {of_value} characters sent"
            assert VALUE.startswith(value_sent[: len(VALUE)])
    assert json.loads(client.calls[0].arguments)["text"] == VALUE


def test_arguments_over_many_lines_are_passed_on_while_they_arrive():
    numbers = list(range(1000, 1300))
    body = json.dumps({"filter": {"ids": numbers}}, indent=1)
    client = Client().feed("@@call maps.search-v2\n")
    for at, chunk in enumerate(pieces(body, 8)):
        client.feed(chunk)
        if at == len(body) // 16:
            half = client.calls[0].arguments
            assert "1000" in half and "1120" in half
    assert json.loads(client.calls[0].arguments) == {"filter": {"ids": numbers}}


def test_the_name_is_sent_when_the_arguments_begin():
    client = Client().feed("@@call get_weather\n ")
    assert client.calls == []
    client.feed('{"city')
    assert [item.name for item in client.calls] == ["get_weather"]


def test_arguments_are_complete_before_the_end_marker_comes():
    client = stream(pieces("@@call get_time\n" + TZ, 5))
    assert client.result() == ("", [("get_time", TZ_ARGS)])


def test_streamed_characters_beyond_ascii_are_not_escaped():
    for size in (1, 7, 1000):
        client = stream(pieces(call("get_weather", '{"city": "東京 é 🌦️"}'), size))
        assert "東京 é 🌦️" in client.calls[0].arguments


def test_an_empty_body_is_sent_with_its_end_marker():
    client = Client().feed("@@call ping\n\n@@en")
    assert client.calls == []
    client.feed("d")
    assert client.result() == ("", [("ping", {})])


@pytest.mark.parametrize(
    "fed, seen",
    [
        pytest.param("Hello wor", "Hello wor", id="a word"),
        pytest.param("a @@call pin", "a @@call pin", id="a mention"),
        pytest.param("a\n@@ ", "a\n@@ ", id="a space too early"),
        pytest.param("a\n@@ -1,2", "a\n@@ -1,2", id="a diff"),
        pytest.param("a\n @@call ping", "a\n @@call ping", id="an indented header"),
        pytest.param("@@call me l", "@@call me l", id="two words"),
        pytest.param("@@calm", "@@calm", id="another word"),
        pytest.param("@@end", "@@end", id="an end marker outside a call"),
        pytest.param(call("ping", "{}") + "\n\nWell", "Well", id="text behind a call"),
        pytest.param(call("ping", "{}") + "\n@@x", "@@x", id="nearly a marker behind a call"),
    ],
)
def test_text_is_held_back_only_while_it_can_become_a_marker(fed, seen):
    assert Client().feed(fed).text == seen
    assert stream(fed).text == seen


@pytest.mark.parametrize("length", range(1, len("@@call ping \t") + 1))
def test_what_can_become_a_header_is_held_back(length):
    fed = "@@call ping \t"[:length]
    assert stream(fed).text == ""
    assert stream([fed, "!\nok"]).text == fed + "!\nok"


def left_over(detector):
    """What the serving layer would still send at the end of a stream: the last call's arguments less those sent."""
    if not detector.prev_tool_call_arr or not detector.streamed_args_for_tool:
        return ""
    last = len(detector.prev_tool_call_arr) - 1
    if last >= len(detector.streamed_args_for_tool):
        return ""
    whole = json.dumps(detector.prev_tool_call_arr[last].get("arguments", {}), ensure_ascii=False)
    sent = detector.streamed_args_for_tool[last]
    return whole.replace(sent, "", 1) if sent in whole else ""


@pytest.mark.parametrize("size", [1, 6, 10_000])
@pytest.mark.parametrize("case", CASE_IDS)
def test_nothing_is_left_over_at_the_end_of_a_stream(case, size):
    output, _, calls = CASES[case]
    client = stream(pieces(output, size))
    detector = client.parser.detector
    assert client.result()[1] == calls
    assert detector.streamed_args_for_tool == [item.arguments for item in client.calls]
    assert [entry["name"] for entry in detector.prev_tool_call_arr] == [name for name, _ in calls]
    assert left_over(detector) == ""
    if case != "a missing end marker at the end":
        assert [entry["arguments"] for entry in detector.prev_tool_call_arr] == [arguments for _, arguments in calls]
