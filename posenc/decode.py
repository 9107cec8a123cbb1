"""Write on, token by token: one loop for every encoding, with or without a cache."""

from collections.abc import Sequence

import torch
from torch import Tensor

from posenc.attention import Cache
from posenc.model import Transformer


@torch.no_grad()
def generate(
    model: Transformer,
    prompts: Sequence[Tensor],
    n_new: int,
    *,
    use_cache: bool = True,
    window: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Append the likeliest token, `n_new` times. Return new tokens (batch, n_new), logits (batch, n_new, vocabulary).

    prompts: token ids (n,) each, of any lengths; they are padded on the left, and positions count from each
    prompt's first real token. window: slots to keep in each cache, for a model whose mask shows no more.
    With and without a cache the logits are the same up to rounding, if the model is causal. If it is not, they
    cannot be: a token that was read early has not seen what came later.
    Raises ValueError for an empty prompt, or a model that does not answer at each row.
    """
    if model.readout != "each":
        raise ValueError(f"generate needs a model with readout 'each', got {model.readout!r}")
    tokens, padding = pad_left(prompts)
    fresh, caches = tokens, _caches(model, padding, window)
    logits = []
    for _ in range(n_new):
        if not use_cache:
            fresh, caches = tokens, _caches(model, padding, None)
        slots = torch.arange(tokens.shape[1] - fresh.shape[1], tokens.shape[1], device=tokens.device)
        positions = (slots - padding.unsqueeze(-1)).clamp(min=0)  # (batch, n_fresh); padding is hidden anyway
        logits.append(model(fresh, positions, caches)[:, -1])
        fresh = logits[-1].argmax(dim=-1, keepdim=True)  # (batch, 1)
        tokens = torch.cat([tokens, fresh], dim=1)
    new = tokens[:, tokens.shape[1] - n_new :]
    return new, torch.stack(logits, dim=1)


def pad_left(prompts: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Token ids (n,) each -> (batch, longest), filled with 0 on the left, and how much was filled (batch,)."""
    if not prompts or min(len(p) for p in prompts) == 0:
        raise ValueError("every prompt needs at least one token; start an empty one with a BOS token")
    longest = max(len(p) for p in prompts)
    padding = torch.tensor([longest - len(p) for p in prompts], device=prompts[0].device)
    rows = [torch.cat([p.new_zeros(longest - len(p)), p]) for p in prompts]
    return torch.stack(rows), padding


def _caches(model: Transformer, padding: Tensor, window: int | None) -> list[Cache]:
    return [Cache(padding, window) for _ in model.blocks]
