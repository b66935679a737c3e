"""Matrix products whose rows do not depend on the number of rows, on their place, or on the number of BLAS threads."""

from __future__ import annotations

import numpy as np

__all__ = ["BLOCK", "block_rows", "matmul_rows"]

BLOCK = 8
"""Rows per matrix product. BLAS picks another kernel for other heights, and rounds differently."""

# OpenBLAS runs a product on several threads above 4 * 65536 multiplications, a matrix-vector product above 4 * 2304.
# Threads cut the matrix, a cut matrix is rounded differently, and so the bits of a row would depend on the number of
# threads. Wider layers are computed in column chunks below these limits; chunks depend on the layer's shape alone.
_MAX_BLOCK_WEIGHTS = 4 * 65536 // BLOCK
_MAX_VECTOR_WEIGHTS = 4 * 2304 - 1


def block_rows(x: np.ndarray, block: int = BLOCK) -> np.ndarray:
    """Rows ``x (N, in)`` as contiguous blocks ``(ceil(N / block), block, in)``, the last one padded with zeros."""
    num_rows, width = x.shape
    missing = -num_rows % block
    if missing:
        padded = np.zeros((num_rows + missing, width), dtype=x.dtype)
        padded[:num_rows] = x
        x = padded
    return np.ascontiguousarray(x).reshape(-1, block, width)


def matmul_rows(x: np.ndarray, weight_t: np.ndarray) -> np.ndarray:
    """Product ``x (..., R, in) @ weight_t (..., in, out)``, fresh memory ``(..., R, out)``; leading axes broadcast.

    A row of the result has the same bits at any place in a block of R rows and among any other blocks, with any number
    of BLAS threads.
    """
    num_in, num_out = weight_t.shape[-2:]
    num_rows = x.shape[-2]
    if num_out == 1:
        # A block times one column would be a matrix-vector product, whose rows differ by place on some processors;
        # row by row it is a dot product.
        return np.matmul(x[..., None, :], weight_t[..., None, :, :])[..., 0]
    limit = _MAX_VECTOR_WEIGHTS if num_rows == 1 else _MAX_BLOCK_WEIGHTS
    if num_in * num_out <= limit:
        return np.matmul(x, weight_t)
    leading = np.broadcast_shapes(x.shape[:-2], weight_t.shape[:-2])
    out = np.empty((*leading, num_rows, num_out), dtype=np.result_type(x, weight_t))
    # At least 2 columns each, so that no chunk becomes a matrix-vector product.
    num_chunks = min(-(-num_in * num_out // limit), max(num_out // 4, 1))
    for k in range(num_chunks):
        columns = slice(k * num_out // num_chunks, (k + 1) * num_out // num_chunks)
        np.matmul(x, weight_t[..., columns], out=out[..., columns])
    return out
