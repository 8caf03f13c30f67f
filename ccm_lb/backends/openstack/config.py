"""The settings of the backend for OpenStack."""

from __future__ import annotations

import pathlib
from typing import Literal

from pydantic import Field

from ccm_lb.annotations import ProxyProtocol
from ccm_lb.backends.base import BackendConfig
from ccm_lb.objects import IPMode


class OpenStackConfig(BackendConfig):
    """The settings in --cloud-config. Credentials stand in clouds.yaml, not here."""

    clouds_file: pathlib.Path | None = Field(
        default=None,
        description="The clouds.yaml with the credentials. Unset: where OpenStack's own tools look, which is"
        " `$OS_CLIENT_CONFIG_FILE`, or else `clouds.yaml` in the working directory, `~/.config/openstack` or `/etc/openstack`.",
    )
    cloud: str | None = Field(
        default=None,
        description="The entry of clouds.yaml. Unset: `$OS_CLOUD`, or else the only one.",
    )
    subnet: str | None = Field(
        default=None,
        description="The id of the subnet for the addresses of load balancers. Unset: the only one that holds the nodes' addresses.",
    )
    subnet_v6: str | None = Field(
        default=None,
        description="The same for IPv6 addresses. Unset: the only one that holds the nodes' IPv6 addresses.",
    )
    floating_network: str | None = Field(
        default=None,
        description="The id of the external network for floating IPs. Unset: load balancers are reached by their own address alone.",
    )
    floating_subnet: str | None = Field(
        default=None, description="The id of the subnet of `floatingNetwork` for floating IPs. Unset: any of it."
    )
    provider: str | None = Field(
        default=None, description="Octavia's provider, such as `amphora` or `ovn`. Unset: the cloud's default."
    )
    flavor: str | None = Field(default=None, description="The id of the flavor of load balancers. Unset: none.")
    availability_zone: str | None = Field(
        default=None, description="The availability zone of load balancers. Unset: the cloud's default."
    )
    algorithm: Literal["ROUND_ROBIN", "LEAST_CONNECTIONS", "SOURCE_IP", "SOURCE_IP_PORT"] | None = Field(
        default=None,
        description="How a node is chosen. Unset: `ROUND_ROBIN`, and `SOURCE_IP_PORT` with the provider ovn, which has no other.",
    )
    monitor: bool = Field(
        default=True,
        description="Whether nodes are checked. A Service with externalTrafficPolicy `Local` is refused without, as traffic would go to"
        " nodes without its pods.",
    )
    monitor_delay: int = Field(default=5, ge=1, description="Seconds from one check of a node to the next.")
    monitor_timeout: int = Field(
        default=3, ge=1, description="Seconds that a node has to answer a check; below `monitorDelay`."
    )
    monitor_retries: int = Field(default=1, ge=1, le=10, description="Good answers until a node gets traffic.")
    monitor_retries_down: int = Field(default=3, ge=1, le=10, description="Bad answers until it gets none.")
    ask_kube_proxy: bool = Field(
        default=False,
        description="With externalTrafficPolicy Cluster, ask kube-proxy (port 10256, `/healthz`) which nodes are well, instead of asking"
        " their node ports. Connections through a node that is scaled down then go on until its end. Every node needs that port.",
    )
    proxy_protocol: ProxyProtocol = Field(
        default=ProxyProtocol.NONE,
        description="PROXY protocol on all TCP ports where no annotation says otherwise. An error with the provider ovn, which has none.",
    )
    ip_mode: IPMode | None = Field(
        default=None,
        description="The ipMode where no other row of docs/ipmode.md decides. Unset: `Proxy`, with the provider ovn `VIP`.",
    )
