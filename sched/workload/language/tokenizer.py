"""From text to tokens and back: characters, or the pieces of a `tokenizer.json` (the library `tokenizers` reads it)."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Protocol


class Tokenizer(Protocol):
    """What a model's tokens stand for. `size`: how many there are; `digest`: of all that decides which a text has."""

    size: int
    digest: str

    def tokens(self, text: str) -> list[int]:
        """The tokens of a text. Raises ValueError, with the reason, for one that has none."""
        ...

    def text(self, tokens: Sequence[int]) -> str:
        """The text of tokens."""
        ...


class Characters:
    """A token for each character of `vocabulary`, in that order."""

    def __init__(self, vocabulary: str) -> None:
        self.vocabulary, self.size = vocabulary, len(vocabulary)
        self.digest = sha256(vocabulary.encode()).hexdigest()
        self._number = {character: index for index, character in enumerate(vocabulary)}

    def tokens(self, text: str) -> list[int]:
        for at, character in enumerate(text):
            if character not in self._number:
                raise ValueError(
                    f"has no token for {character!r}, character {at + 1} of the text; its {self.size} are "
                    f"{self.vocabulary!r}"
                )
        return [self._number[character] for character in text]

    def text(self, tokens: Sequence[int]) -> str:
        return "".join(self.vocabulary[token] for token in tokens)


class Pieces:
    """The tokens of a `tokenizer.json`, with those that it puts before a text. `content`: its bytes; `where` names it
    in errors. Raises ValueError for what is none."""

    def __init__(self, content: bytes, where: str) -> None:
        import tokenizers

        try:
            self._tokenizer = tokenizers.Tokenizer.from_buffer(content)
        except Exception as error:  # the library raises this type alone
            raise ValueError(f"{where}: is no tokenizer ({error}); save it again") from error
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self.size, self.digest = self._tokenizer.get_vocab_size(), sha256(content).hexdigest()

    def tokens(self, text: str) -> list[int]:
        try:
            return self._tokenizer.encode(text).ids
        except Exception as error:  # as above
            raise ValueError(f"has no tokens for {text[:40]!r}: {error}") from error

    def text(self, tokens: Sequence[int]) -> str:
        return self._tokenizer.decode(list(tokens))
