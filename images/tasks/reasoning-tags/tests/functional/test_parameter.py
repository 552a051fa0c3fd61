"""`reasoning_tags` as a request parameter: shapes, normalisation, messages."""

import pytest
from pydantic import ValidationError

from sglang.srt.entrypoints.openai.protocol import ChatCompletionRequest


def chat(**fields):
    return ChatCompletionRequest(messages=[{"role": "user", "content": "hi"}], **fields)


@pytest.mark.parametrize(
    "value, start, end",
    [
        pytest.param(
            {"start": "[think]", "end": "[/think]"}, "[think]", "[/think]", id="object"
        ),
        pytest.param({"end": "</a>", "start": "<a>"}, "<a>", "</a>", id="key order"),
        pytest.param(
            {"start": " <a>\n", "end": "\t</a> "}, "<a>", "</a>", id="spaces around"
        ),
        pytest.param(
            {"start": "◁想▷", "end": "◁/想▷"}, "◁想▷", "◁/想▷", id="not ASCII"
        ),
        pytest.param(
            {"start": "two words", "end": "."}, "two words", ".", id="plain words"
        ),
        pytest.param(
            {"start": "s" * 64, "end": "e" * 64}, "s" * 64, "e" * 64, id="64 characters"
        ),
        pytest.param(
            {"start": "  " + "s" * 64 + "  ", "end": "e"},
            "s" * 64,
            "e",
            id="64 after stripping",
        ),
        pytest.param("scratchpad", "<scratchpad>", "</scratchpad>", id="name"),
        pytest.param(
            "  Deep-Think_2\n", "<Deep-Think_2>", "</Deep-Think_2>", id="name stripped"
        ),
        pytest.param("x", "<x>", "</x>", id="short name"),
        pytest.param(
            "n" * 61, "<" + "n" * 61 + ">", "</" + "n" * 61 + ">", id="longest name"
        ),
    ],
)
def test_accepted_and_normalised(value, start, end):
    request = chat(reasoning_tags=value)
    assert (request.reasoning_tags.start, request.reasoning_tags.end) == (start, end)
    assert request.model_dump()["reasoning_tags"] == {"start": start, "end": end}


@pytest.mark.parametrize("fields", [{}, {"reasoning_tags": None}])
def test_absent_and_null_are_none(fields):
    request = chat(**fields)
    assert request.reasoning_tags is None
    assert request.model_dump()["reasoning_tags"] is None


def test_read_from_json():
    request = ChatCompletionRequest.model_validate_json(
        '{"messages": [{"role": "user", "content": "hi"}], "reasoning_tags": "why"}'
    )
    assert request.reasoning_tags.start == "<why>"


def test_a_dumped_request_is_valid_again():
    request = chat(reasoning_tags="why")
    again = ChatCompletionRequest(**request.model_dump(exclude_none=True))
    assert again.reasoning_tags.end == "</why>"


SHAPE = "reasoning_tags must be a tag name or an object with 'start' and 'end', got "
NAME = "reasoning_tags name must match [A-Za-z][A-Za-z0-9_-]*, got "
KEYS = "reasoning_tags must have exactly the keys 'start' and 'end', got "
OVERLAP = "reasoning_tags.start and reasoning_tags.end must not contain each other"


