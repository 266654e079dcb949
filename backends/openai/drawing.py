"""How the next token is to be drawn, out of a JSON body or a snapshot's generation config.

Floor 1, pure.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from backends.engines.base import Sampling
from backends.openai.prompts import ID_MAX
from backends.openai.values import as_object, number, refuse, whole, within

# Source of all four: OpenAI API reference.
TEMPERATURE_MAX: Final = 2.0
PENALTY_MAX: Final = 2.0
BIAS_MAX: Final = 100.0
BIASES_MAX: Final = 1024
ID_DIGITS_MAX: Final = len(str(ID_MAX))


def parse_sampling(fields: Mapping[str, object], defaults: Sampling) -> Sampling:
    """`defaults` holds where the body says nothing.

    Raises: RequestInvalid.
    """
    sampling = parse_distribution(fields, defaults)
    penalty = -PENALTY_MAX, PENALTY_MAX
    return replace(
        sampling,
        frequency_penalty=number(fields, "frequency_penalty", *penalty, defaults.frequency_penalty),
        presence_penalty=number(fields, "presence_penalty", *penalty, defaults.presence_penalty),
        logit_bias=_logit_bias(fields.get("logit_bias")),
    )


def parse_defaults(generation_config: object) -> Sampling:
    """The sampling that a snapshot asks for where a request says nothing.

    Temperature 1 is OpenAI's default. `do_sample` is not read: it is a default of the library
    that wrote the file more often than a wish of the model's makers (vLLM does the same).

    Raises: RequestInvalid if the file holds a value that no request could.
    """
    return parse_distribution(as_object(generation_config), Sampling(temperature=1.0))


def parse_distribution(fields: Mapping[str, object], defaults: Sampling) -> Sampling:
    """The fields that a generation config and a request share.

    Raises: RequestInvalid.
    """
    seed = defaults.seed
    if fields.get("seed") is not None:
        # Clients send signed numbers; a generator wants its seed without a sign.
        seed = whole(fields, "seed", -(2**63), 2**64 - 1, 0) % 2**64
    top_p = number(fields, "top_p", 0.0, 1.0, defaults.top_p)
    if top_p == 0.0:
        refuse("top_p", "must be above 0 and at most 1", top_p)
    return Sampling(
        temperature=number(fields, "temperature", 0.0, TEMPERATURE_MAX, defaults.temperature),
        top_p=top_p,
        top_k=max(whole(fields, "top_k", -1, ID_MAX, defaults.top_k), 0),  # -1 also means all
        seed=seed,
    )


def _logit_bias(value: object) -> tuple[tuple[int, float], ...]:
    """Token ids, each once, and what is added to their logits."""
    if value is None:
        return ()
    if not isinstance(value, Mapping) or len(value) > BIASES_MAX:
        refuse("logit_bias", f"must be an object of up to {BIASES_MAX} token ids", value)
    biases: dict[int, float] = {}
    for name, bias in value.items():
        path = f"logit_bias.{name[:ID_DIGITS_MAX]}"
        # JSON's names are strings; int() would take more than digits: blanks, signs, underscores.
        is_id = name.isascii() and name.isdigit() and len(name) <= ID_DIGITS_MAX
        if not is_id or int(name) > ID_MAX or int(name) in biases:
            refuse(path, "must be named by a token id, each once", name)
        biases[int(name)] = within(bias, path, -BIAS_MAX, BIAS_MAX)
    return tuple(biases.items())
