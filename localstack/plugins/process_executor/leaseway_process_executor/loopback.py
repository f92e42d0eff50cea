"""LocalStack listens where GATEWAY_LISTEN says.

LocalStack 4.14 drops the host of an IPv4 address in GATEWAY_LISTEN and listens on every interface. It runs functions as
processes of this machine for whoever reaches it, so that would be a shell for everybody in the network.
"""

from functools import partial


def listen_where_told() -> None:
    """Give the gateway's server the host it was told; several addresses with different hosts are refused."""
    from localstack import config
    from localstack.runtime.exceptions import LocalstackExit
    from twisted.internet import endpoints

    hosts = {address.host for address in config.GATEWAY_LISTEN if not config.is_ipv6_address(address.host)}
    if len(hosts) > 1:
        raise LocalstackExit(f"GATEWAY_LISTEN names {', '.join(sorted(hosts))}: name one IPv4 host.", code=1)
    for host in hosts:
        endpoints.TCP4ServerEndpoint = partial(endpoints.TCP4ServerEndpoint, interface=host)  # type: ignore
