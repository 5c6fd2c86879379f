"""What is kept between runs, as data: what `meshloom cache --json` writes."""

from __future__ import annotations

from .record import Count, Record


class CacheKind(Record):
    """Entries of a kind. `oldest_use`, `newest_use`: seconds since the epoch, null without entries."""

    kind: str
    what: str
    entries: Count
    bytes: Count
    in_use: Count
    oldest_use: float | None
    newest_use: float | None
    limit_bytes: Count


class CacheContents(Record):
    """What `meshloom cache show --json` writes."""

    root: str
    bytes: Count
    kinds: tuple[CacheKind, ...]


class RemovedKind(Record):
    """What became of the entries of a kind. `in_use`: that stay; `failed`: why others could not be removed."""

    kind: str
    removed: Count
    bytes: Count
    in_use: Count
    failed: tuple[str, ...]


class CacheRemoval(Record):
    """What `meshloom cache clean --json` writes."""

    removed: Count
    bytes: Count
    in_use: Count
    kinds: tuple[RemovedKind, ...]
