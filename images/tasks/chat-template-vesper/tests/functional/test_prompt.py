"""Headers, turns, continuation and thoughts in `get_prompt`."""

import copy
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from vesper import headers, prompt, talk  # noqa: E402

from sglang.lang.chat_template import get_chat_template  # noqa: E402


def test_the_example():
    assert prompt(
        "s: Be brief.",
        "u: What is 2+2?",
        "a: <|think|>easy<|/think|>4",
        "u: And the weather in Paris?",
        "a: let me look",
        "t: rain",
        "t: 12 degrees",
        "a: Rainy, 12 degrees.",
    ) == (
        "[vesper/1]\n<|system|>\nBe brief.<|end|>\n<|user 1|>\nWhat is 2+2?<|end|>\n"
        "<|assistant 1|>\n4<|end|>\n<|user 2|>\nAnd the weather in Paris?<|end|>\n"
        "<|assistant 2|>\nlet me look<|end|>\n<|tool 2.1|>\nrain<|end|>\n<|tool 2.2|>\n12 degrees<|end|>\n"
        "<|assistant 2|>\nRainy, 12 degrees.<|end|>\n"
    )


@pytest.mark.parametrize(
    "lines, expected",
    [
        pytest.param("u:", ["user 1"], id="one"),
        pytest.param("s: u: a:", ["system", "user 1", "assistant 1"], id="plain"),
        pytest.param("u: s:", ["user 1", "note"], id="system later"),
        pytest.param("s: s: u:", ["system", "more", "user 1"], id="system twice"),
        pytest.param(
            "s: u: s: s: a:",
            ["system", "user 1", "note", "more", "assistant 1"],
            id="note twice",
        ),
        pytest.param("u: u: a:", ["user 1", "more", "assistant 1"], id="user twice"),
        pytest.param(
            "u: a: u: u: u: a: a:",
            [
                "user 1",
                "assistant 1",
                "user 2",
                "more",
                "more",
                "assistant 2",
                "more",
            ],
            id="several",
        ),
        pytest.param(
            "u: s: u: a:",
            ["user 1", "note", "user 2", "assistant 2"],
            id="a note between makes it a new turn",
        ),
        pytest.param(
            "a: s: u:", ["assistant 0", "note", "user 1"], id="system second"
        ),
        pytest.param("a: u: a:", ["assistant 0", "user 1", "assistant 1"], id="turn 0"),
        pytest.param("s: t: u:", ["system", "tool 0.1", "user 1"], id="tool in turn 0"),
        pytest.param(
            "u: a: t: t: a: t: u: t:",
            [
                "user 1",
                "assistant 1",
                "tool 1.1",
                "tool 1.2",
                "assistant 1",
                "tool 1.3",
                "user 2",
                "tool 2.1",
            ],
            id="tools are counted by turn",
        ),
        pytest.param(
            "u: t#x: t#x: t#y: t#y: t: t:",
            [
                "user 1",
                "tool 1.1",
                "more",
                "tool 1.2",
                "more",
                "tool 1.3",
                "tool 1.4",
            ],
            id="tool calls are continued by id",
        ),
        pytest.param(
            "u: t#x: a: t#x: t#x:",
            ["user 1", "tool 1.1", "assistant 1", "tool 1.2", "more"],
            id="only directly after",
        ),
        pytest.param(
            "u: t#x: t: t#x:",
            ["user 1", "tool 1.1", "tool 1.2", "tool 1.3"],
            id="no id in between",
        ),
        pytest.param(
            "u: a#x: a#y: u#y: u#z:",
            ["user 1", "assistant 1", "more", "user 2", "more"],
            id="ids count for tools alone",
        ),
    ],
)
def test_headers(lines, expected):
    assert headers(*lines.split()) == expected


