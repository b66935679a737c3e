"""The bits of the acting path do not depend on the number of BLAS threads."""

import os
import subprocess
import sys

SCRIPT = """
import hashlib, numpy as np
from metaroll.functional.linear import block_rows, matmul_rows
rng, digest = np.random.default_rng(0), hashlib.sha256()
for num_in, num_out in [(64, 64), (128, 512), (300, 300), (321, 300), (700, 128), (33, 3000), (5000, 40)]:
    x = rng.standard_normal((17, num_in), dtype=np.float32)
    weight = rng.standard_normal((num_out, num_in), dtype=np.float32)
    digest.update(matmul_rows(block_rows(x), weight.T).tobytes())
    digest.update(matmul_rows(x[:2, None], np.stack([weight.T, weight.T])).tobytes())
print(digest.hexdigest())
"""


def test_products_of_rows_have_the_same_bits_with_one_and_with_many_threads():
    """Haswell kernels: there a plain product differs from 8 x 128 x 512 on; on others wider layers do."""
    digests = set()
    for threads in ("1", "4"):
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": threads, "OPENBLAS_CORETYPE": "Haswell"}
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True
        )
        digests.add(done.stdout.strip())
    assert len(digests) == 1
