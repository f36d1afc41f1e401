"""`python -m trivet`: the command line."""

import os
import sys

if not sys.flags.safe_path and sys.path[:1] == [os.getcwd()]:
    del sys.path[0]  # the current folder, whose torch.py is not meant

from trivet.commands.main import main

if __name__ == "__main__":
    main()
