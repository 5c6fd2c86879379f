"""SQL that sees the tables it is given, and nothing else: no files, no addresses, no other statements than SELECT.

polars' SQL has functions that open files and addresses (`read_csv('...')`) and no switch against them. So this module
reads a statement first, and refuses it unless each thing that it calls is on the list of functions of values. The
statement that runs is put together from the pieces read, without comments: what polars sees is what was checked.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from meshloom.sched.support.text import shortened

if TYPE_CHECKING:
    import polars

#: Characters of a statement; far longer ones overflow polars' stack.
LONGEST = 10_000
#: What a statement may begin with.
_VERBS = ("select", "values", "from", "with")
_OF_VALUES = """
abs acos acosd approx_quantile array_agg array_contains array_dot_product array_get array_inner_product array_length
array_lower array_mean array_reverse array_sum array_to_string array_unique array_upper asin asind atan atan2 atan2d
atand avg bit_and bit_count bit_length bit_not bit_or bit_xor bitand bitnot bitor bitxor cbrt ceil ceiling char_length
character_length coalesce concat concat_ws corr cos cosd cot cotd count covar covar_pop covar_samp cume_dist
current_date current_time current_timestamp date date_part date_trunc day dayofmonth dayofweek dayofyear degrees
dense_rank div ends_with erf exp first first_value floor greatest group_concat grouping hour ifnull initcap lag last
last_value lead least left length listagg ln localtime localtimestamp log log10 log1p log2 lower lpad ltrim max median
min minute mod month normalize now nth_value ntile nullif octet_length percent_rank pi pow power quantile_cont
quantile_disc quarter radians rank regexp_like regexp_replace replace reverse right round row_number rpad rtrim second
sign sin sind split_part sqrt starts_with stddev stddev_samp stdev stdev_samp strftime string_agg string_to_array
strpos strptime substr substring sum tan tand time timestamp trim trunc truncate unnest upper var var_samp variance
week xor year
"""
_OF_THE_LANGUAGE = """
all and any array as between by case cast char columns cross cube decimal distinct else except exclude exists extract
filter float from having if ilike in inner intersect interval is join like limit not numeric offset on or order over
partition position qualify recursive rename rollup select sets some string struct then try_cast union using values
varchar when where
"""
#: Functions of values, of columns and of windows.
FUNCTIONS = frozenset(_OF_VALUES.split())
#: Words that stand before a parenthesis without calling anything, and types that have a size.
_WORDS = frozenset(_OF_THE_LANGUAGE.split())
_PIECE = re.compile(
    r"""(?P<space>\s+|--[^\r\n]*)
    |(?P<text>'(?:[^']|'')*')
    |(?P<quoted>"(?:[^"]|"")*"|`(?:[^`]|``)*`)
    |(?P<word>[^\W\d]\w*)
    |(?P<number>\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?)
    |(?P<sign><=>|<>|<=|>=|!=|==|\|\||::|->>|->|//|[-+*/%=<>!|&~^,.()\[\]:;])""",
    re.VERBOSE,
)
_COMMENT = re.compile(r"/\*|\*/")


class SqlError(ValueError):
    """SQL that reaches for more than its tables, or that cannot be read; the message names the piece."""


class _Piece(NamedTuple):
    kind: str
    text: str
    apart: bool  # from the piece before

    def is_sign(self, text: str) -> bool:
        return self.kind == "sign" and self.text == text

    @property
    def word(self) -> str:
        """In lower letters if it is a bare word, else empty."""
        return self.text.lower() if self.kind == "word" else ""

    @property
    def is_name(self) -> bool:
        return self.kind in ("word", "quoted")


def checked(sql: str) -> str:
    """The statement without its comments, if it selects and calls functions of values alone. Raises SqlError."""
    pieces = _pieces(sql)
    while pieces and pieces[-1].is_sign(";"):
        pieces.pop()
    if any(piece.is_sign(";") for piece in pieces):
        raise SqlError("holds more than one statement")
    first = next((piece.word for piece in pieces if not piece.is_sign("(")), "")
    if first not in _VERBS:
        raise SqlError(f"must begin with {', '.join(verb.upper() for verb in _VERBS[:-1])} or {_VERBS[-1].upper()}")
    for at, piece in enumerate(pieces):
        if piece.is_sign("(") and at:
            _check_call(pieces, at)
    if first == "with":
        _check_with(pieces)
    return _joined(pieces)


