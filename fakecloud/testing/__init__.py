"""
fakecloud in tests: a process of one's own, a pytest plug-in, a base for unittest. docs/howto/fakecloud-python.md shows each.

    from fakecloud.testing.process import FakecloudProcess
    from fakecloud.testing.unittest import FakecloudTestCase
"""
