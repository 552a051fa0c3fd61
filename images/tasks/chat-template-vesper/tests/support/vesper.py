"""Short ways to write conversations and run programs on a backend that echoes."""

import sglang as sgl
from sglang.lang.backend.base_backend import BaseBackend
from sglang.lang.chat_template import get_chat_template


class Echo(BaseBackend):
    def __init__(self, answers=("ok",), template="vesper-1"):
        super().__init__()
        self.chat_template = get_chat_template(template)
        self.answers = list(answers)
        self.stops = []

    def generate(self, s, sampling_params):
        self.stops.append(sampling_params.stop)
        return self.answers.pop(0), {}


NAMES = {"s": "system", "u": "user", "a": "assistant", "t": "tool"}


def talk(*lines):
    """'u: hello' is a user message, 't#7: x' a tool message with the call id 7."""
    messages = []
    for line in lines:
        head, content = line.split(":", 1)
        role, _, call_id = head.partition("#")
        message = {"role": NAMES.get(role, role), "content": content.removeprefix(" ")}
        if call_id:
            message["tool_call_id"] = call_id
        messages.append(message)
    return messages


def prompt(*lines):
    return get_chat_template("vesper-1").get_prompt(talk(*lines))


def headers(*lines):
    """The header of each message, from the whole prompt."""
    text = prompt(*[line.split(":", 1)[0] + ": @" for line in lines])
    assert text.startswith("[vesper/1]\n")
    parts = text.removeprefix("[vesper/1]\n").split("@<|end|>\n")
    assert parts.pop() == ""
    return [part.removeprefix("<|").removesuffix("|>\n") for part in parts]


def program(*lines, answers=("ok",)):
    backend = Echo(answers)

    def body(s):
        for message in talk(*lines):
            content = message["content"]
            with s._role_common(message["role"]):
                s += sgl.gen("answer") if content == "?" else content

    return sgl.function(body).run(backend=backend), backend
