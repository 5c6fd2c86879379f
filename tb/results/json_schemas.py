"""JSON Schemas (draft 2020-12) of what people and other programs write or read: chips, schedules, scenarios, sweeps,
results, explanations, comparisons, boards of an arena, replayed traffic.

They follow from the models that read these files, and are what editors complete and check with. What spans several
fields (a floorplan with one host, addresses inside their memory) no schema says: reading the file does.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from meshloom.hw.spec.config import ChipConfig, TileKind
from meshloom.sched.support.files import write_atomically

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def chip() -> dict[str, Any]:
    """Of a chip's TOML file, where rows of the floorplan are drawn as text and the array may be left out."""
    schema = ChipConfig.model_json_schema()
    kind = "|".join("\\." if each is TileKind.NONE else each.value for each in TileKind)
    fields = schema["properties"]
    fields["floorplan"] = {
        "description": f"Rows of the mesh, y growing downwards: {', '.join(TileKind)} with spaces between.",
        "type": "array",
        "minItems": 1,
        "maxItems": 16,
        "items": {"type": "string", "pattern": f"^\\s*({kind})(\\s+({kind}))*\\s*$"},
    }
    for name in ("rows", "cols"):
        del fields[name]["default"]  # it is `lanes`
        fields[name]["description"] = "Processing elements of a core's array; `lanes` at most, and by default."
    schema["$defs"].pop(TileKind.__name__)
    return schema


def schedule() -> dict[str, Any]:
    """Of a schedule's JSON file, as a scheduler in any language may write it."""
    from meshloom.sched.ir.schedule import Schedule

    return Schedule.model_json_schema()


def results() -> dict[str, Any]:
    """Of the JSON file that a run writes, with the computed fields."""
    from .schema import Results

    return Results.model_json_schema(mode="serialization")


def scenario() -> dict[str, Any]:
    """Of a scenario's TOML file."""
    from meshloom.sched.workload.scenario import json_schema

    return json_schema()


def scenario_results() -> dict[str, Any]:
    """Of the JSON file that serving a scenario writes, with the computed fields."""
    from .scenario import ScenarioResults

    return ScenarioResults.model_json_schema(mode="serialization")


def texts() -> dict[str, Any]:
    """Of a TOML file of texts to be served."""
    from meshloom.sched.workload.texts import json_schema

    return json_schema()


def token_results() -> dict[str, Any]:
    """Of the JSON file that serving texts writes, with the computed fields."""
    from .tokens import TokenResults

    return TokenResults.model_json_schema(mode="serialization")


def explanations() -> dict[str, Any]:
    """Of what `meshloom explain --json` writes, with the computed fields."""
    from .explanation import Explanations

    return Explanations.model_json_schema(mode="serialization")


def comparisons() -> dict[str, Any]:
    """Of what `meshloom compare --json` writes, with the computed fields."""
    from .comparison import Comparisons

    return Comparisons.model_json_schema(mode="serialization")


def rankings() -> dict[str, Any]:
    """Of what `meshloom compare --json` writes for more than two runs, with the computed fields."""
    from .ranking import Rankings

    return Rankings.model_json_schema(mode="serialization")


def listings() -> dict[str, Any]:
    """Of what the commands that list things write with `--json`."""
    from pydantic import TypeAdapter

    from .listings import ChipList, DeviceList, RunList, SchedulerList, StudyList, WorkloadList

    lists = ChipList | SchedulerList | WorkloadList | DeviceList | StudyList | RunList
    return TypeAdapter[Any](lists).json_schema(mode="serialization")


def energy() -> dict[str, Any]:
    """Of a table of energies (TOML)."""
    from .energy import EnergyTable

    return EnergyTable.model_json_schema()


def language_results() -> dict[str, Any]:
    """Of the JSON file that generating text writes, with the computed fields."""
    from .language import LanguageResults

    return LanguageResults.model_json_schema(mode="serialization")


def training_results() -> dict[str, Any]:
    """Of the JSON file that training writes, with the computed fields."""
    from .training import TrainingResults

    return TrainingResults.model_json_schema(mode="serialization")


def arena() -> dict[str, Any]:
    """Of what `meshloom arena --json` writes, with the computed fields."""
    from .arena import ArenaBoard

    return ArenaBoard.model_json_schema(mode="serialization")


def noc_replay() -> dict[str, Any]:
    """Of what `meshloom noc replay --json` writes, with the computed fields."""
    from .noc import NocReplay

    return NocReplay.model_json_schema(mode="serialization")


def cache() -> dict[str, Any]:
    """Of what `meshloom cache show` and `meshloom cache clean` write with `--json`."""
    from pydantic import TypeAdapter

    from .cache import CacheContents, CacheRemoval

    return TypeAdapter[Any](CacheContents | CacheRemoval).json_schema(mode="serialization")


def health() -> dict[str, Any]:
    """Of what `meshloom doctor --json` writes, with the computed fields."""
    from .health import Health

    return Health.model_json_schema(mode="serialization")


def sweep() -> dict[str, Any]:
    """Of a sweep's TOML file."""
    from .sweep import json_schema

    return json_schema()


SCHEMAS = {
    "chip": chip,
    "schedule": schedule,
    "results": results,
    "scenario": scenario,
    "scenario_results": scenario_results,
    "texts": texts,
    "token_results": token_results,
    "training_results": training_results,
    "language_results": language_results,
    "sweep": sweep,
    "explanations": explanations,
    "comparisons": comparisons,
    "rankings": rankings,
    "listings": listings,
    "arena": arena,
    "noc_replay": noc_replay,
    "health": health,
    "cache": cache,
    "energy": energy,
}


def text(name: str) -> str:
    """The schema of that name, as its file has it."""
    values = {"$schema": DIALECT, **SCHEMAS[name]()}
    return json.dumps(values, indent=2, ensure_ascii=False) + "\n"


def write(folder: Path) -> list[Path]:
    """Writes `<name>.schema.json` of each into a folder. Raises WriteError."""
    paths = [folder / f"{name}.schema.json" for name in SCHEMAS]
    for name, path in zip(SCHEMAS, paths, strict=True):
        write_atomically(path, text(name))
    return paths
