"""The other templates, which paths get them, and programs that use them."""

import pathlib
import sys

import pytest

import sglang as sgl

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from vesper import Echo, talk  # noqa: E402

from sglang.lang.chat_template import (  # noqa: E402
    ChatTemplate,
    ChatTemplateStyle,
    chat_template_registry,
    get_chat_template,
    get_chat_template_by_model_path,
    register_chat_template,
    register_chat_template_matching_function,
)

PATHS = {
    "meta-llama/Llama-2-7b-chat-hf": "llama-2-chat",
    "meta-llama/Meta-Llama-3-8B-Instruct": "llama-3-instruct",
    "mistralai/Mixtral-8x7B-Instruct-v0.1": "mistral",
    "Qwen/Qwen2.5-7B-Instruct": "qwen",
    "Qwen/Qwen2-VL-7B": "qwen2-vl",
    "google/gemma-2-9b-it": "gemma-it",
    "google/gemma-3-4b": "gemma-it",
    "01-ai/Yi-1.5-9B-Chat": "yi-1.5",
    "ibm-granite/granite-3.0-8b-instruct": "granite-3-instruct",
    "CohereForAI/c4ai-command-r-v01": "c4ai-command-r",
    "TinyLlama/TinyLlama-1.1B": "chatml",
    "OpenGVLab/InternVL2_5-8B": "internvl-2-5",
    "internlm/Intern-S1": "interns1",
    "lmsys/vicuna-7b-v1.5": "vicuna_v1.1",
    "acme/unknown": "default",
}


@pytest.mark.parametrize("path", PATHS)
def test_paths(path):
    assert get_chat_template_by_model_path(path).name == PATHS[path]


@pytest.mark.parametrize(
    "name, expected",
    [
        ("default", "SYSTEM:a\nUSER:b\nASSISTANT:c\nUSER:d\n"),
        ("claude", "a\n\nHuman: b\n\nAssistant:c\n\nHuman: d"),
        (
            "chatml",
            "<|im_start|>system\na<|im_end|>\n<|im_start|>user\nb<|im_end|>\n"
            "<|im_start|>assistant\nc<|im_end|>\n<|im_start|>user\nd<|im_end|>\n",
        ),
        ("llama-2-chat", "[INST] <<SYS>>\na\n<</SYS>>\n\nb [/INST]c </s><s>[INST] d [/INST]"),
    ],
    ids=["default", "claude", "chatml", "llama-2-chat"],
)
def test_prompts(name, expected):
    messages = talk("s: a", "u: b", "a: c", "u: d")
    assert get_chat_template(name).get_prompt(messages) == expected


def test_unknown_roles_and_none_of_others():
    template = get_chat_template("chatml")
    assert template.get_prefix_and_suffix("critic", []) == ("", "")
    messages = [{"role": "system", "content": None}, *talk("u: a")]
    assert template.get_prompt(messages).startswith("<|im_start|>user\n")
    assert "You are a helpful assistant." in get_chat_template("qwen").get_prompt(messages)


def test_programs():
    @sgl.function
    def body(s):
        s += sgl.user("a")
        s += sgl.assistant(sgl.gen("b"))

    text = body.run(backend=Echo(template="qwen")).text()
    assert text == get_chat_template("qwen").get_prompt(
        talk("s: You are a helpful assistant.", "u: a", "a: ok")
    )


def test_templates_can_be_registered():
    register_chat_template(
        ChatTemplate("mine", None, {"user": ("<", ">")}, style=ChatTemplateStyle.PLAIN)
    )
    register_chat_template_matching_function(
        lambda path: "mine" if path == "acme/mine" else None
    )
    found = get_chat_template_by_model_path("acme/mine")
    assert found.get_prompt(talk("u: a")) == "<a>"


def test_templates_that_exist():
    names = {"llama-3-instruct", "gemma-it", "dbrx-instruct", "vicuna_v1.1", "minicpmv"}
    assert names <= set(chat_template_registry)


def test_unknown_templates():
    with pytest.raises(KeyError):
        get_chat_template("nope")
