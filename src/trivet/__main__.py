"""`python -m trivet`: the command line."""

from trivet.commands.main import main

if __name__ == "__main__":
    main()
