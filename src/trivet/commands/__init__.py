"""The command line: one folder a command, with its options, its run, its record and its page.

What runs a command raises ValueError, in one sentence, where the user can change what is wrong, and OSError where a
file cannot be read or written.
"""
