"""However the stream is cut, the client ends up with the same text and the same calls."""

import json
import random

import pytest
from orrery import CASE_IDS, CASES, Client, call, pieces, random_pieces, stream


@pytest.mark.parametrize("case", CASE_IDS)
def test_a_stream_in_one_chunk_gives_all_of_it_at_once(case):
    output, text, calls = CASES[case]
    assert stream([output]).result() == (text, calls)


@pytest.mark.parametrize("case", CASE_IDS)
def test_a_stream_may_be_cut_at_any_position(case):
    output, text, calls = CASES[case]
    for at in range(1, len(output)):
        assert stream([output[:at], output[at:]]).result() == (text, calls), f"cut at {at}"


@pytest.mark.parametrize("case", CASE_IDS)
def test_a_stream_may_come_in_pieces_of_any_size(case):
    output, text, calls = CASES[case]
    for size in range(1, 17):
        assert stream(pieces(output, size)).result() == (text, calls), f"pieces of {size}"


@pytest.mark.parametrize("case", CASE_IDS)
def test_a_stream_may_come_in_uneven_pieces(case):
    output, text, calls = CASES[case]
    rng = random.Random(f"uneven {case}")
    for longest in (2, 5, 11, 40):
        for _ in range(15):
            chunks = random_pieces(output, rng, longest)
            assert stream(chunks).result() == (text, calls), chunks


def test_a_stream_may_be_cut_at_any_two_positions():
    output = "Hi\n" + call("get_time", '{"tz": "UTC"}') + "\n@@ -1 @@\n" + call("ping", "") + "\nok"
    expected = ("Hi\n@@ -1 @@\nok", [("get_time", {"tz": "UTC"}), ("ping", {})])
    for first in range(1, len(output)):
        for second in range(first + 1, len(output)):
            chunks = [output[:first], output[first:second], output[second:]]
            assert stream(chunks).result() == expected, chunks


def test_empty_chunks_change_nothing():
    output, text, calls = CASES["text between calls"]
    chunks = [chunk for letter in output for chunk in (letter, "")]
    assert stream(["", *chunks]).result() == (text, calls)


def test_many_calls_in_one_stream_keep_their_order_and_numbers():
    output = "\n".join(call("ping", json.dumps({"n": n})) for n in range(120))
    expected = ("", [("ping", {"n": n}) for n in range(120)])
    for size in (1, 7, 64, len(output)):
        assert stream(pieces(output, size)).result() == expected


def test_two_streams_do_not_disturb_each_other():
    one, two = CASES["two calls"], CASES["text between calls"]
    first, second = Client(), Client()
    for at in range(max(len(one[0]), len(two[0]))):
        first.feed(one[0][at : at + 1])
        second.feed(two[0][at : at + 1])
    assert first.result() == one[1:]
    assert second.result() == two[1:]
