"""What was used up, added up: the three spans, and what goes in the place of what (B4)."""

from __future__ import annotations

import random

import pytest

from streamguard._base.spending import Spending, tokens_in
from streamguard.signals import Usage


def spent(*usages, name="tokens"):
    spending = Spending()
    for usage in usages:
        spending.note(usage)
    return spending.whole.get(name)


def tokens(count, span="call", call=""):
    return Usage({"output_tokens": count}, span, call)


@pytest.mark.parametrize(
    ("counts", "total"),
    [
        ({"input_tokens": 10, "output_tokens": 5}, 15),
        ({"prompt_tokens": 10, "completion_tokens": 5}, 15),
        ({"input_tokens": 10, "output_tokens": 5, "cached_input_tokens": 8}, 15),
        ({"input_tokens": 2, "cache_read_input_tokens": 8, "output_tokens": 5}, 15),
        ({"total_tokens": 20, "input_tokens": 10, "output_tokens": 5}, 20),
        ({"total_cost_usd": 1.0}, None),
    ],
)
def test_tokens_by_the_names_that_backends_use(counts, total):
    assert tokens_in(counts)[0] == total


def test_calls_add_up_and_are_counted():
    """B4"""
    usages = tokens(10, call="a"), tokens(5, call="b"), tokens(7)
    assert spent(*usages) == 22
    assert spent(*usages, name="calls") == 3


def test_a_call_that_is_told_again_counts_once():
    """B4: of each content block of one message the same usage is told."""
    usages = tokens(10, call="a"), tokens(10, call="a"), tokens(14, call="a")
    assert spent(*usages) == 14
    assert spent(*usages, name="calls") == 1


@pytest.mark.parametrize("span", ["turn", "process", "session"])
def test_a_total_takes_the_place_of_its_parts(span):
    """B4"""
    assert spent(tokens(10, call="a"), tokens(20, call="b"), tokens(33, span)) == 33


def test_what_comes_after_a_total_is_added_to_it():
    """B4"""
    assert spent(tokens(10), tokens(12, "process"), tokens(5), tokens(20, "process")) == 20
    assert spent(tokens(10), tokens(12, "process"), tokens(5)) == 17


def test_turns_add_up():
    """B4"""
    spending = Spending()
    for count in (10, 20, 30):
        spending.note(tokens(1))
        spending.note(tokens(count, "turn"))
        spending.end_turn()
    assert spending.whole["tokens"] == 60


def test_a_process_counts_from_its_own_beginning_and_a_session_goes_on():
    """B4: over attempts, without counting twice."""
    spending = Spending()
    spending.note(tokens(30, "process"))
    spending.note(Usage({"total_cost_usd": 1.0}, "session"))
    spending.begin_process(is_resumed=True)
    spending.note(tokens(30, "process"))  # as much again
    spending.note(Usage({"total_cost_usd": 1.5}, "session"))  # all of it
    assert spending.whole == {"tokens": 60, "cost": 1.5}
    spending.begin_process(is_resumed=False)
    spending.note(Usage({"total_cost_usd": 2.0}, "session"))
    assert spending.whole["cost"] == 3.5


def test_a_count_that_begins_anew_unasked_is_added():
    """B4: a total that is smaller than before is another's."""
    assert spent(tokens(30, "session"), tokens(4, "session")) == 34


def test_what_a_session_has_forgotten_of_a_killed_process_stays_spent():
    """B4: Claude's, as measured: after a SIGKILL its counts are without the turn that was cut."""
    spending = Spending()
    spending.note(tokens(22, "session"))
    spending.begin_process(is_resumed=True)
    for call in "abc":
        spending.note(tokens(11, call=call))
    spending.begin_process(is_resumed=True)
    spending.note(tokens(11, call="d"))
    spending.note(tokens(33, "session"))  # the first turn and this one
    assert spending.whole["tokens"] == 66
    spending.note(tokens(44, "session"))
    assert spending.whole["tokens"] == 77


def test_what_is_not_told_is_not_there():
    assert spent(Usage({"context_size": 9.0}, "turn")) is None
    assert Spending().whole == {}


def test_calls_that_a_total_tells():
    assert spent(tokens(1), tokens(1), Usage({"calls": 5}, "turn"), name="calls") == 5


def test_of_very_many_calls_few_are_kept():
    spending = Spending()
    for number in range(10_000):
        spending.note(tokens(1, call=str(number)))
    assert spending.whole == {"tokens": 10_000, "calls": 10_000}
    assert all(len(each._calls) <= 16 for each in spending._sums.values())


def test_against_a_list_of_all_that_was_told():
    """B4: a naive model keeps every statement, and adds up what no later total covers."""
    chance = random.Random(7)
    for _ in range(2_000):
        spending, told, settled = Spending(), [], 0.0
        process_total = process_base = 0.0
        for _ in range(chance.randrange(1, 30)):
            match chance.randrange(5):
                case 0 | 1:
                    call = chance.choice("abc")
                    count = chance.randrange(9)
                    told = [(c, n) for c, n in told if c != call] + [(call, count)]
                    spending.note(tokens(count, call=call))
                case 2:
                    settled += sum(n for _, n in told)
                    told = []
                    spending.end_turn()
                case 3:
                    process_total += chance.randrange(9)
                    settled, told = process_base + process_total, []
                    spending.note(tokens(process_total, "process"))
                case 4:
                    settled += sum(n for _, n in told)
                    process_base, process_total, told = settled, 0.0, []
                    spending.begin_process(is_resumed=True)
            assert spending.whole.get("tokens", 0.0) == settled + sum(n for _, n in told)


@pytest.mark.parametrize("total", ["process", "session"])
def test_a_turn_that_is_told_after_a_total_is_in_it_already(total):
    """B4: in whichever order a backend tells of the same turn."""
    spending = Spending()
    for usages in (
        [tokens(10, "turn"), tokens(10, total)],
        [tokens(14, total), tokens(4, "turn"), tokens(7, "turn")],
        [tokens(20, total), tokens(3, "turn")],
    ):
        for usage in usages:
            spending.note(usage)
        spending.end_turn()
    assert spending.whole["tokens"] == 20
