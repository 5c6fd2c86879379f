"""Tiny decoders as PyTorch's two exporters write them as ONNX files, for the tests.

    python -m venv decoders && decoders/bin/pip install torch==2.13.0 transformers==5.24.0 onnx onnxscript
    decoders/bin/python scripts/tiny_onnx_decoders.py tests/sched/workload/decoders tests/sched/workload/onnx_decoders

exports some of the folders that `scripts/tiny_decoders.py` has written: without a cache, and without what exporters say
beside the graph. Nothing of Meshloom is used.
"""

from __future__ import annotations

import argparse
import types
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import masking_utils

#: Folder and exporter: TorchScript's names nodes by their modules, the newer one gives numbers.
FILES = (("llama", "script"), ("gemma", "dynamo"), ("opt", "dynamo"))


def exported(folder: Path, exporter: str, path: Path) -> None:
    """Writes the file of a folder."""
    import onnx

    model: Any = transformers.AutoModelForCausalLM.from_pretrained(
        folder, attn_implementation="eager", dtype=torch.float32
    ).eval()
    whole = model.forward
    model.forward = types.MethodType(lambda self, input_ids: whole(input_ids=input_ids, use_cache=False).logits, model)
    tokens, names = torch.arange(3, 12)[None], {"input_names": ["input_ids"], "output_names": ["logits"]}
    if exporter == "dynamo":
        shapes = {"input_ids": {1: torch.export.Dim.DYNAMIC}}
        torch.onnx.export(model, f=path, kwargs={"input_ids": tokens}, dynamo=True, dynamic_shapes=shapes, **names)
    else:
        axes = {"input_ids": {1: "tokens"}, "logits": {1: "tokens"}}
        torch.onnx.export(model, (tokens,), path, dynamo=False, opset_version=17, dynamic_axes=axes, **names)
    file = onnx.load(path)
    for each in (file, file.graph, *file.graph.node, *file.graph.value_info):
        del each.metadata_props[:]
        each.doc_string = ""
    del file.graph.value_info[:]
    onnx.save(file, path)
    path.with_name(f"{path.name}.data").unlink(missing_ok=True)


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("decoders", type=Path)
    arguments.add_argument("folder", type=Path)
    chosen = arguments.parse_args()
    chosen.folder.mkdir(exist_ok=True)
    masking_utils.find_packed_sequence_indices = lambda *some, **more: None  # a step that is none of ONNX's
    for name, exporter in FILES:
        exported(chosen.decoders / name, exporter, chosen.folder / f"{name}_{exporter}.onnx")
