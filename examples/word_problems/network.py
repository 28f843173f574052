"""A Llama decoder in PyTorch, laid out as llama.cpp's `llama` architecture computes it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True)
class Shape:
    """Sizes of the network; head size = width / heads."""

    vocabulary: int
    width: int = 128
    layers: int = 4
    heads: int = 4
    hidden: int = 384
    context: int = 1024
    rope_base: float = 10000.0
    epsilon: float = 1e-5


class Block(nn.Module):  # type: ignore[misc]
    """Attention and SwiGLU, each behind an RMSNorm."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        width, hidden = shape.width, shape.hidden
        self.heads = shape.heads
        self.attn_norm = nn.RMSNorm(width, eps=shape.epsilon)
        self.attn_qkv = nn.Linear(width, 3 * width, bias=False)
        self.attn_output = nn.Linear(width, width, bias=False)
        self.ffn_norm = nn.RMSNorm(width, eps=shape.epsilon)
        self.ffn_gate = nn.Linear(width, hidden, bias=False)
        self.ffn_up = nn.Linear(width, hidden, bias=False)
        self.ffn_down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Apply the block to x of shape (batch, time, width)."""
        batch, time, width = x.shape
        qkv = self.attn_qkv(self.attn_norm(x)).view(
            batch, time, 3, self.heads, width // self.heads
        )
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        query, key = rotate(query, cos, sin), rotate(key, cos, sin)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.attn_output(mixed.transpose(1, 2).reshape(batch, time, width))
        y = self.ffn_norm(x)
        return x + self.ffn_down(F.silu(self.ffn_gate(y)) * self.ffn_up(y))


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary positions on halves; the export permutes rows to llama.cpp's interleaved
    pairs.
    """
    first, second = x.chunk(2, dim=-1)
    return torch.cat(
        (first * cos - second * sin, second * cos + first * sin), dim=-1
    ).to(x.dtype)


class Llama(nn.Module):  # type: ignore[misc]
    """The decoder, its output tied to its embeddings."""

    cos: Tensor
    sin: Tensor

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.token_embd = nn.Embedding(shape.vocabulary, shape.width)
        self.blk = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.output_norm = nn.RMSNorm(shape.width, eps=shape.epsilon)
        half = shape.width // shape.heads // 2
        angles = torch.arange(shape.context)[:, None] * shape.rope_base ** (
            -torch.arange(half) / half
        )
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:
                scale = 0.02 if "embd" in name else parameter.shape[1] ** -0.5
                if name.endswith(("attn_output.weight", "ffn_down.weight")):
                    scale *= (2 * shape.layers) ** -0.5
                nn.init.normal_(parameter, std=scale)

    def forward(self, tokens: Tensor, wanted: Tensor | None = None) -> Tensor:
        """Logits (batch, time, V), or (wanted, V) at the flat positions wanted."""
        time = tokens.shape[1]
        x = self.token_embd(tokens)
        for block in self.blk:
            x = block(x, self.cos[:time], self.sin[:time])
        if wanted is not None:
            x = x.flatten(0, 1)[wanted]
        return F.linear(self.output_norm(x), self.token_embd.weight)
