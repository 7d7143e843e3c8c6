from __future__ import annotations

import socket

import pytest

from audiokv.server.telephony.mapped_address import for_family, plain


@pytest.mark.parametrize(
    ("given", "is_plain"),
    [
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("::ffff:c000:201", "192.0.2.1"),
        ("192.0.2.1", "192.0.2.1"),
        ("2001:db8::1", "2001:db8::1"),
        ("fe80::1%eth0", "fe80::1%eth0"),
    ],
)
def test_a_mapped_address_is_one_of_ipv4(given: str, is_plain: str) -> None:
    assert plain(given) == is_plain


@pytest.mark.parametrize(
    ("host", "family", "sent_to"),
    [
        ("192.0.2.1", socket.AF_INET6, "::ffff:192.0.2.1"),
        ("192.0.2.1", socket.AF_INET, "192.0.2.1"),
        ("2001:db8::1", socket.AF_INET6, "2001:db8::1"),
        ("fe80::1%eth0", socket.AF_INET6, "fe80::1%eth0"),
    ],
)
def test_a_socket_gets_addresses_of_its_family(host: str, family: int, sent_to: str) -> None:
    assert for_family(host, family) == sent_to


@pytest.mark.parametrize("name", ["", "exchange.example", "1.2.3", "::ffff:"])
def test_a_name_is_no_address(name: str) -> None:
    with pytest.raises(ValueError, match="address"):
        plain(name)
    with pytest.raises(ValueError, match="address"):
        for_family(name, socket.AF_INET6)
