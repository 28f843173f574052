"""Train the word-problem model from scratch; run again to resume exactly where it
stopped.
"""

from __future__ import annotations

import argparse
import math
import os
import time
from collections.abc import Iterator
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import torch
from network import Llama, Shape
from problems import STYLES, problems
from rich.progress import (
    BarColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from text import END, prompt, train_tokenizer
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional as F

LEVEL_MIX = {1: 1.0, 2: 1.5, 3: 2.0, 4: 2.0, 5: 1.5}
POOL = 4096


def batches(
    tokenizer: Tokenizer, seed: int, pool: int, tokens: int
) -> list[list[tuple[list[int], int]]]:
    """Pool number `pool` of problems as batches of (ids, prompt length), alike in
    length so that little is padding.
    """
    rng = Random(f"{seed}:order:{pool}")
    chosen = list(islice(problems(f"{seed}:train:{pool}", LEVEL_MIX, "train"), POOL))
    prompts = tokenizer.encode_batch([prompt(p.question) for p in chosen])
    replies = tokenizer.encode_batch(
        [p.solutions[rng.choice(STYLES)] + END for p in chosen]
    )
    rows = sorted(
        ((p.ids + r.ids, len(p.ids)) for p, r in zip(prompts, replies, strict=True)),
        key=lambda r: len(r[0]),
    )
    made: list[list[tuple[list[int], int]]] = []
    while rows:
        count = max(1, tokens // len(rows[-1][0]))
        made.append(rows[-count:])
        del rows[-count:]
    rng.shuffle(made)
    return made


def stream(
    tokenizer: Tokenizer, seed: int, position: list[int], tokens: int
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Inputs, flat positions that predict a response token, and those tokens; from
    position = [pool, batch] on.
    """
    while True:
        for rows in batches(tokenizer, seed, position[0], tokens)[position[1] :]:
            width = -(-(max(len(ids) for ids, _ in rows) - 1) // 8) * 8
            inputs = torch.zeros(len(rows), width, dtype=torch.long)
            where: list[int] = []
            targets: list[int] = []
            for i, (ids, start) in enumerate(rows):
                inputs[i, : len(ids) - 1] = torch.tensor(ids[:-1])
                where.extend(range(i * width + start - 1, i * width + len(ids) - 1))
                targets.extend(ids[start:])
            position[1] += 1
            yield inputs, torch.tensor(where), torch.tensor(targets)
        position[:] = [position[0] + 1, 0]


def optimizers(
    model: nn.Module, muon_lr: float, adam_lr: float
) -> list[torch.optim.Optimizer]:
    """Muon for the matrices inside the blocks, AdamW for embeddings and norms."""
    matrices = [
        p for name, p in model.named_parameters() if p.ndim == 2 and "embd" not in name
    ]
    rest = [p for name, p in model.named_parameters() if p.ndim != 2 or "embd" in name]
    muon = torch.optim.Muon(
        matrices,
        lr=muon_lr,
        weight_decay=0.01,
        momentum=0.95,
        adjust_lr_fn="match_rms_adamw",
    )
    return [
        muon,
        torch.optim.AdamW(rest, lr=adam_lr, betas=(0.9, 0.98), weight_decay=0.0),
    ]


def save(path: Path, state: dict[str, Any]) -> None:
    """Write a checkpoint so that a kill leaves the old one or the new one."""
    temporary = path.with_suffix(".tmp")
    with temporary.open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("runs/word_problems"),
        help="folder for its files",
    )
    parser.add_argument(
        "--minutes", type=float, default=40.0, help="over which the rate decays"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=8192, help="tokens in a batch")
    parser.add_argument("--muon-lr", type=float, default=0.01)
    parser.add_argument("--adam-lr", type=float, default=0.006)
    parser.add_argument(
        "--save-every", type=float, default=60.0, help="seconds between checkpoints"
    )
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    torch.set_flush_denormal(True)
    vocabulary = options.out / "tokenizer.json"
    tokenizer = (
        Tokenizer.from_file(str(vocabulary))
        if vocabulary.exists()
        else train_tokenizer(vocabulary)
    )
    shape = Shape(tokenizer.get_vocab_size())
    model = Llama(shape)
    compiled = torch.compile(model, dynamic=True)
    optims = optimizers(model, options.muon_lr, options.adam_lr)
    base = [optim.param_groups[0]["lr"] for optim in optims]
    position, spent, step = [0, 0], 0.0, 0
    checkpoint = options.out / "checkpoint.pt"
    if checkpoint.exists():
        state = torch.load(checkpoint, weights_only=True)
        model.load_state_dict(state["model"])
        for optim, saved in zip(optims, state["optimizers"], strict=True):
            optim.load_state_dict(saved)
        position, spent, step = state["position"], state["seconds"], state["step"]
    budget, average, seen = options.minutes * 60, math.nan, 0
    last_save, started = spent, time.monotonic() - spent
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns) as progress:
        task = progress.add_task("training", total=budget, completed=int(spent))
        begun = spent
        for inputs, where, targets in stream(
            tokenizer, options.seed, position, options.tokens
        ):
            done = min(1.0, spent / budget)
            warm = min(1.0, (step + 1) / 100)
            for optim, rate in zip(optims, base, strict=True):
                optim.param_groups[0]["lr"] = (
                    rate * warm * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * done)))
                )
            loss = F.cross_entropy(compiled(inputs, where), targets)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            for optim in optims:
                optim.step()
                optim.zero_grad()
            step += 1
            seen += inputs.numel()
            spent = time.monotonic() - started
            average = (
                loss.item()
                if math.isnan(average)
                else 0.98 * average + 0.02 * loss.item()
            )
            finished = spent >= budget
            if spent - last_save >= options.save_every or finished:
                last_save = spent
                saved = [optim.state_dict() for optim in optims]
                save(checkpoint, {"model": model.state_dict(), "optimizers": saved, "shape": asdict(shape),
                                  "position": position, "seconds": spent, "step": step})  # fmt: skip
                print(f"step {step} {spent:.0f}s loss {average:.4f}", flush=True)
            speed = seen / max(spent - begun, 1e-9)
            progress.update(
                task,
                completed=spent,
                description=f"step {step} loss {average:.4f} {speed:,.0f} tok/s",
            )
            if finished:
                break


if __name__ == "__main__":
    main()
