"""The fixtures of the integration tests."""

from tests.harness.fixtures import api_proxy, cloud_proxy, control_plane, kube, kubeconfig, kubectl, namespace, stack

__all__ = ["api_proxy", "cloud_proxy", "control_plane", "kube", "kubeconfig", "kubectl", "namespace", "stack"]
