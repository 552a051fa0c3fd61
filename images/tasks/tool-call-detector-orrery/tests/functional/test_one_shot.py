"""detect_and_parse, has_tool_call and the parser's one-shot path."""

import json

import pytest
from orrery import BROKEN, CASE_IDS, CASES, PARIS, PARIS_ARGS, TOOLS, TZ, TZ_ARGS, call, new_parser, one_shot


@pytest.mark.parametrize("case", CASE_IDS)
def test_a_whole_output_is_parsed(case):
    output, text, calls = CASES[case]
    assert one_shot(output) == (text, calls)


def test_parsing_keeps_no_state():
    output, text, calls = CASES["text between calls"]
    detector = new_parser().detector
    detector.detect_and_parse("@@call ping\n{", TOOLS)
    for _ in range(2):
        result = detector.detect_and_parse(output, TOOLS)
        assert (result.normal_text, [item.name for item in result.calls]) == (text, [name for name, _ in calls])


def test_the_parser_returns_text_and_calls():
    output, text, calls = CASES["text around a call"]
    normal_text, items = new_parser().parse_non_stream(output)
    assert normal_text == text
    assert [(item.tool_index, item.name, json.loads(item.parameters)) for item in items] == [(0, *calls[0])]


def test_characters_beyond_ascii_are_not_escaped():
    _, items = new_parser().parse_non_stream(call("get_weather", '{"city": "東京 é"}'))
    assert "東京 é" in items[0].parameters


@pytest.mark.parametrize("why", list(BROKEN))
def test_a_call_with_broken_arguments_is_dropped_and_the_others_stay(why):
    broken = call("get_weather", BROKEN[why])
    output = "Go.\n" + call("get_time", TZ) + "\n" + broken + "\nand\n" + call("get_weather", PARIS) + "\nok"
    assert one_shot(output) == ("Go.\nand\nok", [("get_time", TZ_ARGS), ("get_weather", PARIS_ARGS)])


@pytest.mark.parametrize("why", list(BROKEN))
def test_a_broken_call_without_end_marker_does_not_take_the_next_one_along(why):
    output = call("get_weather", BROKEN[why], end="") + call("get_weather", PARIS) + "\nok"
    assert one_shot(output) == ("ok", [("get_weather", PARIS_ARGS)])


@pytest.mark.parametrize(
    "body",
    [
        pytest.param("", id="before the body"),
        pytest.param(" \n", id="in the whitespace before the body"),
        pytest.param("{", id="behind the opening brace"),
        pytest.param('{"city": "Par', id="inside a string"),
        pytest.param(PARIS[:-1], id="before the closing brace"),
        pytest.param("[]", id="in a body that is no object"),
        pytest.param(PARIS + "}", id="behind a brace too many"),
    ],
)
def test_a_call_that_the_output_breaks_off_is_dropped(body):
    output = "Go.\n" + call("get_time", TZ) + "\n@@call get_weather\n" + body
    assert one_shot(output) == ("Go.\n", [("get_time", TZ_ARGS)])


def test_a_header_without_its_line_feed_is_text():
    assert one_shot("Go.\n@@call ping") == ("Go.\n@@call ping", [])


@pytest.mark.parametrize(
    "text, expected",
    [
        pytest.param(call("ping", "{}"), True, id="call"),
        pytest.param("Go.\n" + call("get_time", TZ) + "\nok", True, id="call in text"),
        pytest.param("Go.\n@@call get_time  \n", True, id="header with blanks"),
        pytest.param("Go.\n@@call launch\n{}", True, id="unknown tool"),
        pytest.param("", False, id="nothing"),
        pytest.param("Just text.", False, id="text"),
        pytest.param("Write @@call ping\nthere", False, id="mention"),
        pytest.param(" @@call ping\n{}", False, id="indented"),
        pytest.param("@@ -1,2 +1,2 @@\n-a\n+b", False, id="diff"),
        pytest.param("@@call me later\n{}", False, id="nearly a header"),
        pytest.param("@@end\n{}", False, id="end marker"),
    ],
)
def test_has_tool_call_looks_for_a_header(text, expected):
    assert new_parser().has_tool_call(text) is expected


def test_an_unknown_tool_is_forwarded_on_request(monkeypatch):
    monkeypatch.setenv("SGLANG_FORWARD_UNKNOWN_TOOLS", "true")
    output = call("get_time", TZ) + "\n" + call("launch", '{"now": true}') + "\n" + call("ping", "{}")
    assert one_shot(output) == ("", [("get_time", TZ_ARGS), ("launch", {"now": True}), ("ping", {})])
