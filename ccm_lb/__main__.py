"""`python -m ccm_lb`."""

from ccm_lb.commands.main import main

if __name__ == "__main__":
    main()
