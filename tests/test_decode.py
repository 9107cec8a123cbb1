"""Decoding: the cache changes the work, not the answer."""

import pytest
import torch

from posenc.absolute import Sinusoidal, frequencies
from posenc.attention import Cache
from posenc.contexts import ClampedRotary, Layer, ScaledRotary, Temperature, by_parts, yarn_factor
from posenc.decode import generate, pad_left
from posenc.encoding import NoPE, PositionEncoding, Together
from posenc.masks import Causal, Chunked, SlidingWindow
from posenc.model import Transformer, build
from posenc.relative import ALiBi
from posenc.rotary import Rotary, RotaryHalves
from posenc.symmetry import difference, must_break

CAUSAL = {
    "none": lambda: Causal(),
    "sinusoidal": lambda: Together(Causal(), Sinusoidal()),
    "ALiBi": lambda: Together(Causal(), ALiBi(2)),
    "rotary": lambda: Together(Causal(), Rotary()),
    "rotary in windows": lambda: Together(SlidingWindow(3), Rotary()),
    "rotary in chunks": lambda: Together(Chunked(4), Rotary()),
    "rotary in halves": lambda: Together(Causal(), RotaryHalves()),
    "partial rotary": lambda: Together(Causal(), Rotary(frequencies=torch.tensor([1.0, 0.1, 0.0, 0.0]))),
    "a base for each layer": lambda: [
        Together(SlidingWindow(3), Rotary(100.0)),
        Together(Causal(), Rotary()),
        Causal(),
    ],
    "YaRN": lambda: Together(Causal(), ScaledRotary(by_parts(frequencies(8), 4, 6, 1, 2), yarn_factor(4))),
    "clamped rotary": lambda: Together(Causal(), ClampedRotary(frequencies(8), torch.full((4,), 3.0))),
    "layers as in Llama 4": lambda: [
        *(layer.encoding(Rotary()) for layer in [Layer(chunk=4)] * 2),
        Together(Causal(), Temperature(floor=4)),
    ],
}


def model(encoding: PositionEncoding) -> Transformer:
    settings = {"vocabulary": 11, "d_model": 16, "n_layers": 3, "n_heads": 2, "n_outputs": 11}
    return build(0, **settings, encoding=encoding).double()


def prompts(*lengths: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randint(11, (n,), generator=generator) for n in lengths]


@pytest.fixture(params=CAUSAL)
def causal_model(request: pytest.FixtureRequest) -> Transformer:
    torch.manual_seed(0)
    return model(CAUSAL[request.param]())


def test_the_cache_does_not_change_the_logits(causal_model):
    with_cache, without = (generate(causal_model, prompts(5, 5), 8, use_cache=use)[1] for use in (True, False))
    assert with_cache.shape == (2, 8, 11)
    assert difference(with_cache, without) < 1e-12


def test_left_padding_does_not_change_the_logits(causal_model):
    together = generate(causal_model, prompts(2, 7, 4), 6)[1]
    alone = torch.cat([generate(causal_model, [prompt], 6)[1] for prompt in prompts(2, 7, 4)])
    assert difference(together, alone) < 1e-12


def test_each_new_token_is_the_likeliest_of_the_model_alone(causal_model):
    for prompt in prompts(1, 6):
        new, logits = generate(causal_model, [prompt], 4)
        assert torch.equal(new, logits.argmax(dim=-1))
        whole = torch.cat([prompt.unsqueeze(0), new], dim=1)
        assert difference(logits, causal_model(whole)[:, -5:-1]) < 1e-12


def test_a_model_that_is_not_causal_must_fail():
    with_cache, without = (generate(model(NoPE()), prompts(5), 4, use_cache=use)[1] for use in (True, False))
    must_break(difference(with_cache, without))


def test_a_rolling_window_drops_only_what_the_mask_hides():
    windowed = model(Together(SlidingWindow(3), Rotary()))
    everything, rolling = (generate(windowed, prompts(2, 9), 8, window=w)[1] for w in (None, 3))
    assert difference(everything, rolling) < 1e-12
    too_short = generate(windowed, prompts(2, 9), 8, window=2)[1]
    assert difference(everything, too_short) < 1e-12  # two kept slots and the new token itself fill a window of 3
    must_break(difference(everything, generate(windowed, prompts(2, 9), 8, window=1)[1]))


def test_a_window_is_cut_after_several_new_tokens_have_looked():
    windowed = model(Together(SlidingWindow(3), Rotary()))
    tokens = torch.stack(prompts(10, 10))
    caches = [Cache(window=3) for _ in windowed.blocks]
    pieces = [windowed(tokens[:, a:b], torch.arange(a, b), caches) for a, b in ((0, 5), (5, 8), (8, 10))]
    assert difference(torch.cat(pieces, dim=1), windowed(tokens)) < 1e-12


def test_a_token_encoded_at_the_wrong_position_is_noticed():
    rotary = model(Together(Causal(), Rotary()))
    tokens = torch.stack(prompts(6))
    caches = [Cache() for _ in rotary.blocks]
    rotary(tokens[:, :5], torch.arange(5), caches)
    right = rotary(tokens)[:, -1:]
    must_break(difference(rotary(tokens[:, 5:], torch.tensor([0]), caches), right))


def test_bad_input_says_what_to_do():
    with pytest.raises(ValueError, match="at least one token"):
        generate(model(Causal()), [torch.tensor([], dtype=torch.long)], 3)
    with pytest.raises(ValueError, match="at least one token"):
        pad_left([torch.tensor([], dtype=torch.long), torch.tensor([1])])
    last = build(0, vocabulary=11, d_model=4, n_layers=1, n_heads=1, n_outputs=11, readout="last")
    with pytest.raises(ValueError, match="readout"):
        generate(last, prompts(3), 1)
    with pytest.raises(ValueError, match="window"):
        Cache(window=0)


def test_prompts_are_padded_on_the_left():
    tokens, padding = pad_left([torch.tensor([5, 6]), torch.tensor([7, 8, 9])])
    assert tokens.tolist() == [[0, 5, 6], [7, 8, 9]]
    assert padding.tolist() == [1, 0]
