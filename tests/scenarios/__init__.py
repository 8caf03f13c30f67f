"""
Faults from public reports of other controllers, and whether a test with each one's mark passed in this run.

The suites of `make test` are processes of their own, so each writes down what it saw; `python -m tests.scenarios` reads that.
"""
