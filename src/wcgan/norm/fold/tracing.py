"""Model -> torch.fx graphs, one for each way to call it."""

import ast
import inspect
import linecache
import traceback
from collections.abc import Mapping
from typing import Any

from torch import fx, nn
from torch.fx.proxy import TraceError

from wcgan.norm.fold.maps import AbsorbedMap, FoldedMap

_MOST_BRANCHES = 32
_FX = {fx.proxy.__file__, fx._symbolic_trace.__file__, __file__}
_REFUSALS = (ValueError, AssertionError)


class UntraceableError(Exception):
    """torch.fx cannot trace the model."""


class _BranchError(Exception):
    """The model branches on its input, and no answer is given."""


class _Tracer(fx.Tracer):
    """Traces into everything except layers of PyTorch and of this library, and takes branches as given by `answers`."""

    def __init__(self, answers: tuple[bool, ...]) -> None:
        super().__init__()
        self._answers = iter(answers)

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, FoldedMap | AbsorbedMap) or super().is_leaf_module(m, module_qualified_name)

    def to_bool(self, obj: fx.Proxy) -> bool:
        answer = next(self._answers, None)
        if answer is None:
            raise _BranchError
        return answer


def model_to_graphs(model: nn.Module) -> list[fx.Graph]:
    """One graph for each way to call a model: with its optional arguments, and without.

    A branch that depends on the input is traced only if one side raises an error: then it is a check.

    Raises:
        UntraceableError: for any other branch on the input, or anything else that torch.fx cannot trace.
    """
    parameters = inspect.signature(model.forward).parameters.values()
    defaults = {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty}
    graphs = []
    for given in ({}, defaults) if defaults else ({},):
        try:
            graphs.append(_follow(model, given, ()))
        except _REFUSALS as error:
            refusal = str(error)
    if not graphs:
        raise UntraceableError(refusal)
    return graphs


def _about_to_raise(error: Exception) -> bool:
    """Whether the error came from building the message of a `raise` statement in the model."""
    # Not with `extract_tb`: Python 3.11 fails on code that torch.compile generated, which has no line numbers.
    places = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    file, line = next((place for place in reversed(places) if place[0] not in _FX), ("", 0))
    raises = [node for node in ast.walk(ast.parse("".join(linecache.getlines(file)))) if isinstance(node, ast.Raise)]
    return any(node.lineno <= (line or 0) <= (node.end_lineno or 0) for node in raises)


def _follow(model: nn.Module, given: Mapping[str, Any], answers: tuple[bool, ...]) -> fx.Graph:
    try:
        return _Tracer(answers).trace(model, dict(given) or None)
    except _BranchError:
        pass
    except Exception as error:  # the model's own code may fail on a proxy in any way
        if isinstance(error, _REFUSALS) and not isinstance(error, TraceError):
            raise
        reason = str(error).partition(". ")[0].splitlines()[:1]
        if _about_to_raise(error):
            raise ValueError(*reason) from None
        raise UntraceableError(*reason) from None
    found: list[fx.Graph] = []
    refusals: list[Exception] = []
    for answer in (False, True) if len(answers) < _MOST_BRANCHES else ():
        try:
            found.append(_follow(model, given, (*answers, answer)))
        except _REFUSALS as error:
            refusals.append(error)
    if len(refusals) == 2:
        raise refusals[0]
    if len(found) != 1:
        raise UntraceableError("it branches on its input")
    return found[0]
