"""Programs and batches in which nothing fails, and failures that were handled before."""

import pathlib
import sys
import threading

import pytest

import sglang as sgl

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from scripted import (  # noqa: E402
    Down,
    Scripted,
    ask,
    ask_and_read,
    ask_unless_bad,
    batch,
    failing,
    prompts,
    within,
)

ways = pytest.mark.parametrize("threads", [1, 4, "auto"])
styles = pytest.mark.parametrize("generator_style", [False, True])


@ways
@styles
@pytest.mark.parametrize("count", [1, 7, 450])
def test_results_come_in_order(count, threads, generator_style):
    names = [f"p{index}" for index in range(count)]
    options = dict(num_threads=threads, generator_style=generator_style)
    states = batch(ask, prompts(*names), Scripted(failing()), **options)
    assert [state["answer"] for state in states] == [f"[{name}]" for name in names]
    assert [state.text() for state in states] == [f"{name}[{name}]" for name in names]


def test_a_list_is_a_list_and_a_generator_is_lazy():
    backend = Scripted()
    assert isinstance(ask.run_batch(prompts("a", "b"), backend=backend), list)
    backend = Scripted()
    results = ask.run_batch(
        prompts("a", "b"), backend=backend, generator_style=True, num_threads=1
    )
    assert backend.prompts == []
    next(results)
    assert backend.prompts == ["a"]


def test_an_empty_batch():
    assert list(ask.run_batch([], backend=Scripted())) == []


def test_tuples_defaults_and_bound_arguments():
    def body(s, prompt, style="plain", tail=""):
        s += f"{prompt}/{style}{tail}" + sgl.gen("answer")

    program = sgl.function(body)
    states = batch(program, [("a",), ("b", "bold")], Scripted(failing()))
    assert [state["answer"] for state in states] == ["[a/plain]", "[b/bold]"]
    states = batch(program.bind(tail="!"), prompts("a"), Scripted(failing()))
    assert states[0]["answer"] == "[a/plain!]"
    with pytest.raises(Exception, match="mismatch"):
        program.run_batch([(1, 2, 3, 4)], backend=Scripted())


def test_items_run_side_by_side():
    barrier = threading.Barrier(3, timeout=30)

    def answer(text):
        barrier.wait()
        return "ok"

    states = batch(ask, prompts("a", "b", "c"), Scripted(answer), num_threads=3)
    assert [state["answer"] for state in states] == ["ok"] * 3


def test_sampling_parameters_reach_the_backend():
    seen = []

    class Backend(Scripted):
        def generate(self, s, sampling_params):
            seen.append((sampling_params.temperature, sampling_params.max_new_tokens))
            return "ok", {}

    batch(ask, prompts("a"), Backend(), temperature=0.25, max_new_tokens=7)
    assert seen == [(0.25, 7)]


def test_states_of_failed_backends_are_kept():
    states = batch(ask, prompts("a", "b"), Scripted(failing("a")), num_threads=2)
    assert isinstance(states[0].error(), Down)
    assert states[1].error() is None


@pytest.mark.parametrize("threads", [1, 2])
def test_exceptions_of_the_program_are_raised(threads):
    with pytest.raises(ValueError, match="^bad$"):
        batch(ask_unless_bad, prompts("a", "bad"), Scripted(), num_threads=threads)


def test_single_runs():
    state = ask.run("a", backend=Scripted(failing()))
    assert (state["answer"], state.text()) == ("[a]", "a[a]")
    assert state.get_meta_info("answer") == {"prompt": "a"}
    assert "answer" in state and "other" not in state
    assert ask_and_read.run("a", backend=Scripted(failing())).text() == "a[a]![a]"
    with pytest.raises(ValueError):
        ask_unless_bad.run("bad", backend=Scripted())


def test_runs_without_a_thread():
    state = ask.run("a", backend=Scripted(failing()), use_thread=False)
    assert state["answer"] == "[a]"
    with pytest.raises(Down):
        ask.run("a", backend=Scripted(failing("a")), use_thread=False)


def test_streams():
    state = ask.run("a", backend=Scripted(failing()), stream=True)
    # The program's code runs in a thread of its own, and the executor ends after it.
    state.stream_executor.worker.join(30)
    assert (state["answer"], within(30, state.text)) == ("[a]", "a[a]")


def test_chat_roles_and_scopes():
    def body(s, prompt):
        s += sgl.system("be brief")
        s += sgl.user(prompt)
        with s.assistant():
            with s.var_scope("all"):
                s += "1" + sgl.gen("answer")

    state = sgl.function(body).run("hi", backend=Scripted())
    assert state["all"] == "1ok"
    assert state.messages() == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "1ok"},
    ]


def test_forks_are_gathered():
    def body(s, prompt):
        s += prompt
        forks = s.fork(3)
        forks += lambda i: f"{i}" + sgl.gen("part")
        forks.join()

    state = sgl.function(body).run("a", backend=Scripted(failing()))
    assert state["part"] == ["[a0]", "[a1]", "[a2]"]


def test_states_of_other_programs_can_be_used():
    def body(s, prompt):
        other = ask.run(prompt, backend=s.stream_executor.backend)
        s += other["answer"] + sgl.gen("answer")

    state = sgl.function(body).run("a", backend=Scripted(failing()))
    assert state["answer"] == "[[a]]"


def test_every_program_is_ended():
    ended = []

    class Backend(Scripted):
        def end_program(self, s):
            ended.append(s.sid)

    states = batch(ask, prompts("a", "b"), Backend(), num_threads=2)
    assert {state.stream_executor.sid for state in states} <= set(ended)
