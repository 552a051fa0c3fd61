"""Generations as text, and what backends see of constraints."""

import inspect
import pathlib
import sys

import pytest

import sglang as sgl

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from typed import Says, one, sent  # noqa: E402


def params(*exprs):
    backend = Says(*["1"] * len(exprs))

    def body(s):
        for expr in exprs:
            s += expr

    sgl.function(body).run(backend=backend, temperature=0.5).sync()
    return backend.params


def test_a_schema_in_a_string():
    schema = '{"type": "object",\n "title": "ü"}'
    assert sent(json_schema=schema) == schema
    (found,) = params(sgl.gen("x", json_schema=schema))
    assert found.to_srt_kwargs()["json_schema"] == schema


def test_no_schema():
    assert sent() is None
    assert params(sgl.gen("x"))[0].to_srt_kwargs()["json_schema"] is None


@pytest.mark.parametrize("dtype", [int, "int", float, "float", str, "string", bool])
def test_dtypes_reach_the_backend(dtype):
    assert params(sgl.gen("x", dtype=dtype))[0].dtype == dtype


def test_gen_int_gen_string_and_regex():
    found = params(sgl.gen_int("a"), sgl.gen_string("b"), sgl.gen("c", regex="[0-9]"))
    assert [param.dtype for param in found] == [int, str, None]
    assert [param.regex for param in found] == [None, None, "[0-9]"]
    assert [param.temperature for param in found] == [0.5] * 3


def test_a_wrong_regex_is_refused():
    import re

    with pytest.raises(re.error):
        sgl.gen("x", regex="(")


def test_parameters_stay_in_their_places():
    names = list(inspect.signature(sgl.gen).parameters)
    assert names[:3] == ["name", "max_tokens", "min_tokens"]
    assert names[-5:] == ["dtype", "choices", "choices_method", "regex", "json_schema"]
    expr = sgl.gen("x", 5, 1, 2, "s", temperature=0.1)
    found = expr.sampling_params
    assert (expr.name, found.max_new_tokens, found.min_new_tokens) == ("x", 5, 1)
    assert (found.n, found.stop, found.temperature) == (2, "s", 0.1)


def test_choices_make_a_select():
    expr = sgl.gen("x", choices=["a", "b"])
    assert type(expr).__name__ == "SglSelect" and expr.choices == ["a", "b"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "options", [{}, {"dtype": int}, {"json_schema": "{}"}], ids=["text", "int", "json"]
)
def test_variables_are_texts(options, stream):
    state = one(" 5\n", stream=stream, **options)
    assert state["x"] == " 5\n"
    assert state.text() == "q 5\n"
    assert "x" in state and "y" not in state
    with pytest.raises(KeyError):
        state["y"]


def test_several_texts():
    state = one(["1", "2"], n=2, dtype=int)
    assert state["x"] == ["1", "2"]
    assert state.text() == "q1"


def test_joined_variables_are_texts():
    def body(s):
        forks = s.fork(2)
        for fork in forks.states:
            fork += sgl.gen("n", dtype=int)
            fork.sync()
        forks.join()

    assert sgl.function(body).run(backend=Says("1", "2"))["n"] == ["1", "2"]


def test_reasoning():
    def body(s):
        s += sgl.user("q")
        s += sgl.assistant(sgl.separate_reasoning(sgl.gen("x"), model_type="qwen3"))

    state = sgl.function(body).run(backend=Says("<think>a</think>b"))
    state.sync()
    assert (state["x"], state["x_reasoning_content"]) == ("b", "a")


def test_tracing_finds_the_common_prefix():
    from sglang.lang.tracer import extract_prefix_by_tracing

    @sgl.function
    def body(s, name):
        s += "common "
        s += name
        s += sgl.gen("x", json_schema="{}")

    assert extract_prefix_by_tracing(body, Says()) == "common "


def test_what_is_exported():
    for name in ("gen", "gen_int", "gen_string", "select", "function", "set_default_backend"):
        assert name in sgl.__all__ and callable(getattr(sgl, name))
