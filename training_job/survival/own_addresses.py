"""This node's IPv4 addresses, from the kernel: names need not resolve on a cluster's private network."""

from __future__ import annotations

import fcntl
import socket
import struct

_SIOCGIFADDR = 0x8915
"""netdevice(7): an interface's address."""
_NAME_BYTES = 15


def own_addresses() -> tuple[str, ...]:
    """Return the addresses of all interfaces but loopback's."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        found = [_address(probe, name) for _, name in socket.if_nameindex()]
    return tuple(address for address in found if address and not address.startswith("127."))


def _address(probe: socket.socket, interface: str) -> str | None:
    request = struct.pack("256s", interface.encode()[:_NAME_BYTES])
    try:
        answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)
    except OSError:
        return None  # an interface without an IPv4 address
    return socket.inet_ntoa(answer[20:24])
