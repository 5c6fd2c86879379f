"""Archives that hold more than they should are refused before they are unpacked."""

from __future__ import annotations

import io
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest

from meshloom.sched.support import archives
from meshloom.sched.support.archives import DAMAGE, read_archive


def test_what_was_saved_is_read(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "a.npz", allow_pickle=False, x=np.arange(5), y=np.zeros((2, 0)))
    arrays = read_archive(tmp_path / "a.npz")
    assert (list(arrays), arrays["x"].tolist(), arrays["y"].shape) == (["x", "y"], [0, 1, 2, 3, 4], (2, 0))


def _header(shape: tuple[int, ...]) -> bytes:
    content = io.BytesIO()
    np.lib.format.write_array_header_1_0(content, {"descr": "<f8", "fortran_order": False, "shape": shape})
    return content.getvalue()


class _Run:
    def __reduce__(self) -> tuple[object, ...]:
        return (pytest.fail, ("it was executed",))


def test_what_is_too_much_or_something_else_is_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.npz"
    np.savez_compressed(path, allow_pickle=False, x=np.zeros(100_000))
    assert path.stat().st_size < 10_000
    monkeypatch.setattr(archives, "MOST_BYTES", 500_000)
    with pytest.raises(ValueError, match=r"^holds 800,128 bytes unpacked, more than 500,000$"):
        read_archive(path)
    objects = io.BytesIO()
    np.save(objects, np.array([_Run()], dtype=object), allow_pickle=True)
    for content in (_header((1 << 50,)), _header((1 << 50,)) + bytes(100), objects.getvalue(), pickle.dumps(_Run())):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("x.npy", content)
        with pytest.raises(DAMAGE):
            read_archive(path)
