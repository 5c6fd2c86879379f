"""Trains the small language models that ship and writes them as `meshloom generate` reads them: `shakespeare`, and
`shakespeare_experts`, whose feed-forward parts are mixtures of experts. The name of the file says which.

    python scripts/train_language.py TEXT MODEL.npz [--steps N]
    python scripts/train_language.py TEXT sched/workload/data/shakespeare.npz
    python scripts/train_language.py TEXT sched/workload/data/shakespeare_experts.npz

Needs PyTorch, which nothing else here does: install it somewhere else. TEXT is a text file; its last tenth is held out.
The file of the model has weights as 16-bit floats, the vocabulary, the tenth's first characters (for the perplexity),
and some of the rest (for the steps of the integers).
"""

from __future__ import annotations

import argparse
import hashlib
import math
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from page import DATA, write_page
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class Shape:
    """A model's sizes, and how long it is trained: `hidden` numbers between the two products of a layer, or of each of
    its `experts`, of which a token takes `top`; `steps` in about so many `minutes` of one thread."""

    layers: int
    width: int
    hidden: int
    steps: int
    minutes: int
    experts: int = 0
    top: int = 0
    heads: int = 4
    context: int = 128


SHAPES = {
    "shakespeare": Shape(3, 128, 512, 1900, 14),
    "shakespeare_experts": Shape(2, 64, 128, 3000, 4, experts=8, top=2),
}
BATCH, RATE, WARM = 24, 4e-3, 60
#: Weight of the loss that keeps experts equally busy.
BALANCE = 0.01
#: Characters of the text that go into the file.
HELD_OUT, CALIBRATION = 2048, 1024

#: What SOURCES.md says of it.
SECTION = """\
A character-level transformer (`sched/workload/language`), trained here by `scripts/train_language.py`.
Text: Shakespeare's plays in part, public domain (the author died in 1616), as A. Karpathy put them together for
char-rnn: GitHub `karpathy/char-rnn` (MIT), commit `6f9487a6fe5b420b7ca9afb0d7c078e37c1d1b4e`,
`data/tinyshakespeare/input.txt`, sha256 `{digest}`.
The file holds 1,024 characters of the text for calibration and 2,048 of its last tenth, which was held out.

{weights:,} weights as 16-bit floats: {layers} layers, width {width}, {heads} heads, context {context}.
{experts}Training: {steps:,} steps of {batch} windows, about {minutes} minutes of one thread.
Cross-entropy per character over 200 windows of the tenth that was held out: {loss:.3f}; guessing has {guess:.3f}.
"""
#: And of one with experts.
EXPERTS = """\
Each layer has {count} experts of width {hidden}, of which a token takes {top}; its gates are a softmax of their scores.
"""


def normalised(x: Tensor) -> Tensor:
    """`x` over its root mean square; no gains: the weights behind it have them."""
    return functional.rms_norm(x, (x.shape[-1],), eps=1e-6)


