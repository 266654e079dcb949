"""How rotary positions are stretched past what a model was first trained for.

Floor 1, pure.
A pair of numbers of a head turns by position x frequency. Each kind of scaling is a rule for other
frequencies, as a config.json spells it; one of them also makes the turned vectors longer. A kind
that depends on how long a sequence is (dynamic, longrope) is refused: the cache holds turned keys.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

KEYS: Final = ("rope_scaling", "rope_parameters")  # transformers 5 moved to the second


@dataclass(frozen=True, slots=True)
class Linear:
    """Every frequency is divided."""

    factor: float


@dataclass(frozen=True, slots=True)
class Llama3:
    """Slow turns are divided, quick ones are not, and in between is a ramp. Source: Llama 3.1."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position_embeddings: int


@dataclass(frozen=True, slots=True)
class Yarn:
    """The same with a ramp over dimensions. Source: arXiv 2309.00071, sections 3.2 to 3.4."""

    factor: float
    original_max_position_embeddings: int
    beta_fast: float
    beta_slow: float
    attention_factor: float  # the length of turned vectors
    truncate: bool  # whether the ramp begins and ends at whole dimensions


@dataclass(frozen=True, slots=True)
class Divided:
    """Each frequency by a number of its own. It is how a GGUF file spells Llama3, and not a word of
    Hugging Face's."""

    divisors: tuple[float, ...]


Scaling = Linear | Llama3 | Yarn | Divided

_KINDS: Final[Mapping[str, type[Scaling]]] = {
    "linear": Linear,
    "llama3": Llama3,
    "yarn": Yarn,
    "divided": Divided,
}


def read_scaling(config: Mapping[str, Any], problems: list[str]) -> Scaling | None:
    """The scaling that a config.json asks for; what is wrong with it is added to `problems`."""
    key = next((key for key in KEYS if isinstance(config.get(key), Mapping)), "")
    rope: Mapping[str, Any] = config[key] if key else {}
    if any(isinstance(value, Mapping) for value in rope.values()):
        problems.append(f"{key}: must be the same for all layers, not one for each kind of them")
        return None
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind in ("default", None):
        return None
    if kind not in _KINDS:
        known = ", ".join(_KINDS)
        problems.append(f"{key}: must be of rope_type default, {known}, not {kind!r}")
        return None
    context = config.get("max_position_embeddings")

    def number(name: str, default: Any = None) -> float:
        value = rope.get(name)
        value = default if value is None else value
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            problems.append(f"{key}.{name}: must be a number above 0, not {value!r}")
            return 1.0
        return float(value)

    return _read(kind, rope, context, number, problems)


def _read(
    kind: str,
    rope: Mapping[str, Any],
    context: Any,
    number: Callable[..., float],
    problems: list[str],
) -> Scaling:
    if kind == "divided":
        listed = rope.get("divisors")
        divisors = listed if isinstance(listed, list) else []
        if not divisors or not all(isinstance(n, int | float) and n > 0 for n in divisors):
            problems.append("divisors: must be a list of numbers above 0")
        return Divided(tuple(float(n) for n in divisors if isinstance(n, int | float)))
    factor = number("factor")
    if kind == "linear":
        return Linear(factor)
    original = int(number("original_max_position_embeddings", context))
    if kind == "llama3":
        low, high = number("low_freq_factor"), number("high_freq_factor")
        if high <= low:
            problems.append(f"high_freq_factor: must be above low_freq_factor {low}, not {high}")
        return Llama3(factor, low, high, original)
    return Yarn(
        factor=factor,
        original_max_position_embeddings=original,
        beta_fast=number("beta_fast", 32),
        beta_slow=number("beta_slow", 1),
        attention_factor=number("attention_factor", _lengthening(factor, rope)),
        truncate=bool(rope.get("truncate", True)),
    )


def _lengthening(factor: float, rope: Mapping[str, Any]) -> float:
    """The paper's 0.1 ln(factor) + 1; with DeepSeek's two weights, their quotient."""

    def scaled(weight: float) -> float:
        return 0.1 * weight * math.log(factor) + 1.0 if factor > 1 else 1.0

    upper, lower = rope.get("mscale"), rope.get("mscale_all_dim")
    if upper and lower:
        return scaled(upper) / scaled(lower)
    return scaled(1.0)


def write_scaling(scaling: Scaling | None) -> dict[str, Any] | None:
    """What `read_scaling` reads back from under `rope_scaling`, every number in it explicit."""
    if scaling is None:
        return None
    kind = next(name for name, record in _KINDS.items() if isinstance(scaling, record))
    return {"rope_type": kind, **asdict(scaling)}


def stretched(context: int, scaling: Scaling | None) -> int:
    """Positions that can be promised. Configs with YaRN often leave the trained length in place of
    the stretched one."""
    if isinstance(scaling, Yarn):
        return max(context, int(scaling.original_max_position_embeddings * scaling.factor))
    return context


def frequencies(theta: float, size: int, scaling: Scaling | None) -> list[float]:
    """Radians that each pair of a head of `size` turns by from one position to the next."""
    plain = [theta ** (-i / size) for i in range(0, size, 2)]
    match scaling:
        case None:
            return plain
        case Linear(factor):
            return [frequency / factor for frequency in plain]
        case Llama3():
            return [_by_wavelength(frequency, scaling) for frequency in plain]
        case Yarn():
            return _by_dimension(plain, theta, size, scaling)
        case Divided(divisors):
            return [frequency / by for frequency, by in zip(plain, divisors, strict=True)]


def lengthened(scaling: Scaling | None) -> float:
    """By what turned vectors are lengthened."""
    return scaling.attention_factor if isinstance(scaling, Yarn) else 1.0


def _by_wavelength(frequency: float, scaling: Llama3) -> float:
    turns = scaling.original_max_position_embeddings * frequency / (2 * math.pi)
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    share = min(max((turns - low) / (high - low), 0.0), 1.0)  # of what stays as it was
    return (1 - share) * frequency / scaling.factor + share * frequency


def _by_dimension(plain: Sequence[float], theta: float, size: int, scaling: Yarn) -> list[float]:
    def dimension(turns: float) -> float:
        """Where the pair is that turns so often within the trained length."""
        trained = scaling.original_max_position_embeddings
        return size * math.log(trained / (turns * 2 * math.pi)) / (2 * math.log(theta))

    first, last = dimension(scaling.beta_fast), dimension(scaling.beta_slow)
    if scaling.truncate:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, size - 1)
    width = last - first or 0.001  # a step, where the ramp has no width
    found = []
    for i, frequency in enumerate(plain):
        share = min(max((i - first) / width, 0.0), 1.0)  # of what is divided
        found.append(frequency / scaling.factor * share + frequency * (1 - share))
    return found
