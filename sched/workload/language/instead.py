"""What to do with what is no folder of transformers' with all that is read: sentences for errors."""

from __future__ import annotations

from pathlib import Path

_HUB = "a model of Hugging Face's hub comes as a folder with `hf download NAME --local-dir FOLDER`"


def name_instead(name: str) -> str:
    """For a name that is neither a model that ships nor a folder."""
    return f"`meshloom generate` also reads a GGUF file, an ONNX file, or a folder: {_HUB}"


def instead(folder: Path) -> str:
    """For a folder without a configuration."""
    if (folder / "adapter_config.json").is_file():
        return (
            "the folder has an adapter (LoRA) alone; save it merged into its model: "
            "model.merge_and_unload().save_pretrained(...), and the tokenizer beside it"
        )
    if file := _first(folder, "*.gguf"):
        return f"name the file itself: {file}"
    return f"name the folder in which transformers' `save_pretrained` has put a model; {_HUB}"


def weights_instead(folder: Path) -> str:
    """For a folder without some file of weights."""
    if _first(folder, "*-of-*.safetensors"):
        return "the weights are in several files; bring all of them, and model.safetensors.index.json, which names them"
    if file := _first(folder, "*.safetensors"):
        return f"if {file.name} has the weights, rename it"
    if file := _first(folder, "*.gguf"):
        return f"name the file itself: {file}"
    pickle = _first(folder, "*.bin")
    return (f"only {pickle.name}, a pickle, which may run code; " if pickle else "") + (
        "save the weights as safetensors: model.save_pretrained(..., safe_serialization=True)"
    )


def tokenizer_instead(folder: Path) -> str:
    """For a folder without a `tokenizer.json`."""
    made_of = next(
        (name for name in ("tokenizer.model", "spiece.model", "vocab.json") if (folder / name).is_file()), ""
    )
    origin = f'"{folder.name}"' if made_of else "..."
    return (
        f"save the fast tokenizer beside the model: AutoTokenizer.from_pretrained({origin})"
        f'.save_pretrained("{folder.name}")' + (made_of and f" makes it of {made_of}")
    )


def pulled(path: Path) -> str:
    """For a file that cannot be read: what brings it, if it only stands for another one; else nothing."""
    try:
        with path.open("rb") as file:
            pointer = file.read(64).startswith(b"version https://git-lfs")
    except OSError:
        return ""
    return "it only stands for a file (Git LFS); `git lfs pull` brings that" if pointer else ""


def _first(folder: Path, pattern: str) -> Path | None:
    """Of the files with such a name."""
    return min(folder.glob(pattern), default=None)
