"""What the peer says of its flags, and command lines of installations that serve Services alone; pure."""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

_FLAG = re.compile(r"^ {2,6}(?:-\w, )?--([a-z0-9-]+)(?: ([a-zA-Z]\w*(?:=\S+)?))?(?: {2,}|$)", re.MULTILINE)
# A value of each type that the peer names in its help.
_VALUES: Final = {
    "": "true",
    "string": "text",
    "strings": "one,two",
    "duration": "30s",
    "int": "7",
    "int32": "7",
    "int32Slice": "1,2",
    "float32": "7.5",
    "ip": "127.0.0.1",
    "mapStringBool": "A=true",
    "namedCertKey": "a.crt,a.key",
    "quantity": "1k",
    "Level": "2",
    "pattern=N,...": "a=2",
}


class Flag(NamedTuple):
    """A flag of the peer, without its dashes, and a value that it takes."""

    name: str
    value: str


def listed(text: str) -> list[Flag]:
    """The flags in the peer's --help."""
    return [Flag(name, _VALUES[kind]) for name, kind in _FLAG.findall(text) if name not in ("help", "version")]


# As the manifests of these projects start their cloud-controller-manager, by what they set.
INSTALLATIONS: Final[dict[str, Sequence[str]]] = {
    "upstream's example manifest": [
        "--cloud-provider=fakecloud",
        "--leader-elect=true",
        "--use-service-account-credentials",
        "--allocate-node-cidrs=true",
        "--configure-cloud-routes=true",
        "--cluster-cidr=172.17.0.0/16",
    ],
    "upstream's, services alone": [
        "--cloud-provider=fakecloud",
        "--controllers=service-lb-controller",
        "--kubeconfig=/etc/kubernetes/ccm.conf",
        "--authentication-kubeconfig=/etc/kubernetes/ccm.conf",
        "--authorization-kubeconfig=/etc/kubernetes/ccm.conf",
        "--secure-port=10258",
        "--bind-address=127.0.0.1",
        "--concurrent-service-syncs=10",
        "--v=4",
    ],
    "the Hetzner Cloud chart": [
        "--allow-untagged-cloud",
        "--cloud-provider=fakecloud",
        "--route-reconciliation-period=30s",
        "--webhook-secure-port=0",
        "--leader-elect=false",
        "--allocate-node-cidrs=true",
        "--cluster-cidr=10.244.0.0/16",
        "--feature-gates=CloudControllerManagerWatchBasedRoutesReconciliation=true",
    ],
    "the OpenStack chart": [
        "--v=2",
        "--cloud-config=/etc/config/cloud.conf",
        "--cluster-name=kubernetes",
        "--cloud-provider=fakecloud",
        "--use-service-account-credentials=false",
        "--controllers=cloud-node,cloud-node-lifecycle,route,service",
        "--bind-address=127.0.0.1",
        "--leader-elect=true",
        "--leader-elect-resource-name=cloud-controller-manager",
    ],
    "the Scaleway manifest": [
        "--cloud-provider=fakecloud",
        "--leader-elect=true",
        "--allow-untagged-cloud",
        "--controllers=cloud-node,cloud-node-lifecycle,service",
        "--tls-cipher-suites=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        "--min-resync-period=12h",
        "--node-monitor-period=10s",
        "--profiling=false",
    ],
}
