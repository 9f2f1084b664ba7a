"""The paper's comparison of costs: a training iteration with each normalisation, and Cholesky against ZCA."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from wcgan.core.device import Hardware, find_hardware
from wcgan.core.files import write_atomically
from wcgan.core.processes import Rank
from wcgan.core.terminal import rows_to_markdown
from wcgan.functional._factorisations import WhiteningKind
from wcgan.nets import build_generator
from wcgan.norm import WhiteningColoring2d, WhiteningLayer
from wcgan.report.formats import rows_to_csv
from wcgan.reproduce.timed_iteration import (
    WARM_UP,
    WIDTH_ON_CPU,
    Step,
    build_workbench,
    iteration_config,
    rotated,
    step_to_seconds,
)
from wcgan.runs.config import Config
from wcgan.runs.folder import find_commit

SECONDS, ROUNDS = 600.0, 20
# Name in the table -> the normalisation of a whole iteration; the most important first, in case time runs out.
ITERATIONS = {name: name for name in ("BN", "WC", "WzcaC", "cBN", "cWC", "cWC_sa")}
# Name in the table -> the whitening, timed on its own.
WHITENINGS: dict[str, WhiteningKind] = {"whitening by Cholesky": "cholesky", "whitening by ZCA": "zca"}
# Numerator and denominator of a ratio -> the paper's figure for it.
PAPER: dict[tuple[str, str], str] = {
    ("WC", "BN"): "1.32",
    ("WzcaC", "BN"): "",
    ("WzcaC", "WC"): "more than 3.5",
    ("whitening by ZCA", "whitening by Cholesky"): "more than 11",
    ("cWC", "cBN"): "",
    ("cWC_sa", "cBN"): "",
}
PAPER_MS = {"BN": 620.0, "WC": 820.0}
NOTES = (
    "Times are medians with quartiles, over rounds in which all take turns; ratios are computed round by round.",
    "Iterations use synthetic images. Whitening alone is forward and backward through all the generator's layers, "
    "with as many images as in its update.",
    "The paper's times are for a Titan X; it says that cWC and cWC_sa cost basically the same as WC.",
)


@dataclass(frozen=True)
class Cost:
    """A line of the table, with median, lower and upper quartile of times and ratios."""

    name: str
    rounds: int
    ms: float
    ms_lower: float
    ms_upper: float
    over: str = ""
    """What it is compared with; empty for none."""
    ratio: float | None = None
    ratio_lower: float | None = None
    ratio_upper: float | None = None
    paper_ms: float | None = None
    paper_ratio: str = ""


def measure_and_write(folder: Path, settings: Sequence[str], say: Callable[[str], None], rounds: int = ROUNDS) -> Path:
    """Measure, and write `table.md`, `table.csv` and `table.json` into a folder -> `table.md`.

    Args:
        folder: where to write; created if needed.
        settings: `section.field=value`, for everything measured; on a CPU, widths are 32 unless they are set here.
        say: called with progress messages.
        rounds: maximum number of rounds.
    """
    configs = overhead_configs(settings)
    hardware = find_hardware(configs["BN"].train)
    folder.mkdir(parents=True, exist_ok=True)
    costs = times_to_costs(measure(configs, SECONDS, say, rounds))
    facts = describe(configs["BN"], hardware, settings)
    texts = {
        "json": json.dumps({**facts, "notes": NOTES, "costs": [asdict(cost) for cost in costs]}, indent=1) + "\n",
        "csv": rows_to_csv([field.name for field in fields(Cost)], map(asdict, costs)),
        "md": costs_to_markdown(costs, facts),
    }
    for suffix, text in texts.items():
        write_atomically(folder / f"table.{suffix}", text.encode())
    return folder / "table.md"


def overhead_configs(settings: Sequence[str]) -> dict[str, Config]:
    """A config for each of `ITERATIONS`; they differ in the normalisation and in the discriminator's head."""
    device = find_hardware(iteration_config("BN", None, settings).train).device
    chosen = any(setting.strip().startswith(("generator.widths", "discriminator.widths")) for setting in settings)
    width = WIDTH_ON_CPU if device.type == "cpu" and not chosen else None
    configs = {name: iteration_config(variant, width, settings) for name, variant in ITERATIONS.items()}
    if any(config.generator.normalization != ITERATIONS[name] for name, config in configs.items()):
        raise ValueError("the overhead compares normalisations: leave generator.normalization out of the settings")
    return configs


def measure(
    configs: Mapping[str, Config], seconds: float, say: Callable[[str], None], rounds: int = ROUNDS
) -> dict[str, list[float]]:
    """Time an iteration of each config and each of `WHITENINGS` in turn -> seconds per round.

    Once half of the time is used, only those with a time in the paper are prepared. After the first round, no round
    starts that would not end in time.
    """
    began, (config, *_) = time.monotonic(), configs.values()
    hardware = find_hardware(config.train)
    prepare: dict[str, Callable[[], Step]] = {
        **{name: partial(prepare_whitening, kind, config, hardware) for name, kind in WHITENINGS.items()},
        **{name: partial(prepare_iteration, config, say) for name, config in configs.items()},
    }
    steps: dict[str, Step] = {}
    for name, make in prepare.items():
        if name not in PAPER_MS and time.monotonic() - began > seconds / 2:
            say(f"{name} is left out: half of {seconds:.0f} seconds went by before its turn")
            continue
        say(f"preparing {name}")
        steps[name] = make()
    times: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(rounds if steps else 0):
        start = time.monotonic()
        for name in rotated(list(steps), turn):
            times[name].append(step_to_seconds(steps[name], turn, hardware.device, Rank()))
        now = time.monotonic()
        say(f"round {turn + 1} of at most {rounds}: {now - start:.1f} s")
        if 2 * now - start - began > seconds:
            break
    return times


