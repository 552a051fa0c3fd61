"""What becomes of an item that failed."""

import pathlib
import sys
import threading
import time

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

ways = pytest.mark.parametrize("threads", [1, 3, "auto"])
styles = pytest.mark.parametrize("generator_style", [False, True])


def shown(results):
    return [
        r if isinstance(r, BaseException) else r["answer"] if "answer" in r else None
        for r in results
    ]


@ways
@styles
@pytest.mark.parametrize("program", [ask, ask_and_read], ids=["ask", "ask_and_read"])
def test_errors_of_the_backend_are_returned_in_place(program, threads, generator_style):
    backend = Scripted(failing("b", "d"))
    got = batch(
        program,
        prompts(*"abcde"),
        backend,
        num_threads=threads,
        generator_style=generator_style,
        on_error="return",
    )
    found = shown(got)
    assert [found[0], found[2], found[4]] == ["[a]", "[c]", "[e]"]
    assert [type(found[1]), type(found[3])] == [Down, Down]
    assert [str(found[1]), str(found[3])] == ["b", "d"]


@ways
@styles
def test_exceptions_of_the_program_are_returned_in_place(threads, generator_style):
    options = dict(num_threads=threads, generator_style=generator_style)
    items = prompts("a", "bad 1", "c", "bad 2")
    found = shown(batch(ask_unless_bad, items, Scripted(), on_error="return", **options))
    assert [found[0], found[2]] == ["ok", "ok"]
    assert [repr(found[1]), repr(found[3])] == [
        "ValueError('bad 1')",
        "ValueError('bad 2')",
    ]


@ways
@styles
def test_the_first_failed_item_is_raised(threads, generator_style):
    backend = Scripted(failing("c", "e"))
    options = dict(num_threads=threads, generator_style=generator_style)
    with pytest.raises(Down, match="^c") as caught:
        batch(ask, prompts(*"abcde"), backend, on_error="raise", **options)
    assert caught.value.__notes__ == ["run_batch: item 2"]


@ways
def test_the_error_of_the_backend_comes_before_what_follows_from_it(threads):
    with pytest.raises(Down, match="^b") as caught:
        batch(
            ask_and_read,
            prompts("a", "b"),
            Scripted(failing("b")),
            num_threads=threads,
            on_error="raise",
        )
    assert caught.value.__notes__ == ["run_batch: item 1"]


def test_the_first_in_the_batch_is_raised_even_if_it_failed_last():
    second_failed = threading.Event()

    def answer(text):
        if text == "a":
            assert second_failed.wait(30)
            raise Down(text)
        second_failed.set()
        raise Down(text)

    with pytest.raises(Down, match="^a") as caught:
        batch(ask, prompts("a", "b"), Scripted(answer), num_threads=2, on_error="raise")
    assert caught.value.__notes__ == ["run_batch: item 0"]


def slowly(answer):
    def slow(text):
        time.sleep(0.01)
        return answer(text)

    return slow


@styles
@pytest.mark.parametrize("program", [ask, ask_unless_bad], ids=["backend", "program"])
def test_nothing_starts_after_a_failure(program, generator_style):
    backend = Scripted(failing("bad"))
    items = prompts("a", "bad", *("c" * 60))
    with pytest.raises((Down, ValueError)):
        batch(
            program,
            items,
            backend,
            num_threads=1,
            on_error="raise",
            generator_style=generator_style,
        )
    assert "c" not in backend.prompts
    backend = Scripted(slowly(failing("bad")))
    with pytest.raises((Down, ValueError)):
        batch(
            program,
            [*items, *prompts(*("d" * 400))],
            backend,
            num_threads=2,
            on_error="raise",
            generator_style=generator_style,
        )
    # Another thread may have started some before the failure was there.
    assert len(backend.prompts) < 200


def test_those_that_run_are_waited_for():
    release, running = threading.Event(), threading.Event()
    ended = []

    def answer(text):
        if text == "slow":
            running.set()
            assert release.wait(30)
            ended.append(text)
            return "late"
        assert running.wait(30)
        threading.Timer(0.2, release.set).start()
        raise Down(text)

    with pytest.raises(Down):
        batch(
            ask,
            prompts("fails", "slow"),
            Scripted(answer),
            num_threads=2,
            on_error="raise",
        )
    assert ended == ["slow"]


