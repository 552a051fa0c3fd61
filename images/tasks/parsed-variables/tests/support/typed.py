"""A backend that says what it is told to, and programs of one generation."""

import warnings

import sglang as sgl
from sglang.lang.backend.base_backend import BaseBackend

warnings.simplefilter("ignore")


class Says(BaseBackend):
    def __init__(self, *texts):
        super().__init__()
        self.texts = list(texts)
        self.params = []

    def generate(self, s, sampling_params):
        self.params.append(sampling_params)
        text = self.texts.pop(0)
        if isinstance(text, Exception):
            raise text
        return text, {}

    def generate_stream(self, s, sampling_params):
        text, meta_info = self.generate(s, sampling_params)
        for character in text:
            yield character, meta_info


def one(text, stream=False, use_thread=True, **options):
    """The state after one generation of the variable x."""

    def body(s):
        s += "q" + sgl.gen("x", **options)

    state = sgl.function(body).run(
        backend=Says(text), stream=stream, use_thread=use_thread
    )
    if stream:
        state.stream_executor.worker.join(10)
    return state


def sent(**options):
    """What the backend gets as json_schema."""
    backend = Says("{}")
    sgl.function(lambda s: s.__iadd__(sgl.gen("x", **options))).run(
        backend=backend
    ).sync()
    return backend.params[0].json_schema