def prepare_iteration(config: Config, say: Callable[[str], None]) -> Step:
    """An iteration, compiled, captured and warmed up."""
    bench = build_workbench(config, Rank(), say)
    step = bench.step(config)
    for number in range(bench.warm_up):
        step(number)
    return step


def prepare_whitening(whitening: WhiteningKind, config: Config, hardware: Hardware) -> Step:
    """Forward and backward through whitening alone, at the size of each of the generator's layers."""
    layout = torch.channels_last if hardware.channels_last else torch.contiguous_format
    random = torch.Generator(hardware.device).manual_seed(0)

    def draw(shape: tuple[int, ...]) -> Tensor:
        values = torch.randn(shape, generator=random, device=hardware.device)
        return values.to(hardware.precision, memory_format=layout)

    places = []
    for shape in whitened_shapes(config):
        layer = WhiteningColoring2d(shape[1], whitening=whitening, coloring="none").to(hardware.device)
        places.append((layer, draw(shape).requires_grad_(), draw(shape)))

    def step(_: int) -> None:
        for layer, x, cotangent in places:
            torch.autograd.grad(layer(x), x, cotangent)

    for number in range(WARM_UP):
        step(number)
    return step


def whitened_shapes(config: Config) -> list[tuple[int, int, int, int]]:
    """The shapes of the inputs of the generator's normalisation layers during its update."""
    generator = build_generator(config.generator)
    shapes: list[tuple[int, int, int, int]] = []
    for layer in generator.modules():
        if isinstance(layer, WhiteningLayer):
            layer.register_forward_pre_hook(
                lambda _, given: shapes.append((config.train.generator_batch, *given[0].shape[1:]))
            )
    labels = torch.arange(2) if config.generator.conditional else None
    with torch.no_grad():
        generator(torch.randn(2, config.generator.noise), labels)
    return shapes


def times_to_costs(times: Mapping[str, Sequence[float]]) -> list[Cost]:
    """The lines of the table: times without a comparison, and each comparison in `PAPER`."""
    compared = {name for name, _ in PAPER}
    alone = [(name, "") for name in times if name not in compared]
    pairs = [(name, over) for name, over in PAPER if name in times and over in times]
    costs = []
    order = [*ITERATIONS, *WHITENINGS]
    for name, over in sorted([*alone, *pairs], key=lambda pair: order.index(pair[0])):
        ms = quartiles([1e3 * seconds for seconds in times[name]])
        ratio: tuple[float | None, float | None, float | None] = (None, None, None)
        if over:
            ratio = quartiles([a / b for a, b in zip(times[name], times[over], strict=True)])
        paper = (PAPER_MS.get(name), PAPER.get((name, over), ""))
        costs.append(Cost(name, len(times[name]), *ms, over, *ratio, *paper))
    return costs


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Median, lower and upper quartile.

    Example:
        >>> quartiles([4.0, 1.0, 3.0, 2.0, 5.0])
        (3.0, 2.0, 4.0)
    """
    lower, middle, upper = torch.tensor(values, dtype=torch.float64).quantile(torch.tensor([0.25, 0.5, 0.75]).double())
    return middle.item(), lower.item(), upper.item()


def describe(config: Config, hardware: Hardware, settings: Sequence[str]) -> dict[str, str]:
    """What was measured, and on which hardware."""
    train, widths, theirs = config.train, _widths(config), _widths(iteration_config("BN", None, ()))
    return {
        **hardware.describe(),
        "widths": widths if widths == theirs else f"{widths} (the paper's: {theirs})",
        "updates": f"{train.critic_steps} of D on {train.batch} + {train.batch}, 1 of G on {train.generator_batch}",
        "settings": ", ".join(settings) or "none",
        "commit": find_commit() or "unknown",
    }


def _widths(config: Config) -> str:
    networks = {"generator": config.generator.widths, "discriminator": config.discriminator.widths}
    return "; ".join(f"{name} {', '.join(map(str, widths))}" for name, widths in networks.items())


def costs_to_markdown(costs: Sequence[Cost], facts: Mapping[str, str]) -> str:
    rows = []
    for cost in costs:
        ms = f"{cost.ms:.2f} ({cost.ms_lower:.2f} to {cost.ms_upper:.2f})"
        ratio = "" if cost.ratio is None else f"{cost.ratio:.2f} ({cost.ratio_lower:.2f} to {cost.ratio_upper:.2f})"
        paper_ms = "" if cost.paper_ms is None else f"{cost.paper_ms:.0f}"
        rows.append((cost.name, ms, str(cost.rounds), ratio, cost.over, paper_ms, cost.paper_ratio))
    right = ("ms", "rounds", "ratio", "paper, ms", "paper, ratio")
    table = rows_to_markdown(("", "ms", "rounds", "ratio", "to", "paper, ms", "paper, ratio"), rows, right)
    described = [f"- {name.replace('_', ' ')}: {value}" for name, value in facts.items()]
    return "\n".join(["# What whitening costs", "", *table, "", *described, "", *NOTES, ""])
