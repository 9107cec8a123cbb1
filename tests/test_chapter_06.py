"""What chapter 6 adds to the library: Shaw's tables, the skew, Transformer-XL, DeBERTa's terms, look_back_by."""

import pytest
import torch

from posenc.absolute import Sinusoidal, sinusoids
from posenc.encoding import Together
from posenc.masks import Causal, SlidingWindow
from posenc.model import build
from posenc.offsets import (
    Shaw,
    ShawKeys,
    TransformerXL,
    disentangled_scores,
    offset_rows,
    relative_scores,
    relative_values,
    skew,
)
from posenc.symmetry import difference, leak, must_break, translation_error
from posenc.tasks import NOT_ASKED, Labelled, look_back, look_back_by
from posenc.train import accuracy, cross_entropy

TINY = 1e-12
SETTINGS = {"vocabulary": 9, "d_model": 8, "n_layers": 2, "n_heads": 2, "n_outputs": 3}


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def model_with(encoding, **change):
    return build(0, **(SETTINGS | change), encoding=encoding).double()


def schemes() -> dict:
    torch.manual_seed(0)
    return {
        "keys": ShawKeys(4, clip=2),
        "keys a head": ShawKeys(4, clip=2, n_heads=2),
        "keys and values": Shaw(4, clip=2),
        "keys and values a head": Shaw(4, clip=2, n_heads=2),
        "Transformer-XL": TransformerXL(8, 2),
    }


# --- tables


@pytest.mark.parametrize("clip", [0, 1, 3, 20])
def test_rows_are_clipped_offsets_counted_from_the_left(clip):
    queries, keys = torch.tensor([4, 9]), torch.tensor([0, 3, 4, 5, 30])
    rows = offset_rows(queries, keys, clip)
    for i, query in enumerate(queries.tolist()):
        for j, key in enumerate(keys.tolist()):
            assert rows[i, j] == max(-clip, min(clip, key - query)) + clip


@pytest.mark.parametrize("heads", [(), (3,)])
def test_numbers_moved_equal_vectors_gathered(heads):
    n_queries, n_keys, clip = 3, 5, 2
    queries, weights = normal(2, 3, n_queries, 4), normal(2, 3, n_queries, n_keys, seed=1)
    table = normal(*heads, 2 * clip + 1, 4, seed=2)
    rows = offset_rows(torch.arange(2, 5), torch.arange(5), clip)
    vectors = table[..., rows, :].expand(2, 3, n_queries, n_keys, 4)
    expected = torch.einsum("bhid,bhijd->bhij", queries, vectors)
    assert difference(relative_scores(queries, table, rows), expected) < TINY
    expected = torch.einsum("bhij,bhijd->bhid", weights, vectors)
    assert difference(relative_values(weights, table, rows), expected) < TINY


@pytest.mark.parametrize("n_heads", [None, 2])
def test_shaws_doors_equal_the_papers_formula_pair_by_pair(n_heads):
    torch.manual_seed(0)
    scheme = Shaw(6, clip=2, n_heads=n_heads).double()
    queries, keys, values = normal(2, 3, 6), normal(2, 5, 6, seed=1), normal(2, 5, 6, seed=2)
    weights = normal(2, 3, 5, seed=3).softmax(dim=-1)
    at, of_keys = torch.tensor([1, 2, 9]), torch.arange(5)
    scores = scheme.scores(queries @ keys.mT / 6**0.5, queries, keys, at, of_keys)
    mixed = scheme.values(weights, values, at, of_keys)
    for h in range(2):
        of_key, of_value = (t if n_heads is None else t[h] for t in (scheme.key_table, scheme.value_table))
        for i in range(3):
            rows = [min(max(j - int(at[i]), -2), 2) + 2 for j in range(5)]
            assert difference(scores[h, i], (keys[h] + of_key[rows]) @ queries[h, i] / 6**0.5) < TINY
            assert difference(mixed[h, i], weights[h, i] @ (values[h] + of_value[rows])) < TINY


