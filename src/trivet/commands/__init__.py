"""The command line: one folder a command, with its options, its run, its record and its page."""
