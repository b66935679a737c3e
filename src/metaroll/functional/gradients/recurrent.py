"""A gated recurrent unit along segments of episodes, with a hand-written gradient.

Somewhat faster than ``torch.gru``, which cannot reset its hidden state along the way, and twice as fast as autograd
through the same steps: matrix products that steps share are computed once.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

__all__ = ["gru_memories"]


def gru_memories(from_x: Tensor, keep: Tensor, hidden: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Hidden states ``(T, N, H)`` along N segments of T steps; differentiable once, in all arguments but ``keep``.

    ``h <- keep h``, then ``r, z = sigmoid(x + U h + c)``, ``n = tanh(x + r (U h + c))``, ``h <- (1 - z) n + z h``
    (Cho et al. 2014, arXiv:1406.1078, with the reset gate after the product, as in ``torch.nn.GRU``).

    Args:
        from_x: Contribution of the input to the gates r, z and n, ``(T, N, 3 H)``.
        keep: 0 where an episode begins, to reset the hidden state, else 1; ``(T, N, 1)``.
        hidden: Hidden state before the first step, ``(N, H)``.
        weight: U, ``(3 H, H)``.
        bias: c, ``(3 H,)``.
    """
    result = _Memories.apply(from_x, keep, hidden, weight, bias)
    return result  # pyright: ignore[reportReturnType] - apply has no annotation


class _Memories(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, from_x: Tensor, keep: Tensor, hidden: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        size = hidden.shape[-1]
        memories = from_x.new_empty(*from_x.shape[:2], size)
        before, new = torch.empty_like(memories), torch.empty_like(memories)
        from_h, gates = torch.empty_like(from_x), from_x.new_empty(*from_x.shape[:2], 2 * size)
        memory, transposed = hidden, weight.t()
        both, both_h = from_x[..., : 2 * size], from_h[..., : 2 * size]
        last, last_h = from_x[..., 2 * size :], from_h[..., 2 * size :]
        reset, update = gates.chunk(2, dim=-1)
        # Views of all steps in one call: made one by one, they would take as long as the arithmetic.
        parts = (keep, before, from_h, both, both_h, gates, last, last_h, reset, new, update, memories)
        views = [part.unbind(0) for part in parts]
        for kept, held, all_h, x_rz, h_rz, rz, x_n, h_n, r, n, z, out in zip(*views, strict=True):
            torch.mul(memory, kept, out=held)  # h <- keep h, (N, H)
            torch.addmm(bias, held, transposed, out=all_h)  # U h + c, (N, 3 H)
            torch.add(x_rz, h_rz, out=rz).sigmoid_()  # r, z, (N, 2 H)
            torch.addcmul(x_n, r, h_n, out=n).tanh_()  # n, (N, H)
            memory = torch.lerp(n, held, z, out=out)  # h <- (1 - z) n + z h, (N, H)
        ctx.save_for_backward(keep, before, new, from_h, gates, weight)
        return memories

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        keep, before, new, from_h, gates, weight = ctx.saved_tensors
        size = new.shape[-1]
        reset, update = gates.chunk(2, dim=-1)
        # Derivatives of the new hidden state w.r.t. the pre-activations of n, r and z, (T, N, H) each.
        for_new = (1.0 - update) * (1.0 - new * new)
        for_reset = for_new * from_h[..., 2 * size :] * reset * (1.0 - reset)
        for_update = (before - new) * update * (1.0 - update)
        # Each step multiplies its part with dL/dh, giving the gradient of U h + c.
        to_gates = torch.stack((for_reset, for_update, for_new * reset), dim=2)  # (T, N, 3, H)
        flat = to_gates.flatten(2)
        changes, after = torch.empty_like(new), torch.zeros_like(new[0])
        parts = (grads[0], changes, changes[:, :, None], to_gates, flat, keep, update * keep)
        views = list(zip(*(part.unbind(0) for part in parts), strict=True))
        for grad, change, wide, gate, row, kept, held in reversed(views):
            torch.add(grad, after, out=change)  # dL/dh_t, (N, H), including all later steps
            gate.mul_(wide)
            # dL/dh_{t-1} = keep (d(U h + c) U + z dL/dh_t), (N, H)
            after = torch.mm(row, weight).mul_(kept).addcmul_(change, held)
        # dL/dx, (T, N, 3 H); dL/dU and dL/dc, summed over all steps
        rows = flat.flatten(0, 1)
        grad_x = torch.cat((flat[..., : 2 * size], changes * for_new), dim=-1)
        return grad_x, None, after, torch.mm(rows.t(), before.flatten(0, 1)), rows.sum(dim=0)