def test_tables_start_small():
    torch.manual_seed(0)
    scheme, xl = Shaw(64, clip=40), TransformerXL(1024, 4)
    for start, std in ((scheme.key_table, 1 / 8), (scheme.value_table, 1 / 8), (xl.u, 0.1), (xl.v, 0.1)):
        assert start.std().item() == pytest.approx(std, rel=0.06)


@pytest.mark.parametrize("kind", [ShawKeys, Shaw])
def test_one_table_for_each_head_equals_the_shared_one_if_they_hold_the_same(kind):
    torch.manual_seed(0)
    shared, apart = kind(4, clip=2).double(), kind(4, clip=2, n_heads=2).double()
    apart.load_state_dict({name: table.expand(2, -1, -1) for name, table in shared.state_dict().items()})
    x = torch.arange(6).unsqueeze(0)
    assert difference(model_with(shared)(x), model_with(apart)(x)) < TINY


def test_bad_arguments_are_refused_in_words():
    with pytest.raises(ValueError, match="0 or more"):
        Shaw(4, clip=-1)
    with pytest.raises(ValueError, match="width 5, the queries 4"):
        model_with(Shaw(5, clip=1))(torch.arange(3).unsqueeze(0))
    with pytest.raises(ValueError, match="multiple of n_heads"):
        TransformerXL(9, 2)
    with pytest.raises(ValueError, match="have 7 offsets, got 6"):
        skew(normal(3, 6), 5)
    with pytest.raises(ValueError, match="only one encoding can open the value door"):
        Together(Shaw(4, 1), Shaw(4, 1))


# --- symmetry


@pytest.mark.parametrize("name", schemes())
@pytest.mark.parametrize("mask", [None, Causal(), SlidingWindow(3)], ids=["no mask", "causal", "window"])
def test_relative_schemes_do_not_see_a_shift_and_see_the_order(name, mask):
    scheme = schemes()[name]
    model = model_with(scheme if mask is None else Together(mask, scheme))
    tokens, places = torch.arange(6).unsqueeze(0), torch.arange(6)
    assert translation_error(model, tokens, places, shift=1000) < TINY
    must_break(translation_error(model_with(Sinusoidal()), tokens, places, shift=1000))
    order = torch.tensor([3, 1, 4, 0, 2, 5])
    must_break(difference(model(tokens[:, order])[0], model(tokens)[0, order]))


@pytest.mark.parametrize("name", schemes())
def test_positions_may_differ_within_a_batch_and_nothing_leaks(name):
    model = model_with(Together(Causal(), schemes()[name]))
    tokens, positions = torch.tensor([[1, 2, 3], [4, 5, 6]]), torch.tensor([[0, 1, 2], [3, 5, 9]])
    alone = torch.stack([model(t.unsqueeze(0), p)[0] for t, p in zip(tokens, positions, strict=True)])
    assert difference(model(tokens, positions), alone) < TINY
    block = model.blocks[0]
    assert leak(block, normal(1, 6, 8)) < TINY


def test_one_layer_cannot_tell_far_keys_apart_and_two_can():
    text, far = torch.tensor([[1, 2, 3, 4, 5, 6, 7]]), torch.tensor([[5, 2, 3, 4, 1, 6, 7]])  # 6 and 2 away
    near = torch.tensor([[1, 2, 3, 4, 6, 5, 7]])  # 2 and 1 away
    one, two = (model_with(Together(Causal(), schemes()["keys and values"]), n_layers=n) for n in (1, 2))
    assert difference(one.rows(text)[0, -1], one.rows(far)[0, -1]) < TINY
    must_break(difference(one.rows(text)[0, -1], one.rows(near)[0, -1]))
    must_break(difference(two.rows(text)[0, -1], two.rows(far)[0, -1]))


def test_values_tell_equal_tokens_apart_and_keys_do_not():
    same = torch.ones(1, 6, dtype=torch.long)
    for name, scheme in schemes().items():
        rows = model_with(Together(Causal(), scheme)).rows(same)[0]
        gap = difference(rows, rows[:1].expand_as(rows))
        assert must_break(gap) if "values" in name else gap < TINY


# --- the skew


