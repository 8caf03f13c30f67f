"""`python -m ccm_lb`."""

from ccm_lb.cli import main

if __name__ == "__main__":
    main()
