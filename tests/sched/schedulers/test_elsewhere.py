"""Schedulers in a process of their own: questions from there, and what becomes of one that nobody answers."""

from __future__ import annotations

from typing import Any

import pytest

from meshloom.sched.schedulers.elsewhere import Ask, Elsewhere
from meshloom.sched.support.limits import Limits


def begin() -> Any:
    def answer(request: Any, ask: Ask) -> Any:
        return ask(request) + 1

    return answer


def process() -> Elsewhere:
    return Elsewhere("mine", __file__, "at the beginning", begin, Limits(20, 500))


def test_questions_are_answered_here() -> None:
    there = process()
    assert there.answer("in cycle 3", 4, hear=lambda question: 10 * question) == 41
    assert there.answer("in cycle 5", 5, hear=lambda question: 10 * question) == 51


def test_a_question_that_nobody_answers_ends_it() -> None:
    there = process()
    with pytest.raises(TypeError, match="no question is answered: 4"):
        there.answer("in cycle 3", 4)