def test_an_id_of_none_is_no_id():
    messages = talk("u: a", "t: b", "t: c")
    messages[1]["tool_call_id"] = messages[2]["tool_call_id"] = None
    text = get_chat_template("vesper-1").get_prompt(messages)
    assert "<|tool 1.1|>\nb" in text and "<|tool 1.2|>\nc" in text


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("role", ["critic", "User", ""])
def test_other_roles_are_refused(role, place):
    messages = talk("s: a", "u: b")
    messages.insert(place, {"role": role, "content": "x"})
    with pytest.raises(ValueError) as caught:
        get_chat_template("vesper-1").get_prompt(messages)
    assert str(caught.value) == f"Vesper has no role {role!r}"


@pytest.mark.parametrize(
    "content, left",
    [
        ("<|think|>a<|/think|>b", "b"),
        ("<|think|>a<|/think|> \n\tb ", "b "),
        ("x <|think|>a<|/think|>\ny", "x y"),
        ("<|think|>a<|/think|>b<|think|>c\nd<|/think|>e", "be"),
        ("<|think|>a\nb", ""),
        ("x<|think|>a<|think|>b<|/think|>c<|/think|>d", "xc<|/think|>d"),
        ("a<|/think|>b", "a<|/think|>b"),
        ("<|think|><|/think|>", ""),
        ("<|Think|>a<|/Think|>b", "<|Think|>a<|/Think|>b"),
    ],
    ids=[
        "one",
        "space after",
        "space before",
        "two",
        "open",
        "nested",
        "never opened",
        "empty",
        "other case",
    ],
)
def test_thoughts_of_earlier_turns_are_left_out(content, left):
    text = prompt("u: q", f"a: {content}", "u: r", "a: s")
    assert text == prompt("u: q", "a: @", "u: r", "a: s").replace("@", left)
    kept = prompt("u: q", f"a: {content}")
    assert kept == prompt("u: q", "a: @").replace("@", content)


def test_thoughts_of_the_whole_last_turn_stay():
    thought = "<|think|>x<|/think|>"
    text = prompt(
        f"a: {thought}0",
        "u: q",
        f"a: {thought}1",
        "u: r",
        f"a: {thought}2",
        "t: s",
        f"a: {thought}3",
        "u: more",
        "u: and more",
    )
    assert text.count(thought) == 0
    text = prompt("u: q", f"a: {thought}1", "u: r", f"a: {thought}2", f"a: {thought}3")
    assert [thought + n in text for n in "123"] == [False, True, True]


def test_only_assistants_think():
    lines = [f"{role}: <|think|>x<|/think|>y" for role in "sut"]
    assert prompt(*lines, "u: q", "a: b").count("<|think|>x<|/think|>y") == 3


def test_content_of_none():
    default = "You are Vesper, a helpful assistant."
    messages = [{"role": role, "content": None} for role in ("system", "user", "system")]
    messages += [{"role": "assistant", "content": None}, *talk("u: x")]
    assert get_chat_template("vesper-1").get_prompt(messages) == (
        f"[vesper/1]\n<|system|>\n{default}<|end|>\n<|user 1|>\n<|end|>\n<|note|>\n<|end|>\n"
        "<|assistant 1|>\n<|end|>\n<|user 2|>\nx<|end|>\n"
    )


def test_the_default_system_prompt_is_not_added():
    assert prompt("u: x") == "[vesper/1]\n<|user 1|>\nx<|end|>\n"


def test_no_messages_make_no_prompt():
    assert get_chat_template("vesper-1").get_prompt([]) == ""


def test_content_is_passed_on_as_it_is():
    content = " \n<|end|> {x} \\n ümlaut\n "
    assert f"<|user 1|>\n{content}<|end|>\n" in prompt(f"u: {content}")


def test_messages_are_not_changed():
    messages = talk("u: q", "a: <|think|>x<|/think|>y", "u: r")
    messages.insert(0, {"role": "system", "content": None})
    before = copy.deepcopy(messages)
    get_chat_template("vesper-1").get_prompt(messages)
    assert messages == before
