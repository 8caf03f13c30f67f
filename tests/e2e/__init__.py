"""
Kubernetes' own end-to-end tests of load balancers, against the controller and fakecloud in a genuine cluster: `make test-e2e`.

They are upstream's programs, unchanged: `e2e.test` is started once for each test, and pods run upstream's `agnhost`.
"""
