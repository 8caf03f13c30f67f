"""For tests of backends and of the controller: builders, an in-memory cloud, stand-ins, and the conformance kit."""