@pytest.mark.parametrize(("n_queries", "n_keys"), [(1, 1), (1, 4), (4, 1), (3, 3), (2, 5), (5, 2)])
def test_skew_puts_each_offset_in_its_place(n_queries, n_keys):
    by_offset = normal(2, n_queries, n_queries + n_keys - 1)
    skewed = skew(by_offset, n_keys)
    assert skewed.shape == (2, n_queries, n_keys)
    for i in range(n_queries):
        for j in range(n_keys):
            assert torch.equal(skewed[:, i, j], by_offset[:, i, j - i + n_queries - 1])


def test_skewed_products_equal_gathered_ones():
    queries, table, at = normal(2, 6, 4), normal(11, 4, seed=1), torch.arange(6)
    gathered = relative_scores(queries, table, offset_rows(at, at, clip=5))
    assert difference(skew(queries @ table.mT, 6), gathered) < TINY


# --- Transformer-XL, DeBERTa


def test_transformer_xl_equals_its_formula_pair_by_pair_also_with_gaps_and_memory():
    torch.manual_seed(0)
    scheme = TransformerXL(8, 2).double()
    queries, keys = normal(2, 3, 4), normal(2, 5, 4, seed=1)
    at, of_keys = torch.tensor([7, 8, 12]), torch.tensor([0, 3, 7, 8, 12])
    got = scheme.scores(queries @ keys.mT / 2, queries, keys, at, of_keys)
    for h in range(2):
        for i in range(3):
            for j in range(5):
                r = scheme.to_offset_keys(sinusoids(at[i] - of_keys[j], 8).double())[4 * h : 4 * h + 4]
                q, k = queries[h, i], keys[h, j]
                expected = (q @ k + q @ r + scheme.u[h, 0] @ k + scheme.v[h, 0] @ r) / 2
                assert abs(got[h, i, j] - expected) < TINY


@pytest.mark.parametrize("as_released", [False, True])
def test_disentangled_scores_equal_the_formula_pair_by_pair(as_released):
    queries, keys, offset_queries, offset_keys = (normal(m, 4, seed=m) for m in (3, 5, 6, 7))
    offset_keys = offset_keys[:6]
    at, of_keys = torch.arange(2, 5), torch.arange(5)
    got = disentangled_scores(queries, keys, offset_queries, offset_keys, at, of_keys, as_released)

    def delta(a: int, b: int) -> int:
        return min(max(a - b + 3, 0), 5)  # equation 3 of the paper, k = 3

    for i in range(3):
        for j in range(5):
            a, b = int(at[i]), int(of_keys[j])
            third = delta(a, b) if as_released else delta(b, a)
            total = queries[i] @ keys[j] + queries[i] @ offset_keys[delta(a, b)] + keys[j] @ offset_queries[third]
            assert abs(got[i, j] - total / 12**0.5) < TINY
    without_a_word = disentangled_scores(queries, keys, offset_queries, offset_keys, at, of_keys)
    assert as_released or torch.equal(without_a_word, got)


# --- the task


def test_look_back_by_is_what_it_says():
    task = look_back_by(3, 7, 50, seed=0, vocabulary=5)
    assert task.tokens.max() == 4
    assert (task.labels[:, :3] == NOT_ASKED).all()
    assert torch.equal(task.labels[:, 3:], task.tokens[:, :-3])
    for distance in (0, 7):
        with pytest.raises(ValueError, match="distance must be 1 to 6"):
            look_back_by(distance, 7, 5, seed=0)


class Copies:
    """Stands in for a model: predicts each row's own token."""

    def __call__(self, tokens):
        return torch.nn.functional.one_hot(tokens, 9).double()


def test_rows_that_are_not_asked_count_neither_in_the_loss_nor_in_the_accuracy():
    tokens = torch.tensor([[1, 2, 3, 4]])
    labels = torch.tensor([[NOT_ASKED, 2, 0, NOT_ASKED]])
    assert accuracy(Copies(), Labelled(tokens, labels)) == 0.5
    logits = Copies()(tokens)
    assert difference(cross_entropy(logits, labels), cross_entropy(logits[:, 1:3], labels[:, 1:3])) < TINY
    assert accuracy(Copies(), look_back(6, 50, seed=0)) < 0.5
