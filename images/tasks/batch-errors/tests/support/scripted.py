"""A backend without a model, and calls that must not hang."""

import threading
import warnings

import sglang as sgl
from sglang.lang.backend.base_backend import BaseBackend

warnings.simplefilter("ignore")


class Down(Exception):
    """What the backend raises."""


class Scripted(BaseBackend):
    """`answer(text)` is the generation for a prompt, or raises. Prompts are kept in the order of their calls."""

    def __init__(self, answer=lambda text: "ok"):
        super().__init__()
        self.answer = answer
        self.prompts = []
        self.lock = threading.Lock()

    def generate(self, s, sampling_params):
        with self.lock:
            self.prompts.append(s.text_)
        return self.answer(s.text_), {"prompt": s.text_}

    def generate_stream(self, s, sampling_params):
        text, meta_info = self.generate(s, sampling_params)
        for character in text:
            yield character, meta_info


def failing(*prompts):
    """Fails for these prompts, each time."""

    def answer(text):
        if text in prompts:
            raise Down(text)
        return f"[{text}]"

    return answer


def failing_times(times, prompt):
    """Fails so often for this prompt, then answers."""
    left = [times]

    def answer(text):
        if text == prompt and left[0] > 0:
            left[0] -= 1
            raise Down(text)
        return f"[{text}]"

    return answer


@sgl.function
def ask(s, prompt):
    s += prompt + sgl.gen("answer")


@sgl.function
def ask_and_read(s, prompt):
    s += prompt + sgl.gen("answer")
    s += "!" + s["answer"]


@sgl.function
def ask_unless_bad(s, prompt):
    if prompt.startswith("bad"):
        raise ValueError(prompt)
    s += prompt + sgl.gen("answer")


def prompts(*names):
    return [{"prompt": name} for name in names]


def within(seconds, call, *args, **kwargs):
    """The result of a call, or an assertion that it hangs."""
    box = {}

    def target():
        try:
            box["result"] = call(*args, **kwargs)
        except BaseException as e:
            box["error"] = e

    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    thread.join(seconds)
    assert not thread.is_alive(), "it hangs"
    if "error" in box:
        raise box["error"]
    return box["result"]


def batch(program, items, backend, **options):
    """run_batch as a list, whatever the style."""
    return within(
        60, lambda: list(program.run_batch(items, backend=backend, **options))
    )