@pytest.mark.parametrize("threads", [1, 2])
def test_a_generator_yields_what_comes_before_the_failure(threads):
    results = ask.run_batch(
        prompts("a", "b", "c", "d"),
        backend=Scripted(failing("c")),
        num_threads=threads,
        generator_style=True,
        on_error="raise",
    )
    assert within(30, next, results)["answer"] == "[a]"
    assert within(30, next, results)["answer"] == "[b]"
    with pytest.raises(Down, match="^c"):
        within(30, next, results)
    with pytest.raises(StopIteration):
        within(30, next, results)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("on_error", ["keep", "raise", "return"])
def test_a_closed_generator_starts_nothing_more(threads, on_error):
    gate = threading.Semaphore(4)

    def answer(text):
        assert text == "first" or gate.acquire(timeout=30)
        return "ok"

    backend = Scripted(answer)
    results = ask.run_batch(
        prompts("first", *("x" * 100)),
        backend=backend,
        num_threads=threads,
        generator_style=True,
        on_error=on_error,
    )
    within(30, next, results)
    closing = threading.Thread(target=results.close, daemon=True)
    closing.start()
    closing.join(2)
    gate.release(100)
    closing.join(30)
    assert not closing.is_alive()
    # The first, four that had passed, and one in each thread that may have been waiting.
    assert len(backend.prompts) <= 5 + threads


def test_keep_is_the_default_and_keeps_the_states():
    for options in ({"on_error": "keep"}, {"max_retries": 0}):
        states = batch(ask, prompts("a", "b", "c"), Scripted(failing("b")), **options)
        assert [state.error() is None for state in states] == [True, False, True]
        assert isinstance(states[1].error(), Down)
        assert states[2]["answer"] == "[c]"
        with pytest.raises(KeyError):
            within(20, states[1].get_var, "answer")


@pytest.mark.parametrize("threads", [1, 2])
def test_keep_raises_what_the_program_raised_without_a_note(threads):
    with pytest.raises(ValueError, match="^bad$") as caught:
        batch(
            ask_unless_bad,
            prompts("a", "bad", "c"),
            Scripted(),
            num_threads=threads,
            on_error="keep",
        )
    assert getattr(caught.value, "__notes__", []) == []


@pytest.mark.parametrize("on_error", ["keep", "raise", "return"])
def test_more_than_an_exception_is_never_a_result(on_error):
    calls = []

    def interrupted(s, prompt):
        if isinstance(prompt, str):  # not when the common prefix is looked for
            calls.append(prompt)
        if prompt == "b":
            raise KeyboardInterrupt(prompt)

    with pytest.raises(KeyboardInterrupt):
        batch(
            sgl.function(interrupted),
            prompts("a", "b", "c"),
            Scripted(),
            num_threads=1,
            on_error=on_error,
            max_retries=3,
        )
    assert calls == ["a", "b"]


@styles
@pytest.mark.parametrize("items", [[], prompts("a")], ids=["empty", "one"])
@pytest.mark.parametrize(
    "options, message",
    [
        ({"on_error": "x"}, "on_error must be 'keep', 'raise' or 'return', got 'x'"),
        ({"on_error": None}, "on_error must be 'keep', 'raise' or 'return', got None"),
        ({"max_retries": -1}, "max_retries must not be negative, got -1"),
    ],
)
def test_wrong_values_are_refused_at_once(options, message, items, generator_style):
    backend = Scripted()
    with pytest.raises(ValueError) as caught:
        ask.run_batch(
            items, backend=backend, generator_style=generator_style, **options
        )
    assert str(caught.value) == message
    assert backend.prompts == []


@styles
@pytest.mark.parametrize("threads", [1, 2])
def test_a_progress_bar_counts_items(threads, generator_style, monkeypatch):
    import tqdm

    bars = []

    class Bar(tqdm.tqdm):
        def __init__(self, *args, **options):
            super().__init__(*args, **{**options, "disable": False})
            bars.append(self)

    monkeypatch.setattr(tqdm, "tqdm", Bar)
    backend = Scripted(failing("b"))
    batch(
        ask,
        prompts(*"abcd"),
        backend,
        num_threads=threads,
        generator_style=generator_style,
        progress_bar=True,
        on_error="return",
        max_retries=2,
    )
    assert [bar.n for bar in bars] == [4]
    assert len(backend.prompts) == 6
