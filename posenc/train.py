"""Train a small model on a small task, the same way everywhere in the book."""

import torch
from torch import Tensor
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


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean cross-entropy in nats, whether each example has one label or each of its rows. (..., outputs), (...)."""
    return F.cross_entropy(logits.flatten(0, -2), labels.flatten())


@torch.no_grad()
def accuracy(model: Transformer, task: Labelled) -> float:
    """Share of labels that are the largest logit. Rows labelled `NOT_ASKED` do not count."""
    predictions: Tensor = model(task.tokens).argmax(dim=-1)
    asked = task.labels != NOT_ASKED
    return (predictions == task.labels)[asked].double().mean().item()
