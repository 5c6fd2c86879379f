"""How a language model of others is stored: a folder that transformers' `save_pretrained` has written, or one file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from .checkpoint import CONFIG, GENERATION, TOKENIZER, FolderWeights, Weights, check_size, read_table
from .instead import pulled, tokenizer_instead
from .model import LanguageError, LanguageModel
from .tokenizer import Pieces

if TYPE_CHECKING:
    from .family import Family

#: How classes of transformers' end whose models say something else than the next token.
_OTHER_TASKS = ("Classification", "QuestionAnswering", "MultipleChoice", "MaskedLM")


class StoredModel(Protocol):
    """`name`: what the model is called; `place` and `table` name it, and what has its configuration, in errors. Each
    function raises LanguageError."""

    @property
    def name(self) -> str: ...

    @property
    def place(self) -> str: ...

    @property
    def table(self) -> str: ...

    def configuration(self) -> dict[str, Any]:
        """As `config.json` has it."""
        ...

    def field(self, name: str) -> str:
        """What the configuration itself calls a field, in errors."""
        ...

    def weights(self, family: Family) -> Weights:
        """What a family's model of this configuration has."""
        ...

    def check(self, model: LanguageModel) -> None:
        """Raises LanguageError where what is stored says something else than the model that was read of it."""
        ...

    def tokenizer(self) -> Pieces: ...

    def ends(self) -> tuple[int, ...]:
        """The tokens behind which a text is over."""
        ...


class ModelFolder:
    """`config.json`, weights as safetensors, and `tokenizer.json`."""

    def __init__(self, path: Path) -> None:
        self.folder = path if path.is_dir() else path.parent

    @staticmethod
    def has(path: Path) -> bool:
        """Whether this names such a folder, or a file in it."""
        beside = path.is_file() and path.suffix != ".npz" and (path.parent / CONFIG).is_file()
        return path.is_dir() or path.name == CONFIG or beside

    @property
    def name(self) -> str:
        return self.folder.resolve().name

    @property
    def place(self) -> str:
        return str(self.folder)

    @property
    def table(self) -> str:
        return str(self.folder / CONFIG)

    def configuration(self) -> dict[str, Any]:
        values = read_table(self.folder / CONFIG)
        if how := values.get("quantization_config"):
            method: Any = cast("dict[str, Any]", how).get("quant_method") if isinstance(how, dict) else how
            raise LanguageError(
                f"{self.table}: quantization_config: its weights are quantised already ({method}); take the model in "
                "floating point: its weights are rounded here, --weight-bits says how"
            )
        classes: Any = values.get("architectures")
        names = [str(name) for name in cast("list[Any]", classes)] if isinstance(classes, list) else list[str]()
        if task := next((name for name in names if name.endswith(_OTHER_TASKS)), None):
            raise LanguageError(
                f"{self.table}: architectures says {task}, which gives no scores of next tokens; take a language "
                "model (...ForCausalLM), or run an ONNX file of it (`meshloom run`)"
            )
        return values

    def field(self, name: str) -> str:
        return name

    def weights(self, family: Family) -> Weights:
        return FolderWeights(self.folder)

    def check(self, model: LanguageModel) -> None:
        """A folder says nothing but its weights."""

    def tokenizer(self) -> Pieces:
        path = self.folder / TOKENIZER
        if not path.is_file():
            raise LanguageError(f"{self.folder}: has no {TOKENIZER}; {tokenizer_instead(self.folder)}")
        try:
            check_size(path)
            return Pieces(path.read_bytes(), str(path))
        except (OSError, ValueError) as error:
            mend = pulled(path)
            raise LanguageError(f"{path}: {mend}" if mend else str(error)) from error

    def ends(self) -> tuple[int, ...]:
        """Those that transformers' `generate` ends at."""
        where = self.folder / (GENERATION if (self.folder / GENERATION).is_file() else CONFIG)
        return end_tokens(str(where), read_table(where).get("eos_token_id"))


def end_tokens(where: str, tokens: Any) -> tuple[int, ...]:
    """What a table says as `eos_token_id`. Raises LanguageError."""
    each = cast("list[Any]", tokens if isinstance(tokens, list) else [] if tokens is None else [tokens])
    if not all(isinstance(token, int) for token in each):
        raise LanguageError(f"{where}: eos_token_id is {tokens!r}; name the number of a token, or a list of some")
    return tuple(each)
