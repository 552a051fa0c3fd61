"""How often an item is tried, and with what."""

import pathlib
import sys

import pytest

import sglang as sgl
from sglang.lang.interpreter import ProgramState

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from scripted import (  # noqa: E402
    Down,
    Scripted,
    ask,
    ask_and_read,
    batch,
    failing_times,
    prompts,
)

modes = pytest.mark.parametrize("on_error", ["keep", "raise", "return"])
ways = pytest.mark.parametrize("threads", [1, 2])


@modes
@ways
@pytest.mark.parametrize("program", [ask, ask_and_read], ids=["ask", "ask_and_read"])
def test_a_retry_that_succeeds_is_the_result(program, threads, on_error):
    backend = Scripted(failing_times(2, "b"))
    options = dict(num_threads=threads, on_error=on_error, max_retries=2)
    states = batch(program, prompts("a", "b", "c"), backend, **options)
    assert [state["answer"] for state in states] == ["[a]", "[b]", "[c]"]
    assert [state.error() for state in states] == [None] * 3
    assert sorted(backend.prompts) == ["a", "b", "b", "b", "c"]


@modes
@ways
@pytest.mark.parametrize("max_retries", [0, 1, 3])
def test_the_number_of_attempts(threads, on_error, max_retries):
    backend = Scripted(failing_times(max_retries + 1, "a"))
    options = dict(num_threads=threads, on_error=on_error, max_retries=max_retries)
    if on_error == "raise":
        with pytest.raises(Down):
            batch(ask, prompts("a"), backend, **options)
    else:
        (got,) = batch(ask, prompts("a"), backend, **options)
        error = got if on_error == "return" else got.error()
        assert isinstance(error, Down)
    assert backend.prompts == ["a"] * (max_retries + 1)


@ways
def test_the_last_error_counts(threads):
    attempts = []

    def body(s, prompt):
        attempts.append(prompt)
        raise ValueError(len(attempts))

    (error,) = batch(
        sgl.function(body),
        prompts("a"),
        Scripted(),
        num_threads=threads,
        on_error="return",
        max_retries=2,
    )
    assert error.args == (3,)


@modes
def test_retries_come_at_once_and_in_the_same_place(on_error):
    backend = Scripted(failing_times(2, "b"))
    batch(
        ask,
        prompts(*"abc"),
        backend,
        num_threads=1,
        on_error=on_error,
        max_retries=5,
    )
    assert backend.prompts == ["a", "b", "b", "b", "c"]


@ways
def test_every_attempt_has_a_new_state(threads):
    seen = []

    def body(s, prompt):
        seen.append(s)
        s += prompt + sgl.gen("first")
        s += sgl.gen("second")

    backend = Scripted(failing_times(1, "a[a]"))
    (state,) = batch(
        sgl.function(body),
        prompts("a"),
        backend,
        num_threads=threads,
        on_error="raise",
        max_retries=1,
    )
    assert len(seen) == 2 and seen[0] is not seen[1]
    assert state.text() == "a[a][a[a]]"
    assert backend.prompts == ["a", "a[a]", "a", "a[a]"]


@ways
@modes
def test_arguments_are_given_as_they_were(threads, on_error):
    seen = []

    def body(s, prompt, style):
        if isinstance(prompt, str):  # not when the common prefix is looked for
            seen.append((prompt, style))
        prompt = style = None
        if isinstance(s, ProgramState):
            s.stream_executor.arguments["prompt"] = "changed"
            s.stream_executor.arguments.pop("style", None)
        s += "x" + sgl.gen("answer")

    items = [{"prompt": "a"}, {"prompt": "b"}]
    program = sgl.function(body).bind(style="plain")
    batch(
        program,
        items,
        Scripted(failing_times(1, "x")),
        num_threads=threads,
        on_error=on_error,
        max_retries=1,
    )
    assert sorted(set(seen)) == [("a", "plain"), ("b", "plain")]
    assert len(seen) == 3
    assert items == [{"prompt": "a"}, {"prompt": "b"}]


def test_tuples_of_arguments_are_retried_too():
    backend = Scripted(failing_times(1, "a"))
    states = batch(ask, [("a",), ("b",)], backend, on_error="raise", max_retries=1)
    assert [state["answer"] for state in states] == ["[a]", "[b]"]
