"""
A genuine control plane for the tests: kube-apiserver and etcd, built from their own Go modules and run on loopback.

`python -m tests.controlplane build` makes the binaries, `server.ControlPlane` runs them, `kube.Kube` speaks to them.
"""
