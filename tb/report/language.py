"""A generated text as people see its figures: a table on the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from ..results.language import ExpertFigures, LanguageResults, PhaseFigures


_BYTE = 8


def print_language(results: LanguageResults, screen: Console) -> None:
    """The figures of a generated text, the float model's text, and what was wrong."""
    from rich.table import Table

    table = Table("", f"{results.model}, {results.weights:,} weights, on {results.chip}")
    if results.ended:
        table.add_row("end", "the model has ended the text: its last token is one that its folder names for that")
    table.add_row("float model", repr(results.float_text))
    if results.agreement is not None:
        table.add_row("agreement", f"{results.agreement:.1%} of the tokens are the float model's behind the same text")
    table.add_row(
        "perplexity",
        f"{results.perplexity:.3f} of text not trained with; in floating point {results.float_perplexity:.3f}",
    )
    table.add_row("prefill", _phase(results.prefill, results.prefill_ms, "in all"))
    table.add_row("decode", _phase(results.decode, results.decode_ms, "a token"))
    if results.experts is not None:
        for layer, tokens in zip(results.experts.layers, results.experts.choices, strict=True):
            table.add_row(f"experts, layer {layer}", "tokens of each: " + ", ".join(f"{each:,}" for each in tokens))
        table.add_row("experts", _experts(results, results.experts))
    if results.weight_bits != _BYTE:
        others = f", but {_BYTE} bits those of experts" if results.experts is not None else ""
        table.add_row("weights", f"{results.weight_bits} bits each, and a scale for each group{others}")
    if results.speculate:
        table.add_row("guesses", _guesses(results))
    table.add_row("cache", f"{results.cache_bytes:,} bytes of int8 keys and values; {results.cache}")
    table.add_row("bytes", f"{results.bytes_checked:,} compared, {results.mismatches:,} wrong")
    if results.simulator:
        table.add_row("CPU seconds", f"{results.cpu_seconds:,.1f} of simulating")
    screen.print(table)
    for why in results.reasons:
        screen.print(why, style="red", markup=False, soft_wrap=True)


def _guesses(results: LanguageResults) -> str:
    steps, tokens = results.decode.steps, results.decode.tokens
    text = f"{results.tokens_accepted:,} of {results.tokens_guessed:,} guessed tokens were right"
    return text + (f"; {tokens / steps:.2f} tokens a step" if steps else "")


def _experts(results: LanguageResults, experts: ExpertFigures) -> str:
    phases = [figures for figures in (results.prefill, results.decode) if figures.steps]
    cycles = sum(f.model_cycles if f.rtl_cycles is None else f.rtl_cycles for f in phases)
    tokens, trips = sum(figures.tokens for figures in phases), sum(figures.round_trips for figures in phases)
    if not tokens:
        return "no tokens"
    busiest, fetches = max(experts.busiest), sum(map(sum, experts.fetched))
    bytes_read, inside = (sum(getattr(f, name) for f in phases) for name in ("expert_bytes", "expert_cycles"))
    waits = trips * experts.round_trip_cycles
    return (
        f"{experts.top} of {len(experts.choices[0])} a token, the busiest {busiest:.2f} times the mean; {fetches:,} "
        f"fetched, {bytes_read / tokens:,.0f} bytes a token (all that there are: {experts.weight_bytes:,}); "
        f"{inside / cycles:.0%} of the cycles in their programs; {trips:,} round trips of the host, besides, of "
        f"{experts.round_trip_cycles:,} cycles at least: {waits / cycles:.1%}"
    )


def _phase(figures: PhaseFigures, milliseconds: float | None, of: str) -> str:
    if figures.cycles_per_token is None:
        return "no tokens"
    text = f"{figures.tokens:,} tokens in {figures.steps:,} steps, {figures.cycles_per_token:,.0f} cycles a token"
    cycles = figures.model_cycles if figures.rtl_cycles is None else figures.rtl_cycles
    text += f" (model {figures.model_cycles / figures.tokens:,.0f}; roof {figures.least_cycles / cycles:.0%})"
    text += f", {figures.dram_bytes / figures.tokens:,.0f} bytes of DRAM a token"
    if figures.host_bytes is not None:
        text += f", {figures.host_bytes / figures.steps:,.0f} bytes from the host a step"
    if figures.microjoules is not None:
        text += f", {figures.microjoules / figures.tokens:,.1f} µJ a token (estimate)"
    return text if milliseconds is None else f"{text}, {milliseconds:,.4g} ms {of}"
