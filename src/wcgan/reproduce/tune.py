"""`wcgan tune`: Optuna searches a few settings of a preset by FID, and stops trials early that are behind the others.

A trial is an ordinary run in a folder of its own, trained in rungs: after each it is evaluated, and the median of the
trials before it decides whether it goes on. A search that was killed resumes with the trial that it was at.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any

import yaml

from wcgan.core.config import config_to_dict
from wcgan.core.files import owned, require_new
from wcgan.core.reading import parse_yaml
from wcgan.core.terminal import shown
from wcgan.runs.config import CHANGEABLE, Config
from wcgan.runs.folder import LOCK, Run, config_differences, differences_to_text, is_begun
from wcgan.train.loop import DivergedError
from wcgan.train.start import start

STUDY = "study.db"
_SCORED = ("iterations", "schedule_end", "evaluate_images", "evaluate_with")  # trials must agree in them
_CHANGEABLE = CHANGEABLE - {"data.name", "data.reference"} - {f"train.{name}" for name in _SCORED}
UNPRUNED = 3  # trials that run to their end before any is stopped early
Configure = Callable[[Sequence[str]], Config]
"""Settings `section.field=value` -> the config of a run."""


@dataclass(frozen=True)
class Search:
    """A setting to search: a range of numbers, or choices."""

    name: str
    """`section.field`."""
    low: float = 0.0
    high: float = 0.0
    choices: tuple[str, ...] = ()
    """As YAML; empty for a range."""

    @property
    def whole(self) -> bool:
        return isinstance(self.low, int) and isinstance(self.high, int)

    @property
    def count(self) -> float:
        """How many settings there are."""
        if self.choices:
            return len(set(self.choices))
        return self.high - self.low + 1 if self.whole else math.inf

    @property
    def ends(self) -> tuple[str, ...]:
        """Settings that are allowed if all between them are."""
        return tuple(f"{self.name}={value}" for value in self.choices or (self.low, self.high))

    def suggest(self, trial: Any) -> str:
        """A setting for a trial of Optuna's. Ranges above 0 are searched by the logarithm, unless they are integers."""
        if self.choices:
            return f"{self.name}={trial.suggest_categorical(self.name, self.choices)}"
        if self.whole:
            return f"{self.name}={trial.suggest_int(self.name, self.low, self.high)}"
        return f"{self.name}={trial.suggest_float(self.name, self.low, self.high, log=self.low > 0)}"


def text_to_search(text: str) -> Search:
    """Reads `section.field=low..high` or `section.field=[choice, choice]`.

    Example:
        >>> text_to_search("train.learning_rate=1e-4..1e-3")
        Search(name='train.learning_rate', low=0.0001, high=0.001, choices=())
        >>> text_to_search("generator.normalization=[cWC, cBN]").choices
        ('cWC', 'cBN')
    """
    name, equals, values = (part.strip() for part in text.partition("="))
    wrong = f"--search takes section.field=low..high or section.field=[choice, choice]; got {shown(text)}"
    low, dots, high = values.partition("..")
    if not equals or "." not in name:
        raise ValueError(wrong)
    if dots:
        try:
            ends = [int(end) if end.strip().lstrip("-").isdigit() else float(end) for end in (low, high)]
        except ValueError:
            raise ValueError(wrong) from None
        if not ends[0] < ends[1]:
            raise ValueError(f"--search {shown(text)}: the lower end comes first")
        return Search(name, ends[0], ends[1])
    choices = parse_yaml(values)
    if not isinstance(choices, list) or len(choices) < 2:
        raise ValueError(wrong)
    return Search(name, choices=tuple(_to_yaml(choice) for choice in choices))


def _to_yaml(value: Any) -> str:
    """In one line, without the end-of-document mark that PyYAML puts after a scalar."""
    return str(yaml.safe_dump(value, default_flow_style=True, width=10**6)).removesuffix("\n...\n").strip()


@dataclass(frozen=True)
class Trial:
    """How a trial ended."""

    number: int
    settings: tuple[str, ...]
    status: str
    """`finished`, `stopped early` or `diverged`."""
    iteration: int
    """Where it ended; of a trial that diverged, the rung that it did not reach."""
    fid: float | None
    """The last; None if it diverged."""
    score: str = "FID"
    """Its name, which says by which network it is."""


