"""
The keys and types of KubeProxyConfiguration v1alpha1 (k8s.io/kube-proxy v0.37.2, config/v1alpha1/types.go), as data.

A dict is an object. null stands for an absent key, but for durations that are no pointers in Go. `logging` is of component-base and only
looked at as far as `kubeproxy` says.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

API_VERSION = "kubeproxy.config.k8s.io/v1alpha1"
KIND = "KubeProxyConfiguration"


class Type(enum.StrEnum):
    STRING = "a string"
    BOOL = "true or false"
    INT32 = "a whole number of 32 bits"
    NUMBER = "a number"
    DURATION = 'a duration such as "15m0s"'
    DURATION_OR_NULL = 'a duration such as "15m0s", or null'
    STRINGS = "a list of strings"
    GATES = "a mapping of names to true or false"
    ANYTHING = "anything"


Schema = Mapping[str, Any]

_SYNC: Schema = {"syncPeriod": Type.DURATION, "minSyncPeriod": Type.DURATION}

KUBE_PROXY_CONFIGURATION: Schema = {
    "apiVersion": Type.STRING,
    "kind": Type.STRING,
    "featureGates": Type.GATES,
    "clientConnection": {
        "kubeconfig": Type.STRING,
        "acceptContentTypes": Type.STRING,
        "contentType": Type.STRING,
        "qps": Type.NUMBER,
        "burst": Type.INT32,
    },
    "logging": Type.ANYTHING,
    "hostnameOverride": Type.STRING,
    "bindAddress": Type.STRING,
    "healthzBindAddress": Type.STRING,
    "metricsBindAddress": Type.STRING,
    "bindAddressHardFail": Type.BOOL,
    "enableProfiling": Type.BOOL,
    "showHiddenMetricsForVersion": Type.STRING,
    "mode": Type.STRING,
    "iptables": {
        "masqueradeBit": Type.INT32,
        "masqueradeAll": Type.BOOL,
        "localhostNodePorts": Type.BOOL,
        **_SYNC,
    },
    "ipvs": {
        **_SYNC,
        "scheduler": Type.STRING,
        "excludeCIDRs": Type.STRINGS,
        "strictARP": Type.BOOL,
        "tcpTimeout": Type.DURATION,
        "tcpFinTimeout": Type.DURATION,
        "udpTimeout": Type.DURATION,
    },
    "nftables": {"masqueradeBit": Type.INT32, "masqueradeAll": Type.BOOL, **_SYNC},
    "winkernel": {
        "networkName": Type.STRING,
        "sourceVip": Type.STRING,
        "enableDSR": Type.BOOL,
        "rootHnsEndpointName": Type.STRING,
        "forwardHealthCheckVip": Type.BOOL,
    },
    "detectLocalMode": Type.STRING,
    "detectLocal": {"bridgeInterface": Type.STRING, "interfaceNamePrefix": Type.STRING},
    "clusterCIDR": Type.STRING,
    "nodePortAddresses": Type.STRINGS,
    "oomScoreAdj": Type.INT32,
    "conntrack": {
        "maxPerCore": Type.INT32,
        "min": Type.INT32,
        "tcpEstablishedTimeout": Type.DURATION_OR_NULL,
        "tcpCloseWaitTimeout": Type.DURATION_OR_NULL,
        "tcpBeLiberal": Type.BOOL,
        "udpTimeout": Type.DURATION,
        "udpStreamTimeout": Type.DURATION,
    },
    "configSyncPeriod": Type.DURATION,
    "portRange": Type.STRING,
    "windowsRunAsService": Type.BOOL,
}

IPVS_SCHEDULERS: Mapping[str, str] = {
    "rr": "round robin",
    "wrr": "weighted round robin",
    "lc": "least connections",
    "wlc": "weighted least connections",
    "lblc": "locality-based least connections",
    "lblcr": "locality-based least connections with replication",
    "sh": "source hashing",
    "dh": "destination hashing",
    "sed": "shortest expected delay",
    "nq": "never queue",
    "mh": "maglev hashing",
    "fo": "weighted failover",
    "ovf": "weighted overflow",
    "twos": "power of twos choice",
}
"""Those of Linux (net/netfilter/ipvs); whether a node's kernel has one, only that kernel knows."""
