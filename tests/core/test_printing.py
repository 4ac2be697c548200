from __future__ import annotations

import subprocess

import pytest

from tunefleet.core.printing import printable, quoted


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        ("a b\tc\nd", "a b\tc\nd"),
        ("?[2Ja?b", "\x1b[2Ja\rb"),
        ("?2J?", "\x9b2J\x00"),
        ("gpj.?exe", "gpj.\N{RIGHT-TO-LEFT OVERRIDE}exe"),
        ("a?b", "a\N{ZERO WIDTH SPACE}b"),
        ("a?b", "a\N{LINE SEPARATOR}b"),
        ("a?b", "a\udc80b"),
        ("1\N{NO-BREAK SPACE}000 µs 漢字", "1\N{NO-BREAK SPACE}000 µs 漢字"),
    ],
)
def test_what_steers_a_terminal_is_replaced(shown: str, text: str) -> None:
    assert shown == printable(text)


@pytest.mark.parametrize(
    "word", ["a", "it's", "a b; rm x", "\x1b[2J'\\$(x)\n", "\N{RIGHT-TO-LEFT OVERRIDE}é"]
)
def test_a_quoted_word_is_one_word_of_a_shell_and_can_be_seen(word: str) -> None:
    assert quoted(word).isprintable()
    echo = subprocess.run(
        ["bash", "-c", f"printf %s {quoted(word)}"],
        capture_output=True,
        check=True,
        env={"LC_ALL": "C.UTF-8"},
    )
    assert word == echo.stdout.decode()
