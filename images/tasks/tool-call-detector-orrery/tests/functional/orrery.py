"""
What the functional tests share: the tools of the request, the outputs with what they mean, and a client that reads a stream
the way the serving layer's clients do (it merges fragments by index).
"""

import json
from dataclasses import dataclass, field

from sglang.srt.entrypoints.openai.protocol import Function, Tool
from sglang.srt.function_call.function_call_parser import FunctionCallParser

KEY = "orrery"


def tool(name, *, strict=False, **properties):
    parameters = {"type": "object", "properties": properties}
    return Tool(function=Function(name=name, parameters=parameters, strict=strict))


# get_time stands first, so an index into this list is never the index of a first get_weather call.
TOOLS = [
    tool("get_time", tz={"type": "string"}),
    tool("get_weather", city={"type": "string"}, days={"type": "integer"}),
    tool("write_file", path={"type": "string"}, text={"type": "string"}),
    tool("ping"),
    tool("maps.search-v2", filter={"type": "object"}),
]


def new_parser(tools=TOOLS):
    return FunctionCallParser(tools, KEY)


@dataclass
class Call:
    index: int
    name: str
    fragments: list = field(default_factory=list)

    @property
    def arguments(self):
        return "".join(self.fragments)


class Client:
    """One stream, fed chunk by chunk; every rule about single fragments is checked as they arrive."""

    def __init__(self, tools=TOOLS):
        self.parser = new_parser(tools)
        self.text = ""
        self.calls = []

    def feed(self, chunk):
        text, items = self.parser.parse_stream_chunk(chunk)
        self.text += text
        for item in items:
            if item.name is not None:
                assert item.parameters == "", "the first item of a call carries only its name"
                assert item.tool_index == len(self.calls), "calls are numbered 0, 1, 2, ..."
                self.calls.append(Call(item.tool_index, item.name))
            else:
                assert self.calls, "arguments came before any name"
                assert item.tool_index == len(self.calls) - 1, "arguments of a call that isn't the current one"
                self.calls[-1].fragments.append(item.parameters)
        return self

    def result(self):
        return self.text, [(call.name, json.loads(call.arguments)) for call in self.calls]


def stream(chunks, tools=TOOLS):
    client = Client(tools)
    for chunk in chunks:
        client.feed(chunk)
    return client


def pieces(text, size):
    return [text[i : i + size] for i in range(0, len(text), size)]


def random_pieces(text, rng, longest):
    chunks = []
    while text:
        size = rng.randint(1, longest)
        chunks.append(text[:size])
        text = text[size:]
    return chunks


def one_shot(text, tools=TOOLS):
    """Text and calls of detect_and_parse, after a look at the indexes."""
    result = new_parser(tools).detector.detect_and_parse(text, tools)
    assert [item.tool_index for item in result.calls] == list(range(len(result.calls)))
    return result.normal_text, [(item.name, json.loads(item.parameters)) for item in result.calls]


def call(name, body, end="@@end"):
    return f"@@call {name}\n{body}\n{end}"


PARIS = '{"city": "Paris", "days": 3}'
PARIS_ARGS = {"city": "Paris", "days": 3}
TZ = '{"tz": "Europe/Paris"}'
TZ_ARGS = {"tz": "Europe/Paris"}

NESTED = """{
  "filter": {
    "near": {"lat": 48.8566, "lon": 2.3522},
    "tags": ["café", ["a", {"b": []}], {}],
    "open": true, "closed": false, "none": null,
    "radius": 1.5e3, "offset": -7, "id": 12345678901234567890
  }
}"""

TRICKY = r'{"path": "C:\\dir\\", "text": "say \"@@end\" or @@call ping\n@@end\n} ] { [ \\\" \\"}'
ESCAPES = r'{"city": "\u00e9\ud83c\udf26\/ 東京 🌦️", "days": 1}'

