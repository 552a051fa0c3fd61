"""The detector is registered like the others and takes part in constrained decoding."""

from importlib import import_module

from orrery import KEY, TOOLS, new_parser, tool
from sglang.srt.entrypoints.openai.protocol import ToolChoice, ToolChoiceFuncName
from sglang.srt.function_call.base_format_detector import BaseFormatDetector
from sglang.srt.function_call.function_call_parser import FunctionCallParser


def test_the_detector_is_registered_under_its_key():
    module = import_module("sglang.srt.function_call.orrery_detector")
    assert FunctionCallParser.ToolCallParserEnum[KEY] is module.OrreryDetector
    assert issubclass(module.OrreryDetector, BaseFormatDetector)
    assert isinstance(new_parser().detector, module.OrreryDetector)


def test_a_structure_begins_with_the_header_and_ends_with_the_end_marker():
    detector = new_parser().detector
    assert detector.supports_structural_tag()
    info = detector.structure_info()("get_weather")
    assert (info.begin, info.end, info.trigger) == ("@@call get_weather\n", "\n@@end", "@@call ")


def test_strict_tools_are_constrained_by_structural_tags():
    tools = [tool("get_time", strict=True, tz={"type": "string"}), tool("ping")]
    kind, tag = new_parser(tools).get_structure_constraint("auto")
    assert kind == "structural_tag"
    assert [(item.begin, item.end) for item in tag.structures] == [
        ("@@call get_time\n", "\n@@end"),
        ("@@call ping\n", "\n@@end"),
    ]
    assert tag.triggers == ["@@call "]


def test_required_and_named_choices_are_constrained_by_schema():
    named = ToolChoice(type="function", function=ToolChoiceFuncName(name="ping"))
    for choice in ("required", named):
        kind, schema = new_parser().get_structure_constraint(choice)
        assert (kind, schema["type"]) == ("json_schema", "array")
    assert new_parser().get_structure_constraint("auto") is None


def test_without_tools_the_output_is_text():
    output = "@@call ping\n{}\n@@end"
    assert new_parser([]).parse_stream_chunk(output) == (output, [])
    assert new_parser([]).parse_non_stream(output) == (output, [])
    assert new_parser(TOOLS).has_tool_call(output)
