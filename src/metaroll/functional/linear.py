"""Matrix products whose rows do not depend on the number of rows, on their place, or on the number of BLAS threads."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["BLOCK", "RowProducts", "are_small", "block_rows", "matmul_columns", "matmul_rows"]

BLOCK = 8
"""Rows per matrix product. BLAS picks another kernel for other heights, and rounds differently."""

# OpenBLAS runs a product on several threads above 4 * 65536 multiplications, a matrix-vector product above 4 * 2304.
# Threads cut the matrix, a cut matrix is rounded differently, and so the bits of a row would depend on the number of
# threads. Wider layers are computed in column chunks below these limits; chunks depend on the layer's shape alone.
_MAX_BLOCK_WEIGHTS = 4 * 65536 // BLOCK
_MAX_VECTOR_WEIGHTS = 4 * 2304 - 1

_SMALL = 32
"""Weights of a layer up to which sums over columns of many rows cost less than products of many small matrices."""


def are_small(widths: Sequence[int]) -> bool:
    """Whether every layer of a perceptron of these widths (input, hidden layers, output) is for ``matmul_columns``."""
    return all(0 < num_in * num_out <= _SMALL for num_in, num_out in itertools.pairwise(widths))


def matmul_columns(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Product of ``weight (out, in, N)``, or one for all ``(out, in, 1)``, and columns ``x (in, N)``; ``(out, N)``.

    It is summed up input by input, entry by entry: no row depends on how many there are, or where it is. For a few
    thousand rows with separate weights it takes a thirtieth of the time of small products of matrices.
    """
    total = weight[:, 0] * x[0]
    for k in range(1, len(x)):
        total += weight[:, k] * x[k]
    return total


def block_rows(x: np.ndarray, block: int = BLOCK) -> np.ndarray:
    """Rows ``x (N, in)`` as contiguous blocks ``(ceil(N / block), block, in)``, the last one padded with zeros."""
    num_rows, width = x.shape
    missing = -num_rows % block
    if missing:
        padded = np.zeros((num_rows + missing, width), dtype=x.dtype)
        padded[:num_rows] = x
        return padded.reshape(-1, block, width)
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


class RowProducts(TorchDispatchMode):
    """Products of matrices on the CPU, without gradients, whose rows do not depend on their place (``matmul_rows``).

    MKL cuts a matrix into tiles for the processor at hand, and rounds a row differently in a tile at the edge, or where
    it begins at another address: on processors without AVX-512 in most products of 256 rows.
    """

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        own = _PRODUCTS.get(func)
        product = func if own is None or args[0].device.type != "cpu" else own
        return product(*args, **(kwargs or {}))


def _matmul(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    rows, columns = x.detach().numpy(), weight.detach().numpy()
    if rows.ndim == 3:
        return torch.from_numpy(matmul_rows(rows, columns))
    products = matmul_rows(block_rows(rows), columns)
    return torch.from_numpy(products.reshape(-1, products.shape[-1])[: len(rows)])


def _add_matmul(
    added: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, *, beta: float = 1, alpha: float = 1
) -> torch.Tensor:
    return beta * added + alpha * _matmul(x, weight)


_PRODUCTS: dict[Any, Callable[..., torch.Tensor]] = {
    torch.ops.aten.mm.default: _matmul,
    torch.ops.aten.bmm.default: _matmul,
    torch.ops.aten.addmm.default: _add_matmul,
    torch.ops.aten.baddbmm.default: _add_matmul,
}