@pytest.mark.parametrize(
    "value, message",
    [
        pytest.param(5, SHAPE + "int", id="int"),
        pytest.param(True, SHAPE + "bool", id="bool"),
        pytest.param(1.5, SHAPE + "float", id="float"),
        pytest.param(["<a>", "</a>"], SHAPE + "list", id="list"),
        pytest.param([], SHAPE + "list", id="empty list"),
        pytest.param("", NAME + "''", id="empty name"),
        pytest.param(" \n", NAME + "''", id="blank name"),
        pytest.param("a b", NAME + "'a b'", id="name with a space"),
        pytest.param("<think>", NAME + "'<think>'", id="name with brackets"),
        pytest.param("2nd", NAME + "'2nd'", id="name with a digit first"),
        pytest.param("-a", NAME + "'-a'", id="name with a dash first"),
        pytest.param("größe", NAME + "'größe'", id="name not ASCII"),
        pytest.param("a٣", NAME + "'a٣'", id="name with an Arabic digit"),
        pytest.param("a\nb", NAME + "'a\\nb'", id="name in two lines"),
        pytest.param({}, KEYS + "[]", id="no keys"),
        pytest.param({"start": "<a>"}, KEYS + "['start']", id="no end"),
        pytest.param({"end": "<a>"}, KEYS + "['end']", id="no start"),
        pytest.param(
            {"begin": "<a>", "end": "</a>"}, KEYS + "['begin', 'end']", id="other key"
        ),
        pytest.param(
            {"start": "<a>", "name": "a", "end": "</a>"},
            KEYS + "['end', 'name', 'start']",
            id="extra key",
        ),
        pytest.param(
            {"start": 1, "end": "</a>"},
            "reasoning_tags.start must be a string, got int",
            id="start int",
        ),
        pytest.param(
            {"start": "<a>", "end": False},
            "reasoning_tags.end must be a string, got bool",
            id="end bool",
        ),
        pytest.param(
            {"start": None, "end": "</a>"},
            "reasoning_tags.start must be a string, got NoneType",
            id="start null",
        ),
        pytest.param(
            {"start": "<a>", "end": ["</a>"]},
            "reasoning_tags.end must be a string, got list",
            id="end list",
        ),
        pytest.param(
            {"start": "", "end": "</a>"},
            "reasoning_tags.start must not be empty",
            id="start empty",
        ),
        pytest.param(
            {"start": "<a>", "end": " \t\n"},
            "reasoning_tags.end must not be empty",
            id="end blank",
        ),
        pytest.param(
            {"start": "s" * 65, "end": "e"},
            "reasoning_tags.start must be at most 64 characters, got 65",
            id="start too long",
        ),
        pytest.param(
            {"start": "s", "end": " " + "e" * 100},
            "reasoning_tags.end must be at most 64 characters, got 100",
            id="end too long",
        ),
        pytest.param(
            "n" * 62,
            "reasoning_tags.end must be at most 64 characters, got 65",
            id="name too long",
        ),
        pytest.param({"start": "---", "end": "---"}, OVERLAP, id="equal"),
        pytest.param(
            {"start": "---", "end": " --- "}, OVERLAP, id="equal after stripping"
        ),
        pytest.param({"start": "--", "end": "<-->"}, OVERLAP, id="start in end"),
        pytest.param({"start": "think>>", "end": ">>"}, OVERLAP, id="end in start"),
    ],
)
def test_rejected_with_the_reason(value, message):
    with pytest.raises(ValidationError) as caught:
        chat(reasoning_tags=value)
    assert any(message in error["msg"] for error in caught.value.errors())


def test_needs_separate_reasoning():
    with pytest.raises(ValidationError) as caught:
        chat(reasoning_tags="why", separate_reasoning=False)
    assert "reasoning_tags requires separate_reasoning to be true" in str(caught.value)


@pytest.mark.parametrize(
    "constraint",
    [
        {"regex": "[ab]+"},
        {"ebnf": 'root ::= "a"'},
        {"response_format": {"type": "json_object"}},
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "a", "schema": {"type": "object"}},
            }
        },
        {
            "response_format": {
                "type": "structural_tag",
                "structures": [{"begin": "<f>", "schema": {}, "end": "</f>"}],
                "triggers": ["<f>"],
            }
        },
    ],
    ids=["regex", "ebnf", "json_object", "json_schema", "structural_tag"],
)
def test_not_with_constrained_output(constraint):
    with pytest.raises(ValidationError) as caught:
        chat(reasoning_tags="why", **constraint)
    assert (
        "reasoning_tags cannot be combined with regex, ebnf "
        "or a response_format other than text"
    ) in str(caught.value)


def test_text_format_stop_strings_and_tools_are_fine():
    request = chat(
        reasoning_tags="why",
        separate_reasoning=True,
        response_format={"type": "text"},
        stop=["</why>"],
        stop_regex="x+",
        tools=[{"type": "function", "function": {"name": "f"}}],
    )
    assert request.reasoning_tags.start == "<why>"


def test_sampling_parameters_do_not_change():
    plain = chat(temperature=0.5, stop=["x"])
    tagged = chat(temperature=0.5, stop=["x"], reasoning_tags="why")
    assert tagged.reasoning_tags.start == "<why>"
    assert tagged.to_sampling_params(["x"], {}) == plain.to_sampling_params(["x"], {})
