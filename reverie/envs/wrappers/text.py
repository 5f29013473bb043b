"""Text observations (mission strings) as token indices, which networks read like discrete observations.

Tokens are words if ``vocabulary`` lists them or the space does (:class:`Sentences`), and characters otherwise: those of
the space's character set in sorted order. Every text gets the same number of tokens. Token 0 is padding, 1 an unknown
symbol, and the symbols start at 2. The tokenizer has no state, so equal texts always get equal tokens.

:func:`reverie.envs.make.make_env` adds this wrapper to every env that still has text observations.
"""

from __future__ import annotations

import string
from collections.abc import Iterable
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from pydantic import Field

from reverie.core.config import ComponentConfig
from reverie.core.types import Array
from reverie.envs.wrappers.leaves import LeafWrapper, Space, leaves

PADDING, UNKNOWN = 0, 1
_FIRST_SYMBOL = 2
_DEFAULT_LENGTH = 64
"""Number of tokens if the space does not limit the length of its texts."""
_DEFAULT_CHARACTERS = string.digits + string.ascii_letters + string.punctuation + " "


class Sentences(spaces.Text):
    """Texts of at most ``max_words`` of these words, in any order and with any punctuation."""

    def __init__(self, words: Iterable[str], max_words: int) -> None:
        self.words = _normalise(words)
        self.max_words = max(max_words, 1)
        longest = max(map(len, self.words), default=0) + 2  # a punctuation mark and a space
        characters = string.ascii_letters + string.digits + string.punctuation + " "
        super().__init__(self.max_words * longest, min_length=0, charset=characters)


class TextTokens(LeafWrapper):
    """Turns text observations into token indices (length,)."""

    wanted = "a text (Text space)"

    class Config(ComponentConfig):
        kind: str = "text_tokens"
        length: int | None = Field(None, ge=1)
        """Tokens per text. Longer texts are truncated. Empty: enough for the longest text of the space, or 64 if the
        space has no limit."""
        vocabulary: tuple[str, ...] = ()
        """Words that each become one token, ignoring case and punctuation. Other words become the unknown token. Empty:
        the words of the space, as those of MiniGrid's missions, or else characters."""

    def __init__(self, env: gym.Env[Any, Any], config: Config) -> None:
        self._length = config.length
        self._vocabulary = _normalise(config.vocabulary)
        self._indices: dict[str, dict[str, int]] = {}
        super().__init__(env)

    def fits(self, space: Space) -> bool:
        return is_text(space)

    def change_space(self, space: Space) -> Space:
        classes = _FIRST_SYMBOL + len(self._symbols(space))
        return spaces.MultiDiscrete([classes] * self._num_tokens(space))

    def change(self, value: str, space: Space, path: str) -> Array:
        if path not in self._indices:
            symbols = self._symbols(space)
            self._indices[path] = {symbol: index for index, symbol in enumerate(symbols, _FIRST_SYMBOL)}
        indices = self._indices[path]
        found = [indices.get(symbol, UNKNOWN) for symbol in (_split(value) if self._words(space) else value)]
        tokens = np.full(self._num_tokens(space), PADDING, np.int64)
        tokens[: len(found)] = found[: len(tokens)]
        return tokens

    def _words(self, space: Space) -> tuple[str, ...]:
        """Empty if tokens are characters."""
        return self._vocabulary or (space.words if isinstance(space, Sentences) else ())

    def _symbols(self, space: Space) -> tuple[str, ...]:
        characters = space.character_set if isinstance(space, spaces.Text) else _DEFAULT_CHARACTERS
        return self._words(space) or tuple(sorted(characters))

    def _num_tokens(self, space: Space) -> int:
        if self._length is not None:
            return self._length
        if isinstance(space, Sentences):
            return space.max_words
        longest = space.max_length if isinstance(space, spaces.Text) else _DEFAULT_LENGTH
        return (longest + 1) // 2 if self._vocabulary else longest  # words are at least one letter and a space


def _normalise(words: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({part for word in words for part in _split(word)}))


def _split(text: str) -> list[str]:
    """The words of a text in lower case, without punctuation around them."""
    words = (word.strip(string.punctuation) for word in text.lower().split())
    return [word for word in words if word]


def is_text(space: Space) -> bool:
    """Also true for spaces of other packages whose values are strings, such as MiniGrid's missions."""
    return isinstance(space, spaces.Text) or (space.dtype is not None and np.dtype(space.dtype).kind == "U")


def has_text(space: Space | None) -> bool:
    """Whether any leaf of an observation space is a text. False for None, an env without a space."""
    return space is not None and any(is_text(leaf) for leaf in leaves(space))
