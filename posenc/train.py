"""Train a small model on a small task, the same way everywhere in the book."""

import copy
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.func import functional_call, stack_module_state, vmap
from torch.nn import functional as F

from posenc.model import Transformer
from posenc.tasks import NOT_ASKED, Labelled


def train(
    model: Transformer,
    task: Labelled,
    *,
    steps: int = 200,
    batch: int = 64,
    learning_rate: float = 3e-3,
    seed: int = 0,
) -> list[float]:
    """Minimise the cross-entropy with Adam; return the loss of every step, in nats.

    Batches are drawn with replacement by a generator of their own, so one seed means one run.
    """
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate, fused=True)
    losses = []
    for _ in range(steps):
        rows = torch.randint(len(task), (batch,), generator=generator)
        loss = cross_entropy(model(task.tokens[rows]), task.labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def train_side_by_side(
    models: Sequence[Transformer],
    tasks: Sequence[Labelled],
    *,
    seeds: Sequence[int],
    steps: int = 200,
    batch: int = 64,
    learning_rate: float = 3e-3,
) -> None:
    """Train models of one kind, each on its task, as `train` would one after the other, up to rounding.

    Their weights are stacked, so that a step costs little more than one model's: small models wait for Python, not for
    sums. All tasks need rows of one length.
    """
    draws = [torch.Generator().manual_seed(seed) for seed in seeds]
    weights, buffers = stack_module_state(list(models))
    frame = copy.deepcopy(models[0])  # lends its code; its own weights are not used
    optimizer = torch.optim.Adam(weights.values(), lr=learning_rate, fused=True)

    def loss_of(weights: dict, buffers: dict, tokens: Tensor, labels: Tensor) -> Tensor:
        return cross_entropy(functional_call(frame, (weights, buffers), (tokens,)), labels)

    for _ in range(steps):
        rows = [torch.randint(len(task), (batch,), generator=draw) for task, draw in zip(tasks, draws, strict=True)]
        tokens = torch.stack([task.tokens[r] for task, r in zip(tasks, rows, strict=True)])  # (models, batch, n)
        labels = torch.stack([task.labels[r] for task, r in zip(tasks, rows, strict=True)])
        optimizer.zero_grad()
        vmap(loss_of)(weights, buffers, tokens, labels).sum().backward()
        optimizer.step()
    with torch.no_grad():
        for i, model in enumerate(models):
            for name, weight in model.named_parameters():
                weight.copy_(weights[name][i])


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean cross-entropy in nats, whether each example has one label or each of its rows. (..., outputs), (...)."""
    return F.cross_entropy(logits.flatten(0, -2), labels.flatten())


@torch.no_grad()
def accuracy(model: Transformer, task: Labelled) -> float:
    """Share of labels that are the largest logit. Rows labelled `NOT_ASKED` do not count."""
    predictions: Tensor = model(task.tokens).argmax(dim=-1)
    asked = task.labels != NOT_ASKED
    return (predictions == task.labels)[asked].double().mean().item()
