"""The registry, the constraints and the shared base class stay as they were."""

import json

import pytest
from detector_outputs import TOOLS, tool
from sglang.srt.entrypoints.openai.protocol import ToolChoice, ToolChoiceFuncName
from sglang.srt.function_call.function_call_parser import FunctionCallParser
from sglang.srt.function_call.hermes_detector import HermesDetector
from sglang.srt.function_call.json_array_parser import JsonArrayParser

REGISTERED = {
    "deepseekv3": "DeepSeekV3Detector",
    "deepseekv31": "DeepSeekV31Detector",
    "deepseekv32": "DeepSeekV32Detector",
    "glm": "Glm4MoeDetector",
    "glm45": "Glm4MoeDetector",
    "glm47": "Glm47MoeDetector",
    "gpt-oss": "GptOssDetector",
    "kimi_k2": "KimiK2Detector",
    "lfm2": "Lfm2Detector",
    "llama3": "Llama32Detector",
    "mimo": "MiMoDetector",
    "mistral": "MistralDetector",
    "pythonic": "PythonicDetector",
    "qwen": "Qwen25Detector",
    "qwen25": "Qwen25Detector",
    "qwen3_coder": "Qwen3CoderDetector",
    "step3": "Step3Detector",
    "step3p5": "Qwen3CoderDetector",
    "minimax-m2": "MinimaxM2Detector",
    "trinity": "TrinityDetector",
    "interns1": "InternlmDetector",
    "hermes": "HermesDetector",
    "gigachat3": "GigaChat3Detector",
}


@pytest.mark.parametrize("key", list(REGISTERED))
def test_a_key_names_the_same_detector(key):
    assert FunctionCallParser.ToolCallParserEnum[key].__name__ == REGISTERED[key]
    assert type(FunctionCallParser(TOOLS, key).detector).__name__ == REGISTERED[key]


@pytest.mark.parametrize("key", ["", "orrery-2", "Hermes"])
def test_an_unknown_key_is_refused(key):
    with pytest.raises(ValueError, match="Unsupported tool_call_parser"):
        FunctionCallParser(TOOLS, key)


@pytest.mark.parametrize(
    "key, begin, end, trigger",
    [
        ("hermes", '<tool_call>{"name":"get_time", "arguments":', "}</tool_call>", "<tool_call>"),
        ("qwen", '<tool_call>\n{"name":"get_time", "arguments":', "}\n</tool_call>", "<tool_call>"),
        ("llama3", '<|python_tag|>{"name":"get_time", "arguments":', "}", "<|python_tag|>"),
    ],
)
def test_structural_tags_are_as_before(key, begin, end, trigger):
    tools = [tool("get_time", strict=True, tz={"type": "string"})]
    kind, tag = FunctionCallParser(tools, key).get_structure_constraint("auto")
    assert kind == "structural_tag"
    assert [(item.begin, item.end) for item in tag.structures] == [(begin, end)]
    assert tag.triggers == [trigger]


def test_schema_constraints_are_as_before():
    named = ToolChoice(type="function", function=ToolChoiceFuncName(name="get_time"))
    parser = FunctionCallParser(TOOLS, "hermes")
    assert parser.get_structure_constraint("auto") is None
    kind, schema = parser.get_structure_constraint("required")
    assert (kind, schema["minItems"], len(schema["items"]["anyOf"])) == ("json_schema", 1, 2)
    kind, schema = parser.get_structure_constraint(named)
    assert (kind, schema["maxItems"], schema["items"]["properties"]["name"]["enum"]) == ("json_schema", 1, ["get_time"])


def test_constrained_output_is_streamed_as_before():
    parser = JsonArrayParser()
    names, arguments = [], ""
    for letter in '[{"name": "get_time", "parameters": {"tz": "UTC"}}]':
        for item in parser.parse_streaming_increment(letter, TOOLS).calls:
            names.append(item.name) if item.name else None
            arguments += item.parameters
    assert (names, json.loads(arguments)) == (["get_time"], {"tz": "UTC"})


def test_unknown_tools_are_dropped_or_forwarded_as_before(monkeypatch):
    action = [{"name": "launch", "arguments": {"now": True}}, {"name": "get_time", "arguments": {}}]
    assert [item.name for item in HermesDetector().parse_base_json(action, TOOLS)] == ["get_time"]
    monkeypatch.setenv("SGLANG_FORWARD_UNKNOWN_TOOLS", "true")
    items = HermesDetector().parse_base_json(action, TOOLS)
    assert [(item.tool_index, item.name) for item in items] == [(-1, "launch"), (0, "get_time")]
