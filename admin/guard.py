"""Who may ask: requests that another web site makes through an operator's browser are refused.

Floor 1, pure.
The API listens on loopback, which every page in the operator's browser can reach too. Two checks
close that door: a change must not come from another origin (RFC 6454), and no request may call us
by a name from the public DNS, which is how a page rebinds its own name to 127.0.0.1.
"""

from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from admin.refusals import Refused

SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})


def check_origin(method: str, host: str, origin: str | None) -> None:
    """Raises: Refused for a change that a page of another site asks for."""
    if method in SAFE or origin is None:
        return  # the CLI, curl and Prometheus send no Origin; browsers do with every change
    if origin == "null" or urlsplit(origin).netloc.lower() != host.lower():
        raise Refused("foreign_site", f"changes from a page of {origin[:80]} are refused")


def check_host(host: str) -> None:
    """Raises: Refused for a Host that is neither an IP address nor localhost."""
    if not _is_ours(_name(host)):
        raise Refused(
            "foreign_host", f"asked for as {host[:80]}: use an IP address, or localhost, instead"
        )


def _name(host: str) -> str:
    """Without port and brackets."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def _is_ours(name: str) -> bool:
    if name in {"", "localhost"} or name.endswith(".localhost"):  # "" : over a Unix socket
        return True
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
