"""What chapter 7 adds to the library: biases as encodings, the horizon, and the text with a secret in it."""

import math

import pytest
import torch

from posenc.attention import Attention, masked_softmax
from posenc.checks.examine import examine
from posenc.checks.registry import all_exercises
from posenc.encoding import Together
from posenc.language import ALPHABET, book
from posenc.masks import Causal, causal
from posenc.model import build
from posenc.recall import FIRST_SECRET, N_SECRETS, QUESTION, VOCABULARY, secret_first, with_secret
from posenc.relative import (
    ALiBi,
    Fire,
    Gaussian,
    KerpleLog,
    OffsetBias,
    T5Bias,
    alibi_slopes,
    horizon,
    keys_that_hold,
    t5_bucket,
)
from posenc.symmetry import difference, equivariance_error, leak, must_break, translation_error
from posenc.tasks import NOT_ASKED


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def t5(n_heads: int, **settings) -> T5Bias:
    encoding = T5Bias(n_heads, 16, 40, **settings).double()
    with torch.no_grad():
        encoding.table.copy_(normal(16, n_heads, seed=3))
    return encoding


FAMILY = {"T5": t5(2), "ALiBi": ALiBi(2), "KERPLE": KerpleLog(2).double(), "Gaussian": Gaussian(2, 3.0).double()}


def layer_with(encoding) -> Attention:
    torch.manual_seed(0)
    return Attention(8, 2, encoding).double()


# --- biases as encodings


@pytest.mark.parametrize("name", FAMILY)
def test_a_bias_sees_offsets_alone_and_fire_does_not(name):
    x, places = normal(2, 9, 8), torch.arange(9)
    assert translation_error(layer_with(Together(Causal(), FAMILY[name])), x, places, shift=500) < 1e-12
    torch.manual_seed(0)
    fire = Fire(2, threshold=4.0).double()
    must_break(translation_error(layer_with(Together(Causal(), fire)), x, places, shift=500), 1e-5)


@pytest.mark.parametrize("name", FAMILY)
def test_reversal_is_a_symmetry_of_symmetric_biases_without_a_mask(name):
    x, mirror = normal(7, 8), torch.arange(6, -1, -1)
    error = equivariance_error(layer_with(FAMILY[name]), x, mirror)
    assert error < 1e-12 if name != "T5" else must_break(error)
    must_break(equivariance_error(layer_with(Together(Causal(), FAMILY[name])), x, mirror))


@pytest.mark.parametrize("name", FAMILY)
def test_a_causal_bias_leaks_nothing_and_breaks_the_bag(name):
    layer, x = layer_with(Together(Causal(), FAMILY[name])), normal(6, 8)
    assert leak(layer, x) < 1e-12
    must_break(difference(layer(x[[3, 0, 4, 1, 2, 5]])[-1], layer(x)[-1]), 1e-4)


def test_each_bias_entry_by_entry():
    places, zero = torch.arange(50), torch.zeros(2, 50, 50, dtype=torch.float64)
    grids = {name: e.scores(zero, zero, zero, places, places).detach() for name, e in FAMILY.items()}
    table = FAMILY["T5"].table
    for i, j in ((0, 0), (7, 3), (3, 7), (49, 0), (0, 49)):
        distance = abs(i - j)
        expected = {
            "T5": table[t5_bucket(torch.tensor(j - i), 16, 40)].tolist(),
            "ALiBi": [-distance / 16, -distance / 256],
            "KERPLE": [-math.log(1 + distance)] * 2,
            "Gaussian": [-(distance**2) / 18] * 2,
        }
        for name, grid in grids.items():
            assert grid[:, i, j].tolist() == pytest.approx(expected[name], rel=1e-6, abs=1e-6)


