"""`python -m whence`, and what the command `whence` starts."""

import os

# Products of vectors are so small here that handing parts of them to other threads takes longer than computing them.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from whence.cli import main

if __name__ == "__main__":
    main()
