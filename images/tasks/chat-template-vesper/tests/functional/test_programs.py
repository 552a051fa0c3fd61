"""The template in programs of the frontend language, and which models get it."""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from vesper import program, prompt, talk  # noqa: E402

from sglang.lang.chat_template import (  # noqa: E402
    get_chat_template,
    get_chat_template_by_model_path,
)


def test_a_program_gets_the_same_prompt():
    lines = ["s: a", "u: b", "a: c", "t#1: d", "t#2: e", "a: f", "a: g", "u: h", "s: i"]
    state, _ = program(*[line.replace("#1", "").replace("#2", "") for line in lines])
    assert state.text() == prompt(*lines)


def test_generations_are_within_their_turn():
    state, backend = program("s: a", "u: b", "a: ?", "u: c", "a: ?", answers=("x", "y"))
    assert state.text() == prompt("s: a", "u: b", "a: x", "u: c", "a: y")
    assert ["<|end|>" in stop for stop in backend.stops] == [True, True]


def test_the_interpreter_adds_the_default_system_prompt():
    state, _ = program("u: b", "a: ?")
    assert state.text() == prompt(
        "s: You are Vesper, a helpful assistant.", "u: b", "a: ok"
    )


def test_programs_keep_thoughts():
    thought = "<|think|>x<|/think|>1"
    state, _ = program("s: a", "u: b", "a: ?", "u: c", answers=(thought,))
    assert f"<|assistant 1|>\n{thought}<|end|>\n<|user 2|>\n" in state.text()


def test_continued_messages_in_a_program():
    state, _ = program("s: a", "s: b", "u: c", "u: d", "a: e", "a: ?")
    assert state.text() == prompt("s: a", "s: b", "u: c", "u: d", "a: e", "a: ok")


@pytest.mark.parametrize(
    "history, role, expected",
    [
        ([], "system", "[vesper/1]\n<|system|>\n"),
        ([], "user", "[vesper/1]\n<|user 1|>\n"),
        ([], "tool", "[vesper/1]\n<|tool 0.1|>\n"),
        (["s: a"], "user", "<|user 1|>\n"),
        (["s: a", "u: b"], "user", "<|more|>\n"),
        (["u: a", "a: b"], "user", "<|user 2|>\n"),
        (["u: a", "a: b", "t#1: c"], "tool", "<|tool 1.2|>\n"),
    ],
    ids=[
        "system first",
        "user first",
        "tool first",
        "user",
        "user continued",
        "second turn",
        "second tool",
    ],
)
def test_prefix_and_suffix(history, role, expected):
    found = get_chat_template("vesper-1").get_prefix_and_suffix(role, talk(*history))
    assert found == (expected, "<|end|>\n")


def test_history_may_have_parts():
    parts = [{"type": "text", "text": "<|think|>"}, {"type": "image_url"}]
    history = [{"role": "user", "content": parts}, {"role": "assistant", "content": None}]
    template = get_chat_template("vesper-1")
    assert template.get_prefix_and_suffix("user", history)[0] == "<|user 2|>\n"


def test_other_roles_are_refused():
    with pytest.raises(ValueError, match="^Vesper has no role 'critic'$"):
        get_chat_template("vesper-1").get_prefix_and_suffix("critic", [])


def test_tokens():
    template = get_chat_template("vesper-1")
    assert template.name == "vesper-1"
    assert template.default_system_prompt == "You are Vesper, a helpful assistant."
    assert list(template.stop_str) == ["<|end|>"]
    assert (template.image_token, template.audio_token) == ("<|image|>", "<|audio|>")


@pytest.mark.parametrize(
    "path",
    [
        "vesper-1",
        "acme/Vesper-1-8B-Chat",
        "/models/gemma-3/vesper-1/",
        "acme/vesper-1-llama-3-instruct-distilled",
        "/llama-3-8b-instruct/VESPER-1-70b",
        "acme/vesper-1-qwen2-vl",
        "acme/vesper-1-database",
        "acme/vesper-1-base/vesper-1-chat",
    ],
)
def test_vesper_models(path):
    assert get_chat_template_by_model_path(path).name == "vesper-1"


@pytest.mark.parametrize(
    "path, name",
    [
        ("acme/vesper-10-chat", "default"),
        ("acme/vesper-1.5", "default"),
        ("acme/my-vesper-1", "default"),
        ("acme/vesper-1-8b-base", "default"),
        ("acme/Vesper-1-Base-v2", "default"),
        ("/models/vesper-1/weights", "default"),
        ("acme/vesper", "default"),
        ("/vesper-1-chat/llama-3-8b-instruct", "llama-3-instruct"),
        ("acme/vesper-1-base-llama-3-instruct", "llama-3-instruct"),
    ],
)
def test_other_models(path, name):
    assert get_chat_template("vesper-1").name == "vesper-1"
    assert get_chat_template_by_model_path(path).name == name
