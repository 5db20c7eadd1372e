"""Routines that sessions have in common."""

import random
import uuid
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from whence.lifecycle.patterns import MIN_SUPPORT, Routine, Step, routines

ROUTINE = ("open the queue", "pick the oldest invoice", "compare it with the order", "ask for approval", "pay it")


def session(*texts: str) -> list[Step]:
    return [Step(uuid.uuid4(), text) for text in texts]


def with_noise(dice: random.Random, texts: Sequence[str], name: str) -> list[Step]:
    said = list(texts)
    for number in range(dice.randrange(1, 8)):
        said.insert(
            dice.randrange(len(said) + 1), f"{dice.choice(['look at', 'close', 'mail'])} {name} {chr(97 + number)}"
        )
    return session(*said)


def test_a_routine_of_four_sessions_is_found_with_all_its_events_whatever_was_done_in_between() -> None:
    dice = random.Random(1)
    sessions = [with_noise(dice, ROUTINE, f"thing {number}x") for number in "abcd"]
    [found] = routines(sessions[0], sessions[1:])
    assert (found.steps, found.support) == (ROUTINE, 4)
    pointers = [event for occurrence in found.occurrences for event in occurrence]
    assert len(pointers) == len(set(pointers)) == 20


def test_what_some_sessions_also_share_does_not_hide_it() -> None:
    sessions = [
        session("drink tea", *ROUTINE, "go home"),
        session("drink tea", *ROUTINE[:3], "call the bank", *ROUTINE[3:]),
        session(*ROUTINE, "go home"),
        session("read mail", *ROUTINE),
    ]
    found = routines(sessions[0], sessions[1:])
    assert [(routine.steps, routine.support) for routine in found] == [(ROUTINE, 4)]


def test_numbers_and_case_do_not_make_another_step() -> None:
    sessions = [session(f"Open ticket {number}", "read  it", f"Close ticket {number}.") for number in (17, 4, 2001)]
    [found] = routines(sessions[0], sessions[1:])
    assert found.support == 3
    assert found.steps == ("Open ticket 17", "read  it", "Close ticket 17.")


def test_two_sessions_or_two_steps_are_no_routine() -> None:
    assert routines(session(*ROUTINE), [session(*ROUTINE)]) == []
    assert routines(session("a b", "c d"), [session("a b", "c d")] * 5) == []
    assert routines([], []) == []


def test_the_order_of_steps_matters() -> None:
    forth, back = session("one thing", "two things", "three things"), session("three things", "two things", "one thing")
    assert routines(forth, [back, back, back]) == []


def test_two_routines_of_one_session_are_two() -> None:
    other = ("greet the customer", "look the customer up", "note the wish", "thank the customer")
    sessions = [session(*ROUTINE, *other) if number % 2 else session(*other, *ROUTINE) for number in range(6)]
    found = routines(sessions[0], sessions[1:])
    assert {(routine.steps, routine.support) for routine in found} == {(ROUTINE, 6), (other, 6)}


@given(st.lists(st.lists(st.sampled_from("abcdef"), max_size=12), min_size=1, max_size=8))
def test_every_routine_is_in_as_many_sessions_as_it_says_in_order(texts: list[list[str]]) -> None:
    sessions = [session(*each) for each in texts]
    of = {step.event_id: (place, step) for steps in sessions for place, step in enumerate(steps)}
    for routine in routines(sessions[0], sessions[1:]):
        assert routine.support >= MIN_SUPPORT
        for occurrence in routine.occurrences:
            places = [of[event][0] for event in occurrence]
            assert places == sorted(set(places))
            assert tuple(of[event][1].label for event in occurrence) == routine.labels
        assert is_frequent(routine, sessions)


def is_frequent(routine: Routine, sessions: list[list[Step]]) -> bool:
    def holds(steps: list[Step]) -> bool:
        rest = iter(step.label for step in steps)
        return all(label in rest for label in routine.labels)

    return sum(map(holds, sessions)) == routine.support
