"""ReasoningParser on a request with tags."""

import itertools

import pytest

from sglang.srt.entrypoints.openai.protocol import ChatCompletionRequest
from sglang.srt.parser.reasoning_parser import ReasoningParser

USER = {"role": "user", "content": "hi"}
R = {"start": "<r>", "end": "</r>"}


def tagged_request(tags=R, **fields):
    fields.setdefault("messages", [USER])
    request = ChatCompletionRequest(reasoning_tags=tags, **fields)
    assert request.reasoning_tags is not None
    return request


def tagged(tags=R, model_type=None, stream_reasoning=True, force=None, **fields):
    request = tagged_request(tags, **fields)
    return ReasoningParser(model_type, stream_reasoning, force, request)


def run_stream(parser, chunks):
    reasoning = normal = ""
    pieces = [parser.parse_stream_chunk(chunk) for chunk in chunks] + [parser.flush()]
    for reasoning_piece, normal_piece in pieces:
        reasoning += reasoning_piece or ""
        normal += normal_piece or ""
    return reasoning, normal


# tags, text, reasoning, normal
TEXTS = {
    "no tag": (R, "just an answer", "", "just an answer"),
    "empty": (R, "", "", ""),
    "one block": (R, "<r>why</r>answer", "why", "answer"),
    "text before": (R, "well <r>why</r> so", "why", "well  so"),
    "whitespace stays": (R, "\n<r>\n why \n</r>\n\n so\n", "\n why \n", "\n\n\n so\n"),
    "two blocks": (R, "<r>a</r>1<r>b</r>2", "a\nb", "12"),
    "three adjacent": (R, "<r>a</r><r>b</r><r>c</r>x", "a\nb\nc", "x"),
    "empty block": (R, "<r></r>x", "", "x"),
    "empty blocks join nothing": (
        R,
        "<r></r><r>a</r><r></r><r></r><r>b</r><r></r>",
        "a\nb",
        "",
    ),
    "blank block counts": (R, "<r>a</r><r> </r><r>b</r>", "a\n \nb", ""),
    "never closed": (R, "x<r>why not", "why not", "x"),
    "second never closed": (R, "<r>a</r>x<r>b", "a\nb", "x"),
    "opened at the end": (R, "<r>a</r>x<r>", "a", "x"),
    "no nesting": (R, "<r>a<r>b</r>c</r>d", "a<r>b", "c</r>d"),
    "stray end": (R, "a</r>b<r>c</r></r>", "c", "a</r>b</r>"),
    "almost tags": (
        R,
        "a<b <rr> < r> </r <r>x</ r></r",
        "x</ r></r",
        "a<b <rr> < r> </r ",
    ),
    "ends in half a start tag": (R, "1 <r", "", "1 <r"),
    "ends in half an end tag": (R, "<r>1 </r", "1 </r", ""),
    "case counts": (R, "<R>a</R><r>b</r>", "b", "<R>a</R>"),
    "regex characters": (
        {"start": "[(.*", "end": "\\1)]+"},
        "a[(.*b\\1)]+c[(xx",
        "b",
        "ac[(xx",
    ),
    "tag within a run of its beginnings": (
        {"start": "--->", "end": "<<<-"},
        "-----> a <<<<<- b --",
        " a <<",
        "-- b --",
    ),
    "self-overlapping tags": (
        {"start": "aab", "end": "bbc"},
        "aaab x bbbc aaxaab y bb",
        " x b\n y bb",
        "a aax",
    ),
    "end tag right after a start-like text": (
        {"start": "abab!", "end": "?caca"},
        "ababab!1?cacaca?ca",
        "1",
        "abca?ca",
    ),
    "one character": ({"start": "«", "end": "»"}, "a«b»c«d", "b\nd", "ac"),
    "not ASCII": (
        {"start": "◁想▷", "end": "◁/想▷"},
        "好◁想▷为什么◁/想▷🙂◁想",
        "为什么",
        "好🙂◁想",
    ),
    "a tag with spaces": (
        {"start": "Thought: ", "end": "Final Answer:"},
        "Thought: hm Final Answer: 4 Thought",
        " hm ",
        " 4 Thought",
    ),
}
cases = pytest.mark.parametrize(
    "tags, text, reasoning, normal", TEXTS.values(), ids=TEXTS.keys()
)
modes = pytest.mark.parametrize("stream_reasoning", [True, False])


