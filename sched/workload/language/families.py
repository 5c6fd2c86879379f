"""Which families of decoders are read, by the `model_type` of their configurations, and why some are not."""

from __future__ import annotations

from collections.abc import Mapping

from .families_distance import Bloom, Mpt
from .families_layer import Cohere, Falcon, GptJ, GptNeoX, Olmo, Phi, StableLm, StarCoder2
from .families_learned import Gpt2, GptBigCode, GptNeo, Opt
from .families_rms import Gemma, Gemma2, Gemma3, Granite, Llama, Olmo2, Phi3, Qwen3, SmolLm3
from .family import Family

FAMILIES: Mapping[str, type[Family]] = {
    "bloom": Bloom,
    "cohere": Cohere,
    "falcon": Falcon,
    "gemma": Gemma,
    "gemma2": Gemma2,
    "gemma3_text": Gemma3,
    "gpt2": Gpt2,
    "gpt_bigcode": GptBigCode,
    "gpt_neo": GptNeo,
    "gpt_neox": GptNeoX,
    "gptj": GptJ,
    "granite": Granite,
    "llama": Llama,
    "mistral": Llama,
    "mpt": Mpt,
    "olmo": Olmo,
    "olmo2": Olmo2,
    "olmo3": Olmo2,
    "opt": Opt,
    "phi": Phi,
    "phi3": Phi3,
    "qwen2": Llama,
    "qwen3": Qwen3,
    "smollm3": SmolLm3,
    "stablelm": StableLm,
    "starcoder2": StarCoder2,
}
_EXPERTS = "its layers have experts, which are read from an .npz file only (scripts/train_language.py)"
#: What a chip has nothing for.
REFUSED: Mapping[str, str] = {
    "gemma3": "it reads pictures, too; save its text model alone (model.language_model, gemma3_text)",
    "mixtral": _EXPERTS,
    "qwen2_moe": _EXPERTS,
    "qwen3_moe": _EXPERTS,
}
