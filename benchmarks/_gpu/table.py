"""The report of `gpu.py` as a table: each measurement with its baseline and its target."""

from dataclasses import dataclass
from typing import Any

# The baseline of each iteration.
BASELINES = {
    "BN": "BN",
    "WC": "BN",
    "WC, one stream": "WC",
    "BN, one stream": "BN",
    "cBN": "cBN",
    "cWC": "cBN",
    "cWC, deterministic": "cWC",
    "cWC_sa": "cBN",
    "WC, plain passes": "BN",
    "IterNorm": "BN",
    "WC autodiff": "BN",
    "WzcaC": "BN",
}
SHOWN = ("BN", "WC", "cBN", "cWC")  # printed with lower bounds and kernels; the file has all
UNITS = {
    "factorisation_us": "us",
    "convolution_us": "us",
    "layer_us": "us",
    "eager_us": "us",
    "resnet50_ms": "ms",
    "iteration_ms": "ms",
    "inference_ms": "ms",
}
BY_LIBRARY = ("factorisation_us", "convolution_us")  # compared with the library
NESTED = (*BY_LIBRARY, "layer_us", "eager_us", "resnet50_ms")  # one dictionary per case
TITLES = {
    "factorisation_us": "factorisation",
    "convolution_us": "convolution",
    "layer_us": "layer",
    "eager_us": "eager",
    "resnet50_ms": "ResNet-50",
    "iteration_ms": "iteration",
    "inference_ms": "inference",
    "kernels": "kernels of an iteration",
}


@dataclass(frozen=True)
class Row:
    """A row of the table.

    Attributes:
        what: part and case.
        name: of what was measured.
        value: in `unit`.
        ratio: to the time of `baseline`.
    """

    what: str
    name: str
    value: float
    unit: str
    ratio: float | None
    baseline: str


@dataclass(frozen=True)
class Target:
    """A target.

    Attributes:
        part: a key of the report.
        case: a key in it; empty for parts that have one case.
        name: of what is measured.
        over: what it is divided by; None for the figure itself.
        limit: what it should be at most, or with `at_least` at least.
    """

    part: str
    case: str
    name: str
    over: str | None
    limit: float
    at_least: bool = False


EAGER = ("(128, 256, 16) bfloat16", "(128, 256, 16) float32", "(64, 64, 56) bfloat16")
EAGER_LIMITS = (("WC", 3), ("BN, ours", 1.5), ("cWC", 4))
TARGETS = (
    Target("iteration_ms", "", "WC", "BN", 1.05),
    Target("iteration_ms", "", "cWC", "cBN", 1.05),
    Target("iteration_ms", "", "WzcaC", "WC", 10, at_least=True),
    Target("iteration_ms", "", "BN", None, 9.5),
    Target("iteration_ms", "", "WC", None, 10.0),
    Target("iteration_ms", "", "cWC", None, 11.5),
    Target("kernels", "BN", "all", None, 1000),
    Target("kernels", "WC", "all", None, 1100),
    Target("factorisation_us", "d=256, batch 1", "ours", None, 40),
    Target("layer_us", "(128, 256, 32) bfloat16", "WC", "BN", 1.3),
    Target("layer_us", "(128, 256, 4) bfloat16", "WC", "BN", 5),
    *(Target("eager_us", f"{case}, training", name, "BN", limit) for case in EAGER for name, limit in EAGER_LIMITS),
    *(Target("eager_us", f"{case}, evaluation", "WC", "BN", 2) for case in EAGER),
    *(Target("eager_us", f"{case}, compiled", "WC, compiled", "BN", 2) for case in EAGER),
    Target("layer_us", "(128, 256, 32) float32, TF32 allowed", "WC", "BN", 2),
    Target("inference_ms", "", "WC", "BN", 1.02),
)


def find(report: dict[str, Any], part: str, case: str, name: str) -> float | None:
    """A value from the report; None if it was not measured."""
    place = report.get(part, {})
    value = (place.get(case, {}) if case else place).get(name)
    return None if value is None else float(value)


