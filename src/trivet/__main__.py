"""`python -m trivet`: the command line."""

from trivet.cli import main

if __name__ == "__main__":
    main()
