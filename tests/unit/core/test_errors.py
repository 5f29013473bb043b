"""Error messages fit on a screen and are safe to print, even with long or hostile contents."""

from __future__ import annotations

from reverie.core.errors import LONGEST_LINE, MOST_LINES, ReverieError


def test_plain_message_is_unchanged() -> None:
    error = ReverieError("Two lines,\n\tand a \u00fc \u00b7", "Type this.")
    assert error.message == "Two lines,\n\tand a \u00fc \u00b7"
    assert str(error) == f"{error.message}\nType this."


def test_long_lines_keep_their_ends() -> None:
    error = ReverieError(f"There is no env '{'x' * 5000}'.", "y" * 5000)
    assert len(error.message) < LONGEST_LINE + 50
    assert error.message.startswith("There is no env 'xxx")
    assert error.message.endswith("xxx'.")
    assert "more characters" in error.fix


def test_many_lines_keep_their_ends() -> None:
    lines = ReverieError("\n".join(map(str, range(1000)))).message.splitlines()
    assert len(lines) == MOST_LINES + 1
    assert (lines[0], lines[-1]) == ("0", "999")
    assert "(940 more lines)" in lines[MOST_LINES // 2]


def test_control_characters_are_escaped() -> None:
    assert ReverieError("a\x1b[31mb\rc").message == "a\\x1b[31mb\\rc"