@cases
def test_whole_text(tags, text, reasoning, normal):
    assert tagged(tags).parse_non_stream(text) == (reasoning, normal)
    held = tagged(tags, stream_reasoning=False)
    assert held.parse_non_stream(text) == (reasoning, normal)


@modes
@cases
def test_stream_cut_anywhere(tags, text, reasoning, normal, stream_reasoning):
    def outcome(chunks):
        return run_stream(tagged(tags, stream_reasoning=stream_reasoning), chunks)

    assert outcome([text]) == (reasoning, normal)
    for size in range(1, len(text)):
        chunks = [text[i : i + size] for i in range(0, len(text), size)]
        assert outcome(chunks) == (reasoning, normal), chunks
    for a, b in itertools.combinations(range(len(text) + 1), 2):
        chunks = [text[:a], text[a:b], "", text[b:]]
        assert outcome(chunks) == (reasoning, normal), chunks


@cases
def test_nothing_else_is_held_back(tags, text, reasoning, normal):
    """After every character, what is missing is exactly the longest part that may become the tag."""
    request = tagged_request(tags)
    start, end = request.reasoning_tags.start, request.reasoning_tags.end
    parser = ReasoningParser(request=request)
    sent = [0, 0]
    for i in range(1, len(text) + 1):
        for channel, piece in enumerate(parser.parse_stream_chunk(text[i - 1])):
            sent[channel] += len(piece or "")
        seen = tagged(tags).parse_non_stream(text[:i])
        tag = end if _is_inside(text[:i], start, end) else start
        held = max(
            n
            for n in range(len(tag))
            if n == 0 or _tail(text[:i], start, end).endswith(tag[:n])
        )
        assert sum(sent) == len(seen[0]) + len(seen[1]) - held - _newline_in_hold(
            text[:i], start, end, held, seen[0]
        ), text[:i]


def _walk(text, start, end):
    inside = False
    while True:
        head, tag, rest = text.partition(end if inside else start)
        if not tag:
            return inside, head
        inside, text = not inside, rest


def _is_inside(text, start, end):
    return _walk(text, start, end)[0]


def _tail(text, start, end):
    return _walk(text, start, end)[1]


def _newline_in_hold(text, start, end, held, reasoning):
    """The joining newline comes with the block's first text, so it waits if all of that is held back."""
    inside, tail = _walk(text, start, end)
    return int(inside and 0 < held == len(tail) < len(reasoning))


def test_blocks_whole_when_reasoning_is_not_streamed():
    parser = tagged(stream_reasoning=False)
    steps = [
        ("a <r>on", ("", "a ")),
        ("e ", ("", "")),
        ("two</", ("", "")),
        ("r", ("", "")),
        ("> b <", ("one two", " b ")),
        ("r>three", ("", "")),
        ("</r>c<r>fo", ("\nthree", "c")),
        ("ur</r", ("", "")),
    ]
    for chunk, expected in steps:
        reasoning, normal = parser.parse_stream_chunk(chunk)
        assert (reasoning or "", normal or "") == expected, chunk
    assert parser.flush() == ("\nfour</r", "")
    assert parser.flush() == ("", "")


def test_several_blocks_in_one_chunk():
    parser = tagged(stream_reasoning=False)
    assert parser.parse_stream_chunk("a<r>1</r>b<r>2</r>c<r>3") == ("1\n2", "abc")
    assert parser.flush() == ("\n3", "")


@modes
@pytest.mark.parametrize(
    "chunks, expected",
    [
        (["a<"], ("", "<")),
        (["a<r>b</r>c<r"], ("", "<r")),
        (["a"], ("", "")),
        ([], ("", "")),
        (["<r>a</r>"], ("", "")),
    ],
)
def test_flush_returns_what_is_held_once(chunks, expected, stream_reasoning):
    parser = tagged(stream_reasoning=stream_reasoning)
    for chunk in chunks:
        parser.parse_stream_chunk(chunk)
    assert parser.flush() == expected
    assert parser.flush() == ("", "")


@pytest.mark.parametrize(
    "model_type", sorted(ReasoningParser.DetectorMap), ids=lambda name: name
)
def test_flush_of_the_existing_detectors_is_empty(model_type):
    parser = ReasoningParser(model_type)
    parser.parse_stream_chunk("<")
    assert parser.flush() == ("", "")