class Mixture(nn.Module):
    """Experts: two products with a ReLU between, without biases. Each token takes those with the highest scores, by
    gates that are a softmax of these scores. `balance`: of the latest call, 1 if all experts were equally busy (Fedus
    et al., "Switch Transformers", 2022, equation 4)."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.top = shape.top
        self.router = nn.Linear(shape.width, shape.experts, bias=False)
        scale = shape.width**-0.5
        self.up = nn.Parameter((torch.rand(shape.experts, shape.hidden, shape.width) * 2 - 1) * scale)
        self.down = nn.Parameter(torch.randn(shape.experts, shape.width, shape.hidden) * 0.02)
        self.balance = torch.zeros(())

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.flatten(0, -2)
        scores = self.router(tokens)
        best, chosen = scores.topk(self.top, dim=-1)
        gates, experts = best.softmax(-1), scores.shape[-1]
        busy = functional.one_hot(chosen, experts).float().mean((0, 1))
        self.balance = experts * (busy * scores.softmax(-1).mean(0)).sum()
        result = torch.zeros_like(tokens)
        for expert in range(experts):
            rows, places = (chosen == expert).nonzero(as_tuple=True)
            hidden = functional.relu(tokens[rows] @ self.up[expert].T) * gates[rows, places, None]
            result = result.index_add(0, rows, hidden @ self.down[expert].T)
        return result.view_as(x)


class Block(nn.Module):
    """Attention and two layers with a ReLU between, or experts of such layers, each with a residual."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        width = shape.width
        self.heads = shape.heads
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
        nn.init.normal_(self.o.weight, std=0.02)
        self.mixture = Mixture(shape) if shape.experts else None
        if not shape.experts:
            self.up, self.down = nn.Linear(width, shape.hidden), nn.Linear(shape.hidden, width)
            nn.init.normal_(self.down.weight, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        y = normalised(x)
        heads = [f(y).unflatten(-1, (self.heads, -1)).transpose(1, 2) for f in (self.q, self.k, self.v)]
        shared = functional.scaled_dot_product_attention(heads[0], heads[1], heads[2], is_causal=True)
        x = x + self.o(shared.transpose(1, 2).flatten(2))
        y = normalised(x)
        return x + (self.mixture(y) if self.mixture else self.down(functional.relu(self.up(y))))


class Model(nn.Module):
    """Characters to scores of the next one; the embedding is also the last layer."""

    def __init__(self, shape: Shape, characters: int) -> None:
        super().__init__()
        self.context = shape.context
        self.embedding = nn.Embedding(characters, shape.width)
        self.position = nn.Embedding(shape.context, shape.width)
        self.blocks = nn.Sequential(*(Block(shape) for _ in range(shape.layers)))
        self.gain = nn.Parameter(torch.ones(shape.width))
        nn.init.normal_(self.embedding.weight, std=0.1)
        nn.init.normal_(self.position.weight, std=0.05)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.blocks(self.embedding(tokens) + self.position.weight[: tokens.shape[1]])
        return (normalised(x) * self.gain) @ self.embedding.weight.T

    @property
    def balance(self) -> Tensor:
        """Sum over the mixtures of the latest call."""
        return sum((block.mixture.balance for block in self.blocks if block.mixture), torch.zeros(()))


def loss_of(model: Model, windows: Tensor) -> Tensor:
    """Mean cross-entropy of the next character, in nats. `windows`: [n, context + 1]."""
    scores = model(windows[:, :-1])
    return functional.cross_entropy(scores.flatten(0, 1), windows[:, 1:].flatten())


def trained(shape: Shape, tokens: Tensor, held: Tensor, characters: int, steps: int) -> tuple[Model, float]:
    """The model after so many steps, and its loss over text that it has not seen, which it prints now and then."""
    model, size = Model(shape, characters), shape.context + 1
    optimiser = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.98), weight_decay=0.05)
    windows = held[: len(held) // size * size].reshape(-1, size)[:200]
    unseen = math.nan
    for step in range(steps):
        for group in optimiser.param_groups:
            group["lr"] = RATE * min(1, (step + 1) / WARM) * (0.02 + 0.98 * (1 - step / steps))
        starts = torch.randint(len(tokens) - size, (BATCH,))
        batch = torch.stack([tokens[s : s + size] for s in starts])
        loss = loss_of(model, batch)
        optimiser.zero_grad()
        (loss + BALANCE * model.balance).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        if step % 200 == 199 or step == steps - 1:
            with torch.no_grad():
                unseen = loss_of(model, windows).item()
            sys.stdout.write(f"step {step + 1}: {loss.item():.3f}, held out {unseen:.3f}\n")
            sys.stdout.flush()
    return model, unseen


def arrays_of(model: Model) -> dict[str, np.ndarray]:
    """Weights by name, as the reader wants them: [outputs, inputs], of experts [experts, outputs, inputs]."""
    arrays = {"embedding": model.embedding.weight, "position": model.position.weight}
    arrays["output"] = model.embedding.weight * model.gain
    for number, block in enumerate(model.blocks):
        for name, array in block.named_parameters():
            entry = name.removeprefix("mixture.")
            arrays[f"{number}/{entry}" + ".weight" * (entry in ("up", "down"))] = array
    return {name: array.detach().numpy().astype(np.float16) for name, array in arrays.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("--steps", type=int)
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    shape = SHAPES.get(options.model.stem)
    if shape is None:
        parser.error(f"{options.model}: the name says which model it is; take one of {', '.join(SHAPES)}")
    text, steps = options.text.read_text(), options.steps or shape.steps
    vocabulary = "".join(sorted(set(text)))
    number = {character: index for index, character in enumerate(vocabulary)}
    tokens = torch.tensor([number[character] for character in text])
    cut = len(tokens) * 9 // 10
    model, loss = trained(shape, tokens[:cut], tokens[cut:], len(vocabulary), steps)
    top = {"top": np.array(shape.top)} if shape.experts else {}
    np.savez_compressed(
        options.model,
        vocabulary=np.array(vocabulary),
        heads=np.array(shape.heads),
        held_out=np.array(text[cut : cut + HELD_OUT]),
        calibration=np.array(text[:CALIBRATION]),
        allow_pickle=False,
        **top,
        **arrays_of(model),
    )
    if options.model.resolve().parent == DATA:
        weights = sum(array.numel() for array in model.parameters())
        write_section(options.model.name, options.text, shape, weights, steps, loss, len(vocabulary))


def write_section(name: str, text: Path, shape: Shape, weights: int, steps: int, loss: float, characters: int) -> None:
    """Says on the page of the data what the model was made of."""
    experts = EXPERTS.format(count=shape.experts, hidden=shape.hidden, top=shape.top) if shape.experts else ""
    section = SECTION.format(
        digest=hashlib.sha256(text.read_bytes()).hexdigest(), weights=weights, layers=shape.layers, width=shape.width,
        heads=shape.heads, context=shape.context, experts=experts, steps=steps, batch=BATCH, minutes=shape.minutes,
        loss=loss, guess=math.log(characters),
    )  # fmt: skip
    write_page(DATA, {name: (section, ())})


if __name__ == "__main__":
    main()