def test_fire_is_its_formula_and_reads_shares():
    torch.manual_seed(0)
    fire = Fire(3, threshold=10.0).double()
    zero = torch.zeros(3, 1, 31, dtype=torch.float64)
    for last in (5, 30):
        got = fire.scores(zero, zero, zero, torch.tensor([last]), torch.arange(31)).detach()
        for j in (0, last // 2, last):
            share = math.log(1 + 0.1 * (last - j)) / math.log(1 + 0.1 * max(10, last))
            expected = fire.network(torch.tensor([share], dtype=torch.float64))
            assert difference(got[:, 0, j], expected) < 1e-6


def test_fire_counts_keys_to_the_right_as_near_and_its_numbers_without_their_signs():
    torch.manual_seed(0)
    fire, zero, at = Fire(3, threshold=10.0).double(), torch.zeros(3, 5, 5, dtype=torch.float64), torch.arange(5)
    bias = fire.scores(zero, zero, zero, at, at).detach()
    for i in range(5):
        assert difference(bias[:, i, i:], bias[:, i, i : i + 1].expand(3, 5 - i)) < 1e-12
    with torch.no_grad():
        near, half, far = fire.network(torch.tensor([[0.0], [0.5], [1.0]], dtype=torch.float64))
        must_break(difference(near + far, 2 * half))  # no straight line
        fire.c.neg_(), fire.threshold.neg_()
    assert torch.equal(fire.scores(zero, zero, zero, at, at), bias)


def test_what_is_not_said_is_as_in_the_papers():
    offsets = torch.arange(-300, 301)
    assert torch.equal(t5_bucket(offsets), t5_bucket(offsets, 32, 128, True))
    table = T5Bias(1).requires_grad_(False)
    table.table.copy_(torch.arange(32.0).unsqueeze(-1))
    assert torch.equal(table.bias(offsets.view(1, 1, -1)).flatten(), t5_bucket(offsets).float())
    fire = Fire(2)
    assert (fire.threshold.item(), fire.c.item()) == (512, pytest.approx(0.1))


@pytest.mark.parametrize("encoding", [ALiBi(1), KerpleLog(1)], ids=["ALiBi", "KERPLE"])
def test_scores_without_an_axis_for_the_heads_are_refused(encoding):
    for scores in (torch.zeros(3, 3), torch.zeros(1, 3)):
        with pytest.raises(ValueError, match="heads"):
            encoding.scores(scores, scores, scores, torch.arange(len(scores)), torch.arange(3))


def test_tables_and_parameters_get_gradients():
    for encoding in (T5Bias(2, 8, 20), KerpleLog(2), Gaussian(2), Fire(2, 4.0)):
        zero, places = torch.zeros(2, 40, 40), torch.arange(40)
        encoding.scores(zero, zero, zero, places, places).square().sum().backward()
        for name, parameter in encoding.named_parameters():
            assert parameter.grad is not None, name
            assert parameter.grad.isfinite().all()


def test_an_offset_bias_must_say_what_it_is():
    with pytest.raises(NotImplementedError, match="say what the bias"):
        OffsetBias().scores(*[torch.zeros(1, 2, 2)] * 3, torch.arange(2), torch.arange(2))


def test_one_encoding_object_is_one_table_for_all_layers():
    settings = {"vocabulary": 9, "d_model": 8, "n_layers": 3, "n_heads": 2, "n_outputs": 9}
    shared = build(0, **settings, encoding=T5Bias(2, 8, 20))
    assert sum(p.shape == (8, 2) for p in shared.parameters()) == 1


# --- horizon


@pytest.mark.parametrize("slope", [0.5, 1 / 16, 1 / 256])
def test_horizon_holds_for_equal_and_for_the_worst_content(slope):
    distance = torch.arange(6000, dtype=torch.float64)
    for gap in (0.0, 3.0, 8.0):
        limit = horizon(slope, gap)
        content = torch.where(distance >= limit, gap, 0.0)
        weights = (content - slope * distance).softmax(-1)
        assert weights[distance >= limit].sum() <= 0.01 + 1e-9
        if gap:
            must_break(weights[distance >= horizon(slope)].sum().item() - 0.01, 1e-3)


def test_keys_that_hold_counts_from_the_last_key():
    weights = torch.tensor([[0.1, 0.2, 0.7], [0.5, 0.3, 0.2]])
    assert keys_that_hold(weights, 0.19) == 1
    assert keys_that_hold(weights, 0.45) == 2
    assert keys_that_hold(weights, 0.99) == 3
    assert keys_that_hold(torch.tensor([[0.25, 0.25, 0.5]]), 0.5) == 1
    assert keys_that_hold(torch.tensor([[0.25, 0.25, 0.5]]), 0.75) == 2
    alike = (-alibi_slopes(8).view(-1, 1, 1) * torch.arange(4095, -1, -1)).softmax(-1)
    assert keys_that_hold(alike).tolist() == [10, 19, 37, 74, 148, 295, 590, 1179]


@pytest.mark.parametrize("arguments", [(0.0,), (-1.0,), (0.5, -1.0), (0.5, 0.0, 1.0), (0.5, 0.0, 0.0), (math.nan,)])
def test_horizon_refuses_what_has_none(arguments):
    with pytest.raises(ValueError, match="need slope > 0"):
        horizon(*arguments)


def test_masked_alibi_equals_blooms_form():
    at, content = torch.arange(20), normal(20, 20)
    mask = causal(at, at)
    ours = masked_softmax(content - 0.25 * (at.unsqueeze(-1) - at).abs(), mask)
    assert difference(masked_softmax(content + 0.25 * at, mask), ours) < 1e-12
    must_break(difference((content + 0.25 * at).softmax(-1), (content - 0.25 * (at[:, None] - at).abs()).softmax(-1)))


# --- the text with a secret


def test_with_secret_is_what_it_says():
    ids, _ = book()
    task = with_secret(ids, 20, 300, seed=1, questions=3)
    tokens, labels = task.tokens, task.labels
    is_secret = (tokens >= FIRST_SECRET) & (tokens < QUESTION)
    assert (is_secret.sum(1) == 1).all()
    assert (tokens[:, -3:] == QUESTION).all()
    assert (tokens[:, :-3] < QUESTION).all()
    secret = tokens[is_secret]
    assert torch.equal(labels[:, -3:], secret.unsqueeze(-1).expand(-1, 3))
    assert set(secret.tolist()) == set(range(FIRST_SECRET, FIRST_SECRET + N_SECRETS))
    assert len(is_secret.int().argmax(1).unique()) == 17  # anywhere before the questions
    nexts, asked = tokens[:, 1:-2], labels[:, :-3]  # what follows each row before the questions
    letter = nexts < len(ALPHABET)
    assert torch.equal(asked[letter], nexts[letter])
    assert (asked[~letter] == NOT_ASKED).all()
    assert tokens.max() < VOCABULARY


def test_secret_first_ends_alike_at_every_length():
    _, ids = book()
    short, long = (secret_first(ids, n, 16, longest=200) for n in (30, 200))
    assert torch.equal(short.tokens[:, 1:], long.tokens[:, -29:])
    assert torch.equal(short.labels[:, 1:], long.labels[:, -29:])
    for task in (short, long):
        assert task.tokens[:, 0].bincount()[FIRST_SECRET:].tolist() == [2] * N_SECRETS


def test_no_room_for_the_questions_is_refused():
    ids, _ = book()
    for length, questions in ((5, 4), (5, 0), (len(ids), 4)):
        with pytest.raises(ValueError, match="question marks"):
            with_secret(ids, length, 2, 0, questions=questions)
    with pytest.raises(ValueError, match="longest must be"):
        secret_first(ids, 30, 2, longest=29)


# --- answers that once slipped through the checks


def points(name: str, answer) -> int:
    return examine(answer, all_exercises()[name]).points


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("epsilon", [0.0, 1e-9, 1e-6, 1e-3])
def test_buckets_by_logarithm_need_a_small_number_and_not_a_large_one(dtype, epsilon):
    def bucket_of(offsets, n_buckets, max_distance, bidirectional):
        right = torch.zeros_like(offsets)
        if bidirectional:
            n_buckets //= 2
            right = (offsets > 0).long() * n_buckets
        distance = offsets.abs() if bidirectional else (-offsets).clamp(min=0)
        exact = n_buckets // 2
        share = (distance.clamp(min=exact).to(dtype) / exact).log() / math.log(max_distance / exact)
        steps = (share * (n_buckets - exact) + epsilon).long()
        return right + torch.where(distance < exact, distance, (exact + steps).clamp(max=n_buckets - 1))

    right = epsilon == 1e-6 or (epsilon == 1e-9 and dtype == torch.float64)
    assert (points("bucket_of", bucket_of) == 3) == right


def test_a_bias_of_another_dtype_loses_points():
    right = all_exercises()["decoder_bias"].reference
    for dtype in (torch.float32, torch.float64):
        assert points("decoder_bias", lambda *arguments, dtype=dtype: right(*arguments).to(dtype)) < 3


def test_slot_numbers_earn_little():
    mistakes = {m.name: m.function for m in all_exercises()["alibi_step"].mistakes}
    assert points("alibi_step", mistakes["slot numbers for positions"]) <= 1
    assert points("alibi_step", mistakes["the first text's positions for all"]) <= 2


def test_valid_content_alone_earns_nothing_and_the_complaint_shows_both_weights():
    report = examine(lambda: (torch.zeros(4, 4), 1.0), all_exercises()["looks_ahead"])
    assert report.points == 0
    strong = examine(lambda: (torch.eye(8).flip(0) * 10, 0.1), all_exercises()["looks_ahead"])
    assert "query 0 and key 7" in strong.findings[1].complaint
    assert "1.00 with +m j and 1.00 with -m|i - j|" in strong.findings[1].complaint