def report_to_rows(report: dict[str, Any]) -> list[Row]:
    """All measured times, with their ratios to the baseline."""
    rows = []
    for part, unit in UNITS.items():
        for case, values in report.get(part, {}).items() if part in NESTED else [("", report.get(part, {}))]:
            for name, value in values.items():
                baseline = "library" if part in BY_LIBRARY else BASELINES.get(name, "BN")
                if part == "eager_us":  # computed per round, unlike a ratio of two medians
                    baseline, ratio = "BN", report["eager_ratio"][case][name]
                elif part == "iteration_ms":
                    ratio = report.get("ratio_to_bn", {}).get(name)
                else:
                    ratio = value / values[baseline] if baseline in values else None
                rows.append(Row(f"{TITLES[part]} {case}".strip(), name, value, unit, ratio, baseline))
    return rows


def target_to_line(target: Target, report: dict[str, Any]) -> str | None:
    """Targets and measured values; None if not measured."""
    value = find(report, target.part, target.case, target.name)
    if value is not None and target.over is not None:
        if target.part == "iteration_ms" and BASELINES[target.name] == target.over:
            value = find(report, "ratio_to_bn", "", target.name)
        elif target.part == "eager_us":
            value = find(report, "eager_ratio", target.case, target.name)
        else:
            under = find(report, target.part, target.case, target.over)
            value = None if under is None else value / under
    if value is None:
        return None
    what = " ".join(part for part in (TITLES[target.part], target.case) if part)
    name = target.name if target.over is None else f"{target.name} / {target.over}"
    unit = f" {UNITS[target.part]}" if target.over is None and target.part in UNITS else ""
    held = value >= target.limit if target.at_least else value <= target.limit
    bound = "at least" if target.at_least else "at most"
    return f"{what}: {name} = {value:.2f}{unit}, {bound} {target.limit:g}{unit}: {'held' if held else 'MISSED'}"


def floor_lines(report: dict[str, Any]) -> list[str]:
    """Lower bound for an iteration, and the time of its kernels by kind."""
    lines = []
    for name in SHOWN:
        if name not in report.get("floor", {}):
            continue
        floor = report["floor"][name]
        measured = report["iteration_ms"][name]
        lines.append(
            f"floor of {name}: {floor['tflop']:.2f} TFLOP, {floor['gigabytes']:.1f} GB, {floor['roofline_ms']:.2f} ms, "
            f"{floor['roofline_ms'] / measured:.0%} of {measured:.2f} ms; with upsampling and pooling apart from their "
            f"convolutions {floor['tflop_as_written']:.2f} TFLOP, {floor['compute_as_written_ms']:.2f} ms"
        )
    for name in SHOWN:
        if name not in report.get("kernel_ms", {}):
            continue
        shares = report["kernel_ms"][name]
        parts = ", ".join(f"{kind} {value:.2f}" for kind, value in shares.items() if kind != "all" and value >= 0.005)
        lines.append(f"kernels of {name}, ms of {shares['all']:.2f}: {parts}")
        if counts := report.get("kernels", {}).get(name):
            parts = ", ".join(f"{kind} {number:.0f}" for kind, number in counts.items() if kind != "all" and number)
            lines.append(f"kernels of {name}, number of {counts['all']:.0f}: {parts}")
    return lines


def verdict_lines(report: dict[str, Any]) -> list[str]:
    """The difference between training with the kernels and with plain operators."""
    return [
        f"runs, {name}: kernels to plain {found['kernels_to_plain']:.4f}, seed to seed {found['seed_to_seed']:.4f}: "
        f"{'within' if found['within_noise'] else 'BEYOND'} the noise"
        for name, found in report.get("runs", {}).get("verdict", {}).items()
    ]


def print_table(report: dict[str, Any]) -> None:
    rows = report_to_rows(report)
    w = max([len(row.what) for row in rows], default=0) + 2
    v = max([len(row.name) for row in rows], default=0) + 2
    print(
        f"{report['machine']}; commit {report['commit']}",
        *(f"{n} {x}" for n, x in report["versions"].items()),
        sep="; ",
    )
    print(f"{'':{w + v}}{'time':>10}{'':4}{'ratio':>8} to")
    for row in rows:
        ratio = f"{'-':>8}" if row.ratio is None else f"{row.ratio:8.2f} {row.baseline}"
        print(f"{row.what:{w}}{row.name:{v}}{row.value:10.2f} {row.unit:3}{ratio}")
    lines = [line for target in TARGETS if (line := target_to_line(target, report))]
    skipped = [f"skipped {what}: {why}" for what, why in report.get("skipped", {}).items()]
    for line in (*lines, *floor_lines(report), *verdict_lines(report), *skipped):
        print(line)
