"""Health checks: verdicts (pure), probes (real connections), and the monitor that shares them."""
