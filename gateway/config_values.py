"""What a value of config.toml may be, each with its rule in words.

Floor 1, pure.
A rule that takes more than a range is a function here; ranges stand beside their key.
"""

import re
from ipaddress import ip_address
from typing import Annotated, Final
from urllib.parse import urlsplit

from pydantic import Field
from pydantic.functional_validators import AfterValidator
from pydantic_core import PydanticCustomError

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
# A host is a name, an IPv4 address, or an IPv6 address in brackets: no blank, no control character,
# and nothing that a resolver would take for a scheme. 253 characters is the most a name can have.
ADDRESS: Final = re.compile(
    # Labels of 1 to 63 (RFC 1035 2.3.4): others break the resolver, where no OSError tells of it.
    r"((?=[^:]{1,253}:)[A-Za-z0-9_][A-Za-z0-9_-]{0,62}(\.[A-Za-z0-9_-]{1,63})*\.?"
    r"|\[[0-9A-Fa-f:.]+(%[A-Za-z0-9._-]+)?\]):(?P<port>[0-9]{1,5})"
)
NAME_RULE: Final = "letters, digits, '.', '_' or '-', starting with a letter or digit"


def _rule(rule: str) -> PydanticCustomError:
    return PydanticCustomError("rule", "{rule}", {"rule": rule})


def _name(value: str) -> str:
    if not NAME.fullmatch(value):
        raise _rule(NAME_RULE)
    return value


def is_address(value: str) -> bool:
    """Whether it is `host:port`, to which somebody can connect."""
    found = ADDRESS.fullmatch(value)
    return found is not None and 1 <= int(found["port"]) <= 65_535


def is_url(value: str) -> bool:
    """Whether something can be posted there, over HTTP."""
    try:
        found = urlsplit(value)
        port = found.port
    except ValueError:
        return False
    whole = value.isascii() and value.isprintable() and " " not in value and port != 0
    return (
        whole
        and found.scheme in {"http", "https"}
        and bool(found.hostname)
        and ("@" not in found.netloc)
    )


def masked(url: str) -> str:
    """Where it goes, without what may be a secret."""
    found = urlsplit(url)
    return f"{found.scheme}://{found.netloc}/..."


def _address(value: str) -> str:
    if not is_address(value):
        raise _rule('"host:port"')
    return value


def _listen(value: str) -> str:
    if value.startswith("unix:/"):
        return value
    host, _, port = value.rpartition(":")
    try:
        ip_address(host.strip("[]"))
    except ValueError:
        raise _rule('"ip:port" or "unix:/path"') from None
    if not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise _rule('"ip:port" or "unix:/path"')
    return value


def _loopback(value: str) -> str:
    _listen(value)
    if value.startswith("unix:"):
        return value
    if not ip_address(value.rpartition(":")[0].strip("[]")).is_loopback:
        raise _rule("a loopback address: this version has no access control for others")
    return value


def _store(value: str) -> str:
    if not re.fullmatch(r"sqlite:.+", value):
        raise _rule('"sqlite:PATH"')
    return value


Name = Annotated[str, AfterValidator(_name)]
Address = Annotated[str, AfterValidator(_address)]
Listen = Annotated[str, AfterValidator(_listen)]
Loopback = Annotated[str, AfterValidator(_loopback)]
StoreUrl = Annotated[str, AfterValidator(_store)]
Seconds = Annotated[float, Field(ge=0, le=86_400 * 7, allow_inf_nan=False)]
PositiveSeconds = Annotated[float, Field(gt=0, le=86_400 * 7, allow_inf_nan=False)]
Weight = Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False)]
Ratio = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Bytes = Annotated[int, Field(ge=0, le=1 << 50)]
