"""`python -m shardify` is the program."""

import os
import sys

from ._program import find

if __name__ == "__main__":
    program = find()
    os.execv(program, [program, *sys.argv[1:]])
