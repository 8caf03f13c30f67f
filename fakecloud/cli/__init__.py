"""The command line. Commands import what is heavy when they run, so that `--help` is quick."""
