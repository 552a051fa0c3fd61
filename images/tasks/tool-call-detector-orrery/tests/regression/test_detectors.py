"""Every existing detector makes of its own format what it made before."""

import json

import pytest
from detector_outputs import ARGUMENTS, RECORDED, TOOLS, tokens
from sglang.srt.function_call.function_call_parser import FunctionCallParser


def read_stream(key, chunks):
    parser = FunctionCallParser(TOOLS, key)
    text, calls = "", {}
    for chunk in chunks:
        normal_text, items = parser.parse_stream_chunk(chunk)
        text += normal_text
        for item in items:
            call = calls.setdefault(item.tool_index, [None, ""])
            call[0] = call[0] or item.name
            call[1] += item.parameters
    return text, [(index, name, json.loads(arguments)) for index, (name, arguments) in calls.items()]


@pytest.mark.parametrize("case", list(RECORDED))
def test_a_whole_output_is_parsed_as_before(case):
    recorded = RECORDED[case]
    parser = FunctionCallParser(TOOLS, recorded.key)
    assert parser.has_tool_call(recorded.output)
    text, items = parser.parse_non_stream(recorded.output)
    assert text == recorded.one_shot_text
    assert [(item.tool_index, item.name, json.loads(item.parameters)) for item in items] == [
        (index, name, ARGUMENTS[name]) for index, name in zip(recorded.one_shot_indexes, recorded.names, strict=True)
    ]


@pytest.mark.parametrize("case", list(RECORDED))
def test_a_stream_of_tokens_is_parsed_as_before(case):
    recorded = RECORDED[case]
    names = recorded.names if recorded.streamed_names is None else recorded.streamed_names
    text, calls = read_stream(recorded.key, tokens(recorded.output))
    assert text == recorded.stream_text
    assert calls == [(index, name, ARGUMENTS[name]) for index, name in enumerate(names)]


@pytest.mark.parametrize("case", ["hermes", "llama3", "mistral, compact", "pythonic", "glm47", "qwen3_coder", "lfm2", "interns1", "step3"])
def test_a_stream_of_characters_is_parsed_as_before(case):
    recorded = RECORDED[case]
    text, calls = read_stream(recorded.key, recorded.output)
    assert text == recorded.stream_text
    assert calls == [(index, name, ARGUMENTS[name]) for index, name in enumerate(recorded.names)]


@pytest.mark.parametrize("case", [name for name in RECORDED if name != "gpt-oss"])
def test_text_without_calls_passes_as_before(case):
    key = RECORDED[case].key
    output = "Plain text, in two lines:\nno call here. @@call get_time\n@@end"
    assert FunctionCallParser(TOOLS, key).has_tool_call(output) is False
    assert FunctionCallParser(TOOLS, key).parse_non_stream(output) == (output, [])
    assert read_stream(key, tokens(output)) == (output, [])
