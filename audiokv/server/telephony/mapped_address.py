"""IPv4 addresses at a socket that serves both families (RFC 4291, section 2.5.5.2)."""

from __future__ import annotations

import socket
from ipaddress import IPv4Address, IPv6Address, ip_address

_PREFIX = "::ffff:"


def plain(host: str) -> str:
    """Return an IPv4 address as such where a socket for both families gives it as IPv6.

    Args:
        host: A numeric address; one of IPv6 may have a scope.

    Raises:
        ValueError: It is no address.
    """
    address = ip_address(host.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return host if mapped is None else str(mapped)


def for_family(host: str, family: int) -> str:
    """Return an address as a socket of a family takes it.

    Args:
        host: A numeric address; one of IPv6 may have a scope.
        family: The socket's family.

    Raises:
        ValueError: It is no address.
    """
    is_ipv4 = isinstance(ip_address(host.partition("%")[0]), IPv4Address)
    return f"{_PREFIX}{host}" if is_ipv4 and family == socket.AF_INET6 else host
