"""Texts from files as they are shown: no character of theirs does anything, and none of them is endless."""

from __future__ import annotations

import unicodedata
from xml.etree import ElementTree

import pytest

from meshloom.sched.support.text import SHOWN, one_line, printable, shortened, whole_number

#: Numbers of characters: all controls and marks of direction, halves of pairs, those that XML bars, and others.
SOME = [*range(0x3100), *range(0xD7FE, 0xE002), *range(0xFDCF, 0xFE10), *range(0xFEF0, 0x10002), 0x1F600, 0x10FFFF]


def test_every_control_character_is_shown_as_an_escape() -> None:
    for number in SOME:
        character = chr(number)
        shown = printable(character)
        if unicodedata.category(character) == "Cc" and character not in "\n\t":
            assert shown == character.encode("unicode_escape").decode()
        assert shown in (character, f"\\x{number:02x}", f"\\u{number:04x}", f"\\U{number:08x}", "\\r")
        if 0xD800 <= number < 0xE000 or shown != character:
            assert shown.isascii()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("conv1 ä 漢字 😀", "conv1 ä 漢字 😀"),
        ("\x1b[31mred\x07", "\\x1b[31mred\\x07"),
        ("\x9b31m", "\\x9b31m"),
        ("a\u202eb", "a\\u202eb"),
        ("a\r\nb\tc", "a\\r\nb\tc"),
        ("lone \ud800", "lone \\ud800"),
        ("nul\0", "nul\\x00"),
        ("👩\u200d💻", "👩\u200d💻"),
    ],
)
def test_what_is_shown(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert printable(shown) == shown
    shown.encode()


def test_what_is_printable_is_valid_xml() -> None:
    text = printable("".join(map(chr, SOME)))
    element = ElementTree.Element("a")
    element.text = text
    assert ElementTree.fromstring(ElementTree.tostring(element, "utf-8")).text == text


def test_one_line_and_no_more_than_it_takes() -> None:
    assert one_line("a\nb\tc") == "a\\nb\\tc"
    assert shortened("x" * SHOWN) == "x" * SHOWN
    assert shortened("x" * (SHOWN + 1)) == "x" * SHOWN + f"... ({SHOWN + 1} characters)"
    assert shortened("\x1b" * 100_000) == "\\x1b" * (SHOWN // 4) + "... (400,000 characters)"
    assert shortened(12.5) == "12.5"


def test_whole_numbers_are_digits_and_not_without_end() -> None:
    assert [whole_number(text) for text in ("0", "007", "9" * 18)] == [0, 7, 10**18 - 1]
    for text in ("", "-1", "1.0", "1_0", " 1", "\u00b2", "\u0663", "x", "9" * 19, "9" * 5000):
        assert whole_number(text) is None
