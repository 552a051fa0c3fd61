"""
One output for each of the existing detectors, with what the untouched tree makes of it: one-shot, and as a stream of tokens
(markers arrive whole, as special tokens do). Recorded, not wished for: oddities such as indexes into the list of tools are part of it.
"""

import re
from dataclasses import dataclass

from sglang.srt.entrypoints.openai.protocol import Function, Tool


def tool(name, *, strict=False, **properties):
    parameters = {"type": "object", "properties": properties}
    return Tool(function=Function(name=name, parameters=parameters, strict=strict))


TOOLS = [
    tool("get_time", tz={"type": "string"}),
    tool("get_weather", city={"type": "string"}, days={"type": "integer"}),
]

WEATHER = '{"city": "Paris", "days": 3}'
TIME = '{"tz": "UTC"}'

_TOKEN = re.compile(r"<[^<>]*>|\[[A-Z_]+\]|\w+|\s+|.", re.DOTALL)


def tokens(output):
    return _TOKEN.findall(output)


@dataclass(frozen=True)
class Recorded:
    key: str
    output: str
    one_shot_text: str
    one_shot_indexes: tuple
    stream_text: str
    names: tuple = ("get_weather",)
    streamed_names: tuple | None = None  # where a stream gives fewer calls


BOTH = ("get_weather", "get_time")

RECORDED = {
    "hermes": Recorded(
        "hermes",
        f'Hi\n<tool_call>{{"name": "get_weather", "arguments": {WEATHER}}}</tool_call>\n<tool_call>{{"name": "get_time", "arguments": {TIME}}}</tool_call>',
        "Hi",
        (1, 0),
        "Hi\n\n",
        BOTH,
    ),
    "qwen": Recorded(
        "qwen",
        f'Hi\n<tool_call>\n{{"name": "get_weather", "arguments": {WEATHER}}}\n</tool_call>\n<tool_call>\n{{"name": "get_time", "arguments": {TIME}}}\n</tool_call>',
        "Hi",
        (1, 0),
        "Hi\n",
        BOTH,
        streamed_names=("get_weather",),
    ),
    "llama3": Recorded(
        "llama3",
        f'<|python_tag|>{{"name": "get_weather", "parameters": {WEATHER}}};{{"name": "get_time", "parameters": {TIME}}}',
        "",
        (1, 0),
        "",
        BOTH,
    ),
    "mistral, one call": Recorded(
        "mistral",
        f'Hi [TOOL_CALLS] [{{"name": "get_weather", "arguments": {WEATHER}}}]',
        "Hi",
        (1,),
        "Hi ",
    ),
    "mistral, compact": Recorded("mistral", f"[TOOL_CALLS]get_weather[ARGS]{WEATHER}", "", (1,), ""),
    "deepseekv3": Recorded(
        "deepseekv3",
        "Hi<｜tool▁calls▁begin｜>"
        f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n{WEATHER}\n```<｜tool▁call▁end｜>\n"
        f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>get_time\n```json\n{TIME}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        "Hi",
        (1, 0),
        "Hi\n",
        BOTH,
    ),
    "deepseekv31": Recorded(
        "deepseekv31",
        f"Hi<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{WEATHER}<｜tool▁call▁end｜>"
        f"<｜tool▁call▁begin｜>get_time<｜tool▁sep｜>{TIME}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        "Hi",
        (1, 0),
        "Hi",
        BOTH,
    ),
    "deepseekv32": Recorded(
        "deepseekv32",
        'Hi<｜DSML｜function_calls>\n<｜DSML｜invoke name="get_weather">\n<｜DSML｜parameter name="city" string="true">Paris</｜DSML｜parameter>\n'
        '<｜DSML｜parameter name="days" string="false">3</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>',
        "Hi",
        (1,),
        "Hi\n",
    ),
    "pythonic": Recorded(
        "pythonic", 'Hi [get_weather(city="Paris", days=3), get_time(tz="UTC")]', "Hi ", (0, 1), "Hi ", BOTH
    ),
    "kimi_k2": Recorded(
        "kimi_k2",
        f"Hi<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{WEATHER}<|tool_call_end|>"
        f"<|tool_call_begin|>functions.get_time:1<|tool_call_argument_begin|>{TIME}<|tool_call_end|><|tool_calls_section_end|>",
        "Hi",
        (0, 1),
        "Hi",
        BOTH,
    ),
    "glm": Recorded(
        "glm",
        "Hi\n<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>",
        "Hi",
        (1,),
        "Hi\n",
    ),
    "glm47": Recorded(
        "glm47",
        "Hi\n<tool_call>get_weather<arg_key>city</arg_key><arg_value>Paris</arg_value><arg_key>days</arg_key><arg_value>3</arg_value></tool_call>",
        "Hi",
        (1,),
        "Hi\n",
    ),
    "qwen3_coder": Recorded(
        "qwen3_coder",
        "Hi\n<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>",
        "Hi\n",
        (0,),
        "Hi\n",
    ),
    "minimax-m2": Recorded(
        "minimax-m2",
        'Hi\n<minimax:tool_call>\n<invoke name="get_weather">\n<parameter name="city">Paris</parameter>\n<parameter name="days">3</parameter>\n</invoke>\n</minimax:tool_call>',
        "Hi\n",
        (1,),
        "Hi\n",
    ),
    "lfm2": Recorded(
        "lfm2",
        'Hi<|tool_call_start|>[get_weather(city="Paris", days=3), get_time(tz="UTC")]<|tool_call_end|>',
        "Hi",
        (0, 1),
        "Hi",
        BOTH,
    ),
    "interns1": Recorded(
        "interns1",
        f'Hi<|action_start|> <|plugin|>\n{{"name": "get_weather", "parameters": {WEATHER}}}<|action_end|>\n',
        "Hi",
        (1,),
        "Hi",
    ),
    "mimo": Recorded(
        "mimo",
        "Hi\n<tool_call>\n<function=get_weather>\n<parameter=city>Paris</parameter>\n<parameter=days>3</parameter>\n</function>\n</tool_call>",
        "Hi\n",
        (1,),
        "Hi\n",
    ),
    "trinity": Recorded(
        "trinity", f'Hi\n<tool_call>\n{{"name": "get_weather", "arguments": {WEATHER}}}\n</tool_call>', "Hi", (1,), "Hi\n"
    ),
    "gigachat3": Recorded(
        "gigachat3",
        f'Hi<|message_sep|>\n\nfunction call<|role_sep|>\n{{"name": "get_weather", "arguments": {WEATHER}}}',
        "Hi",
        (1,),
        "Hi",
    ),
    "step3": Recorded(
        "step3",
        'Hi<｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="get_weather"><steptml:parameter name="city">Paris</steptml:parameter>'
        '<steptml:parameter name="days">3</steptml:parameter></steptml:invoke><｜tool_call_end｜><｜tool_calls_end｜>',
        "Hi",
        (1,),
        "Hi",
    ),
    "gpt-oss": Recorded(
        "gpt-oss",
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather "
        f"<|constrain|>json<|message|>{WEATHER}<|call|>",
        "",
        (0,),
        "",
    ),
}

ARGUMENTS = {"get_weather": {"city": "Paris", "days": 3}, "get_time": {"tz": "UTC"}}