# name -> (output, normal text, calls). None of the outputs ends in something that could still become a marker.
CASES = {
    "one call": (call("get_weather", PARIS), "", [("get_weather", PARIS_ARGS)]),
    "text around a call": (
        "Let me look.\n" + call("get_weather", PARIS) + "\nThat is all.",
        "Let me look.\nThat is all.",
        [("get_weather", PARIS_ARGS)],
    ),
    "two calls": (
        "Both.\n" + call("get_weather", PARIS) + "\n" + call("get_time", TZ) + "\n",
        "Both.\n",
        [("get_weather", PARIS_ARGS), ("get_time", TZ_ARGS)],
    ),
    "one tool three times": (
        call("ping", "{}") + "\n\n" + call("ping", '{"n":2}') + " \t\r\n" + call("ping", '{"n":3}'),
        "",
        [("ping", {}), ("ping", {"n": 2}), ("ping", {"n": 3})],
    ),
    "a header right behind an end marker": (
        call("get_time", TZ) + call("ping", "{}"),
        "",
        [("get_time", TZ_ARGS), ("ping", {})],
    ),
    "text between calls": (
        call("get_weather", PARIS) + "\n\nNow the time:\n\n" + call("get_time", TZ) + "\nDone",
        "Now the time:\n\nDone",
        [("get_weather", PARIS_ARGS), ("get_time", TZ_ARGS)],
    ),
    "text behind an end marker on its line": (
        call("ping", "{}") + " so far\n so good\n" + call("ping", "{}") + "ok",
        "so far\n so good\nok",
        [("ping", {}), ("ping", {})],
    ),
    "a pretty-printed, nested body": (
        call("maps.search-v2", NESTED),
        "",
        [("maps.search-v2", json.loads(NESTED))],
    ),
    "whitespace around a body": (
        call("get_time", "\n \t" + TZ + " \t\n\n"),
        "",
        [("get_time", TZ_ARGS)],
    ),
    "a compact body": (call("get_time", '{"tz":"UTC"}'), "", [("get_time", {"tz": "UTC"})]),
    "an empty object": (call("ping", "{}"), "", [("ping", {})]),
    "an empty object with space in it": (call("ping", "{ \n }"), "", [("ping", {})]),
    "an empty body": ("@@call ping\n@@end", "", [("ping", {})]),
    "an empty body of blank lines": ("@@call ping\n \n\t\n@@end\nok", "ok", [("ping", {})]),
    "an empty body, then a call": (
        "@@call ping\n@@end\n" + call("get_time", TZ),
        "",
        [("ping", {}), ("get_time", TZ_ARGS)],
    ),
    "an empty body without end marker, then a call": (
        "@@call ping\n" + call("get_time", TZ),
        "",
        [("ping", {}), ("get_time", TZ_ARGS)],
    ),
    "markers, quotes and braces in strings": (
        call("write_file", TRICKY) + "\n" + call("ping", "{}"),
        "",
        [("write_file", json.loads(TRICKY)), ("ping", {})],
    ),
    "escapes and characters beyond ASCII": (
        "Météo à 東京 🌦️ :\n" + call("get_weather", ESCAPES) + "\nvoilà 🎉",
        "Météo à 東京 🌦️ :\nvoilà 🎉",
        [("get_weather", json.loads(ESCAPES))],
    ),
    "trailing blanks in a header": (
        "@@call get_time \t \n" + TZ + "\n@@end",
        "",
        [("get_time", TZ_ARGS)],
    ),
    "a diff before a call": (
        "--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n-old\n+new\n@@\n@@ end\n" + call("write_file", '{"path": "x"}'),
        "--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n-old\n+new\n@@\n@@ end\n",
        [("write_file", {"path": "x"})],
    ),
    "lines that nearly are headers": (
        "@@call me later\n@@caller\n@@call  ping\n@@call\tping\n@@call ping!\n@@call \n@@Call ping\n@@@call ping\n" + call("ping", "{}"),
        "@@call me later\n@@caller\n@@call  ping\n@@call\tping\n@@call ping!\n@@call \n@@Call ping\n@@@call ping\n",
        [("ping", {})],
    ),
    "mentions in the middle of a line": (
        "Write @@call ping\nthen `@@end`\n @@call ping\n{}\n @@end\nok",
        "Write @@call ping\nthen `@@end`\n @@call ping\n{}\n @@end\nok",
        [],
    ),
    "end markers outside a call": (
        "@@end\n@@ending " + "\n@@end\n" + call("ping", "{}") + "\n@@end\n@@end, really",
        "@@end\n@@ending \n@@end\n@@end\n@@end, really",
        [("ping", {})],
    ),
    "a missing end marker before a header": (
        "Go.\n@@call get_weather\n" + PARIS + "\n" + call("get_time", TZ) + "\nok",
        "Go.\nok",
        [("get_weather", PARIS_ARGS), ("get_time", TZ_ARGS)],
    ),
    "a missing end marker at the end": (
        "Go.\n" + call("get_time", TZ) + "\n@@call get_weather\n" + PARIS + "\n",
        "Go.\n",
        [("get_time", TZ_ARGS), ("get_weather", PARIS_ARGS)],
    ),
    "an unknown tool between known ones": (
        call("get_time", TZ) + "\n" + call("launch", '{"now": true}') + "\n" + call("ping", "{}") + "\nok",
        "ok",
        [("get_time", TZ_ARGS), ("ping", {})],
    ),
    "unknown names that look like known ones": (
        call("get_weather_v2", PARIS) + "\n" + call("get", "{}") + "\n" + call("Ping", "") + call("get_weather", PARIS),
        "",
        [("get_weather", PARIS_ARGS)],
    ),
    "an unknown tool alone": ("Hm.\n" + call("launch", '{"now": true}') + "\nWell.", "Hm.\nWell.", []),
    "bodies that are not objects": (
        "".join(call("ping", body) + "\n" for body in ("[1, {}]", '"{}"', "null", "42", "say {}", "@@ {}")) + call("ping", "{}") + "\nok",
        "ok",
        [("ping", {})],
    ),
    "no call at all": ("Just text,\n\nin lines.\n\tAnd more.", "Just text,\n\nin lines.\n\tAnd more.", []),
}
CASE_IDS = list(CASES)

# Bodies that begin like an object and are none.
BROKEN = {
    "cut inside a string": '{"city": "Par',
    "cut behind a key": '{"city":',
    "no closing brace": '{"city": "Paris"',
    "a closing brace too many": '{"city": "Paris"}}',
    "a missing value": '{"city": , "days": 3}',
    "single quotes": "{'city': 'Paris'}",
    "text behind the object": '{"city": "Paris"} please',
    "two objects": '{"city": "Paris"} {"city": "Rome"}',
    "a raw line feed in a string": '{"city": "Par\nis"}',
    "a bare brace": "{",
}