REPLACEABLE = sorted(
    set(ReasoningParser.DetectorMap) - {"gpt-oss", "minimax-append-think"}
)


@pytest.mark.parametrize("force", [None, True, False])
@pytest.mark.parametrize("model_type", [None, *REPLACEABLE, "Qwen3"])
def test_tags_replace_the_models_own(model_type, force):
    def parser():
        return tagged(model_type=model_type, force=force)

    text = "<think>a</think>b<r>c</r>d"
    assert parser().parse_non_stream(text) == ("c", "<think>a</think>bd")
    assert run_stream(parser(), list(text)) == ("c", "<think>a</think>bd")
    assert parser().detector.think_start_token == "<r>"
    assert parser().detector.think_end_token == "</r>"


def test_the_models_own_tags_can_be_named():
    parser = tagged("think", model_type="deepseek-r1")
    assert run_stream(parser, "<think>a</think>b") == ("a", "b")


@pytest.mark.parametrize(
    "model_type", ["gpt-oss", "GPT-OSS", "minimax-append-think", "MiniMax-Append-Think"]
)
def test_parsers_that_cannot_be_replaced(model_type):
    with pytest.raises(ValueError) as caught:
        tagged(model_type=model_type)
    assert (
        str(caught.value)
        == f"reasoning_tags is not supported with reasoning parser '{model_type}'"
    )


def test_unknown_and_missing_model_types():
    request = tagged_request()
    assert ReasoningParser(request=request).parse_non_stream("<r>a</r>b") == ("a", "b")
    assert ReasoningParser("", request=request).parse_non_stream("x") == ("", "x")
    with pytest.raises(ValueError, match="^Unsupported model type: no-such-model$"):
        ReasoningParser("no-such-model", request=request)
    plain = ChatCompletionRequest(messages=[USER])
    with pytest.raises(ValueError, match="^Model type must be specified$"):
        ReasoningParser(None, request=plain)


@modes
@pytest.mark.parametrize(
    "previous, text, expected",
    [
        ("<r>so far", " more</r>x<r>y</r>", (" more\ny", "x")),
        ("a<r>b</r>c<r>", "d</r>e", ("d", "e")),
        ("a<r>b</r>c", "d</r><r>e", ("e", "d</r>")),
        ("</r><r>a<r>", "b</r>c", ("b", "c")),
        ("<r>a</r></r>", "b", ("", "b")),
        ("", "<r>a</r>b", ("a", "b")),
        (None, "<r>a</r>b", ("a", "b")),
        ([{"type": "text", "text": "<r>"}], "<r>a</r>b", ("a", "b")),
        ("<think>", "b", ("", "b")),
    ],
    ids=[
        "open block",
        "open and empty",
        "closed",
        "no nesting",
        "stray end",
        "empty message",
        "no content",
        "parts",
        "the model's own tag",
    ],
)
def test_continuing_the_last_message(previous, text, expected, stream_reasoning):
    def parser():
        return tagged(
            model_type="deepseek-r1",
            stream_reasoning=stream_reasoning,
            messages=[USER, {"role": "assistant", "content": previous}],
            continue_final_message=True,
        )

    assert parser().parse_non_stream(text) == expected
    for size in range(1, len(text) + 1):
        chunks = [text[i : i + size] for i in range(0, len(text), size)]
        assert run_stream(parser(), chunks) == expected, chunks


@pytest.mark.parametrize(
    "messages, continue_final_message",
    [
        ([USER, {"role": "assistant", "content": "<r>a"}], False),
        ([{"role": "assistant", "content": "<r>a"}, USER], True),
        ([{"role": "user", "content": "<r>a"}], True),
    ],
)
def test_other_messages_do_not_open_a_block(messages, continue_final_message):
    parser = tagged(messages=messages, continue_final_message=continue_final_message)
    assert run_stream(parser, ["b</r>", "<r>c"]) == ("c", "b</r>")


def test_parsers_do_not_share_state():
    request = tagged_request()
    one, two = ReasoningParser(request=request), ReasoningParser(request=request)
    assert one.parse_stream_chunk("<r>a") == ("a", "")
    assert two.parse_stream_chunk("a<r") == ("", "a")
    assert one.parse_stream_chunk(">b</r>c") == (">b", "c")
    assert two.parse_stream_chunk(">b") == ("b", "")