def tune(
    configure: Configure,
    searches: Sequence[Search],
    folder: Path,
    trials: int,
    rungs: int = 4,
    resume: bool = False,
    say: Callable[[str], None] = print,
) -> tuple[list[Trial], int | None]:
    """Runs trials until there are so many -> all of them, best first, and the signal that ended the search, if any.

    No two trials have the same settings: with few choices there may be fewer trials.

    Args:
        configure: gives the config of a trial with some settings.
        searches: what to search.
        folder: gets the study and a folder for each trial; must be new unless `resume`.
        trials: how many in all.
        rungs: evaluations of a trial, at equal distances.
        resume: whether to go on with the search in the folder.
        say: called with a line for each trial that ends.

    Raises:
        ValueError: for a setting that the config refuses, another search than the folder's, or data without scores.
    """
    optuna = import_optuna()
    for name, value in (("--trials", trials), ("--rungs", rungs)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    if not searches:
        raise ValueError("name what to search, such as --search train.learning_rate=1e-4..1e-3")
    first = configure([search.ends[0] for search in searches])
    for search in searches:
        for end in search.ends:
            configure([end])
    if not (resume and (folder / STUDY).exists()) and (is_begun(folder) or not folder.is_dir()):
        require_new(folder, "name another folder (--out), or resume the search (--resume)")
    folder.mkdir(parents=True, exist_ok=True)
    with owned(folder / LOCK, str(folder)):
        facts = {"search": [repr(search) for search in searches], "preset": first.preset}
        study = open_study(optuna, folder, facts, config_to_dict(configure(())))
        stopped_by = None
        while stopped_by is None and len(ended(study)) < trials:
            found = suggest_new(optuna, study, searches)
            if found is None:
                say(f"all settings of the search have been tried, with {len(ended(study))} of {trials} trials")
                break
            stopped_by = run_trial(optuna, study, *found, configure, folder, rungs)
            if stopped_by is None:
                say(trial_to_line(ended(study)[-1]))
        return best_first(ended(study)), stopped_by


def import_optuna() -> Any:
    try:
        import optuna  # type: ignore[import-not-found, unused-ignore]
    except ImportError as error:
        raise ImportError(f"a search is run by Optuna: pip install 'wcgan[tune]' ({error})") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def open_study(optuna: Any, folder: Path, facts: dict[str, Any], config: dict[str, Any]) -> Any:
    """The study in a folder. A trial that was interrupted is put back at the head of the queue, with its folder.

    Raises:
        ValueError: for a study with other facts, or with a config whose scores are not comparable.
    """
    study = optuna.create_study(
        study_name="tune",
        storage=f"sqlite:///{(folder / STUDY).absolute()}",
        load_if_exists=True,
        pruner=optuna.pruners.MedianPruner(n_startup_trials=UNPRUNED),
    )
    # A sampler begins anew with every process: the same seed would suggest the first trials again.
    study.sampler = optuna.samplers.TPESampler(seed=len(study.trials))
    for name, value in facts.items():
        if study.user_attrs.setdefault(name, value) != value:
            raise ValueError(f"{folder} is a search with another {name}: {study.user_attrs[name]}; name another --out")
        study.set_user_attr(name, value)
    changed = config_differences(study.user_attrs.get("config", config), config)
    if fixed := {name: values for name, values in changed.items() if name not in _CHANGEABLE}:
        raise ValueError(f"{folder} is a search with other settings ({differences_to_text(fixed)}); name another --out")
    study.set_user_attr("config", config)
    for trial in study.get_trials(states=(optuna.trial.TrialState.RUNNING,)):
        study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
        if "diverged" not in trial.user_attrs:
            study.enqueue_trial(trial.params, user_attrs=trial.user_attrs)
    return study


def suggest_new(optuna: Any, study: Any, searches: Sequence[Search]) -> tuple[Any, list[str]] | None:
    """A trial and its settings, which no trial that ended had: it would train the same run. None if all were tried."""
    tried, sampler = {trial.settings for trial in ended(study)}, study.sampler
    try:
        while len(tried) < math.prod(search.count for search in searches):
            trial = study.ask()
            settings = [search.suggest(trial) for search in searches]
            if tuple(settings) not in tried:
                return trial, settings
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
            # At random: the search's own sampler would suggest the best of few choices again and again.
            study.sampler = optuna.samplers.RandomSampler(seed=len(study.trials))
        return None
    finally:
        study.sampler = sampler


def run_trial(
    optuna: Any, study: Any, trial: Any, settings: list[str], configure: Configure, folder: Path, rungs: int
) -> int | None:
    """Trains one trial, rung by rung, and tells the study -> the signal that interrupted it, if any."""
    states = optuna.trial.TrialState
    trial.set_user_attr("settings", settings)
    if "folder" not in trial.user_attrs:
        trial.set_user_attr("folder", f"trial-{trial.number}")
    config, own = configure(settings), folder / trial.user_attrs["folder"]
    for iteration in rung_iterations(config.train.iterations, rungs):
        try:
            outcome = start(config, own, resume=True, stop_at=iteration)
        except DivergedError:
            trial.set_user_attr("diverged", iteration)
            study.tell(trial, state=states.FAIL)
            return None
        if outcome.stopped_by is not None:
            return outcome.stopped_by
        score, fid = fid_at(own, iteration)
        trial.set_user_attr("score", score)
        trial.report(fid, iteration)
        if iteration < config.train.iterations and trial.should_prune():
            study.tell(trial, state=states.PRUNED)
            return None
    study.tell(trial, fid)
    return None


def rung_iterations(iterations: int, rungs: int) -> Iterator[int]:
    """Where a trial is evaluated.

    Example:
        >>> list(rung_iterations(1500, 4))
        [375, 750, 1125, 1500]
    """
    yield from sorted({max(1, iterations * (rung + 1) // rungs) for rung in range(rungs)})


def fid_at(folder: Path, iteration: int) -> tuple[str, float]:
    """The FID that a run was evaluated with at an iteration: its name, and its value."""
    for line in reversed(Run(folder).lines()):
        if line["kind"] == "evaluation" and line["iteration"] == iteration:
            return next((name, float(value)) for name, value in line.items() if name.startswith("FID"))
    raise ValueError(
        f"{folder} has no FID at iteration {iteration}: a search needs data with a test split, and labels or Inception"
    )


def ended(study: Any) -> list[Trial]:
    """The trials that are over, in their order; those that were interrupted are not."""
    found = []
    for trial in study.trials:
        number, settings = trial.number, tuple(trial.user_attrs.get("settings", ()))
        if trial.state.name in ("COMPLETE", "PRUNED"):
            iteration, fid = max(trial.intermediate_values.items())
            status = "finished" if trial.state.name == "COMPLETE" else "stopped early"
            score = trial.user_attrs.get("score", "FID")
            found.append(Trial(number, settings, status, iteration, fid, score))
        elif trial.state.name == "FAIL" and "diverged" in trial.user_attrs:
            found.append(Trial(number, settings, "diverged", trial.user_attrs["diverged"], None))
    return found


def best_first(trials: Sequence[Trial]) -> list[Trial]:
    """Trials that finished by their FID, then those that were stopped early, then those that diverged."""
    return sorted(trials, key=lambda t: (t.status != "finished", math.inf if t.fid is None else t.fid))


def trial_to_line(trial: Trial) -> str:
    score = "-" if trial.fid is None else f"{trial.fid:.3f}"
    how = f"{trial.status} {'before' if trial.fid is None else 'at'} iteration {trial.iteration}"
    return f"trial {trial.number:<4} {trial.score} {score:>9}  {how:32} {' '.join(trial.settings)}"


def trials_to_command(
    preset: str, trials: Sequence[Trial], data: str | None = None, settings: Sequence[str] = ()
) -> str | None:
    """The command that trains the best of the trials that finished, on the search's data and with its settings."""
    if not trials or trials[0].status != "finished":
        return None
    given = [] if data is None else [f"--data {quote(data)}"]
    return " ".join([f'wcgan train "{preset}"', *given, *(f'--set "{s}"' for s in (*settings, *trials[0].settings))])
