"""Trains the small language model that ships (`shakespeare`) and writes it as `meshloom generate` reads it.

    python scripts/train_language.py TEXT MODEL.npz [--steps N]
    python scripts/train_language.py TEXT sched/workload/data/shakespeare.npz

Needs PyTorch, which nothing else here does: install it somewhere else. TEXT is a text file; its last tenth is held out.
The file of the model has weights as 16-bit floats, the vocabulary, the tenth's first characters (for the perplexity),
and some of the rest (for the steps of the integers).
"""

from __future__ import annotations

import argparse
import hashlib
import math
import sys
from pathlib import Path

import numpy as np
import torch
from page import DATA, write_page
from torch import Tensor, nn
from torch.nn import functional

LAYERS, WIDTH, HEADS, HIDDEN, CONTEXT = 3, 128, 4, 512, 128
BATCH, RATE, WARM = 24, 4e-3, 60
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
Training: {steps:,} steps of {batch} windows, about 14 minutes of one thread. Cross-entropy per character over 200
windows of the tenth that was held out: {loss:.3f}; guessing has {guess:.3f}.
"""


def normalised(x: Tensor) -> Tensor:
    """`x` over its root mean square; no gains: the weights behind it have them."""
    return functional.rms_norm(x, (x.shape[-1],), eps=1e-6)


class Block(nn.Module):
    """Attention and two layers with a ReLU between, each with a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        self.up, self.down = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH)
        for layer in (self.o, self.down):
            nn.init.normal_(layer.weight, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        y = normalised(x)
        heads = [f(y).unflatten(-1, (HEADS, -1)).transpose(1, 2) for f in (self.q, self.k, self.v)]
        shared = functional.scaled_dot_product_attention(heads[0], heads[1], heads[2], is_causal=True)
        x = x + self.o(shared.transpose(1, 2).flatten(2))
        return x + self.down(functional.relu(self.up(normalised(x))))


class Model(nn.Module):
    """Characters to scores of the next one; the embedding is also the last layer."""

    def __init__(self, characters: int) -> None:
        super().__init__()
        self.embedding, self.position = nn.Embedding(characters, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.gain = nn.Parameter(torch.ones(WIDTH))
        nn.init.normal_(self.embedding.weight, std=0.1)
        nn.init.normal_(self.position.weight, std=0.05)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.blocks(self.embedding(tokens) + self.position.weight[: tokens.shape[1]])
        return (normalised(x) * self.gain) @ self.embedding.weight.T


def loss_of(model: Model, windows: Tensor) -> Tensor:
    """Mean cross-entropy of the next character, in nats. `windows`: [n, CONTEXT + 1]."""
    scores = model(windows[:, :-1])
    return functional.cross_entropy(scores.flatten(0, 1), windows[:, 1:].flatten())


def trained(tokens: Tensor, held: Tensor, characters: int, steps: int) -> tuple[Model, float]:
    """The model after so many steps, and its loss over text that it has not seen, which it prints now and then."""
    model = Model(characters)
    optimiser = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.98), weight_decay=0.05)
    windows = held[: len(held) // (CONTEXT + 1) * (CONTEXT + 1)].reshape(-1, CONTEXT + 1)[:200]
    unseen = math.nan
    for step in range(steps):
        for group in optimiser.param_groups:
            group["lr"] = RATE * min(1, (step + 1) / WARM) * (0.02 + 0.98 * (1 - step / steps))
        starts = torch.randint(len(tokens) - CONTEXT - 1, (BATCH,))
        batch = torch.stack([tokens[s : s + CONTEXT + 1] for s in starts])
        loss = loss_of(model, batch)
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        if step % 200 == 199 or step == steps - 1:
            with torch.no_grad():
                unseen = loss_of(model, windows).item()
            sys.stdout.write(f"step {step + 1}: {loss.item():.3f}, held out {unseen:.3f}\n")
    return model, unseen


def arrays_of(model: Model) -> dict[str, np.ndarray]:
    """Weights by name, as the reader wants them: [outputs, inputs]."""
    arrays = {"embedding": model.embedding.weight, "position": model.position.weight}
    arrays["output"] = model.embedding.weight * model.gain
    for number, block in enumerate(model.blocks):
        for name, array in block.named_parameters():
            arrays[f"{number}/{name}"] = array
    return {name: array.detach().numpy().astype(np.float16) for name, array in arrays.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("--steps", type=int, default=1900)
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    text = options.text.read_text()
    vocabulary = "".join(sorted(set(text)))
    number = {character: index for index, character in enumerate(vocabulary)}
    tokens = torch.tensor([number[character] for character in text])
    cut = len(tokens) * 9 // 10
    model, loss = trained(tokens[:cut], tokens[cut:], len(vocabulary), options.steps)
    np.savez_compressed(
        options.model,
        vocabulary=np.array(vocabulary),
        heads=np.array(HEADS),
        held_out=np.array(text[cut : cut + HELD_OUT]),
        calibration=np.array(text[:CALIBRATION]),
        allow_pickle=False,
        **arrays_of(model),
    )
    if options.model.resolve().parent == DATA:
        weights = sum(array.numel() for array in model.parameters())
        write_section(options.model.name, options.text, weights, options.steps, loss, len(vocabulary))


def write_section(name: str, text: Path, weights: int, steps: int, loss: float, characters: int) -> None:
    """Says on the page of the data what the model was made of."""
    section = SECTION.format(
        digest=hashlib.sha256(text.read_bytes()).hexdigest(), weights=weights, layers=LAYERS, width=WIDTH, heads=HEADS,
        context=CONTEXT, steps=steps, batch=BATCH, loss=loss, guess=math.log(characters),
    )  # fmt: skip
    write_page(DATA, {name: (section, ())})


if __name__ == "__main__":
    main()