def check_condition(text: str) -> None:
    """Raises SqlError for what does not end where it began: parentheses that do not match, a second statement."""
    depth = 0
    for piece in _pieces(text):
        depth += piece.is_sign("(") - piece.is_sign(")")
        if depth < 0 or piece.is_sign(";"):
            break
    else:
        if depth == 0:
            return
    raise SqlError("is not one condition; its parentheses must match")


def _pieces(sql: str) -> list[_Piece]:
    if len(sql) > LONGEST:
        raise SqlError(f"has {len(sql):,} characters, {LONGEST:,} are possible")
    pieces: list[_Piece] = []
    at, apart = 0, False
    while at < len(sql):
        if sql.startswith("/*", at):
            at, apart = _end_of_comment(sql, at), True
            continue
        match = _PIECE.match(sql, at)
        if match is None or match.lastgroup is None:
            raise SqlError(f"cannot be read from {shortened(sql[at:])!r} on")
        if match.lastgroup == "space":
            apart = True
        else:
            pieces.append(_Piece(match.lastgroup, match[0], apart))
            apart = False
        at = match.end()
    return pieces


def _end_of_comment(sql: str, begin: int) -> int:
    depth = 0
    for mark in _COMMENT.finditer(sql, begin):
        depth += 1 if mark[0] == "/*" else -1
        if depth == 0:
            return mark.end()
    raise SqlError("has a comment that does not end")


def _joined(pieces: Sequence[_Piece]) -> str:
    """The pieces as text. A string stands apart from a word before it, which would change its meaning: `E'\\'`."""
    text, before = "", ""
    for piece in pieces:
        text += " " * (piece.apart or (piece.kind == "text" and before != "sign")) + piece.text
        before = piece.kind
    return text.strip()


def _check_call(pieces: Sequence[_Piece], at: int) -> None:
    """Raises SqlError if the parenthesis at `at` calls anything but a function of values."""
    before = pieces[at - 1]
    if before.word in FUNCTIONS or before.word in _WORDS or _names_columns(pieces, at):
        return
    if before.kind == "sign" and before.text not in (")", "]"):
        return
    raise SqlError(f"calls {shortened(before.text)}, which is no function of values")


def _names_columns(pieces: Sequence[_Piece], at: int) -> bool:
    """Whether the parenthesis at `at` holds the names of an alias's columns: `AS t (a, b)`, `WITH t (a, b) AS`."""
    end = next((i for i in range(at + 1, len(pieces)) if pieces[i].is_sign(")")), len(pieces))
    if not pieces[at - 1].is_name or at < 2 or not all(p.is_name or p.is_sign(",") for p in pieces[at + 1 : end]):
        return False
    behind = pieces[end + 1].word if end + 1 < len(pieces) else ""
    earlier = pieces[at - 2]
    if earlier.word == "as":
        return True
    return behind == "as" and (
        earlier.word in ("with", "recursive") or (earlier.is_sign(",") and pieces[at - 3].is_sign(")"))
    )


def _check_with(pieces: Sequence[_Piece]) -> None:
    """Raises SqlError if what follows the tables of a WITH is no SELECT."""
    depth = 0
    for before, piece in pairwise(pieces):
        depth += before.is_sign("(") - before.is_sign(")")
        if depth == 0 and before.is_sign(")") and piece.kind == "word" and piece.word != "as":
            if piece.word not in _VERBS[:-1]:
                raise SqlError(f"must go on with SELECT behind WITH, not {piece.text.upper()}")
            return


def run(frame: polars.DataFrame, table: str, sql: str) -> polars.DataFrame:
    """What a statement selects from `frame` under the name `table`. Raises SqlError."""
    import polars

    statement = checked(sql)
    try:
        return polars.SQLContext({table: frame}, eager=True).execute(statement)
    except (polars.exceptions.PolarsError, polars.exceptions.PanicException, TypeError) as error:
        raise SqlError(str(error).partition("\n")[0].partition("; valid columns")[0]) from None
