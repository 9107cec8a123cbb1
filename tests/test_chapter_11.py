"""Relative and rotary in two dimensions: the library of chapter 11, and the truth of its predictions."""

import math

import pytest
import torch
from torch import nn

from posenc import picture_study
from posenc.absolute import frequencies
from posenc.attention import Attention
from posenc.checks.chapter_11 import SCORES_TRUTH
from posenc.encoding import PositionEncoding, Together
from posenc.grids import LearnedGrid
from posenc.rotary import Rotary
from posenc.rotary_grid import (
    AxialRotary,
    GridRotary,
    MixedRotary,
    MRotary,
    axial_vectors,
    centred,
    grid_angles,
    mixed_vectors,
    mrope_positions,
    mrope_vectors,
)
from posenc.symmetry import GRID_MOVES, difference, must_break, relabelling_error, shift_grid
from posenc.vision import VisionTransformer, grid
from posenc.windows import (
    ALiBi2D,
    ContinuousBias,
    PlaneBias,
    WindowBias,
    Windows,
    log_spaced,
    offsets,
    read_between,
    resize_bias,
    rolled_mask,
    window_index,
    with_class_token,
)

HEADS, HEAD_DIM = 2, 8
ENCODINGS = {
    "Swin table": lambda: WindowBias(4, 4, HEADS, std=1.0),
    "Swin v2 network": lambda: ContinuousBias(4, 4, HEADS),
    "2-D ALiBi": lambda: ALiBi2D(HEADS),
    "axial rotary": lambda: AxialRotary(HEAD_DIM),
    "axial rotary, alternating": lambda: AxialRotary(HEAD_DIM, allocation="alternating"),
    "mixed rotary": lambda: MixedRotary(HEADS, HEAD_DIM),
    "windows": lambda: Windows(2, 1),
}


@pytest.fixture(params=ENCODINGS, ids=lambda name: name.replace(" ", "-"))
def encoding(request) -> PositionEncoding:
    torch.manual_seed(0)
    return ENCODINGS[request.param]().double()


def layer_with(encoding: PositionEncoding) -> Attention:
    torch.manual_seed(1)
    return Attention(HEADS * HEAD_DIM, HEADS, encoding).double()


def tokens(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, HEADS * HEAD_DIM, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


def test_places_of_their_own_for_each_picture_of_a_batch(encoding):
    layer, x = layer_with(encoding), tokens(3, 16)
    orders = (torch.randperm(16, generator=torch.Generator().manual_seed(seed)) for seed in range(3))
    own = torch.stack([grid(4, 4)[:, order] for order in orders], dim=1)  # (2, 3, 16)
    together = layer(x, own)
    for i in range(3):
        assert difference(together[i], layer(x[i], own[:, i])) < 1e-12
    must_break(difference(layer(x, grid(4, 4)), together))


def test_all_but_windows_keep_a_shift(encoding):
    error = relabelling_error(layer_with(encoding), tokens(16), grid(4, 4), shift_grid(grid(4, 4), 3, -5))
    assert must_break(error) if isinstance(encoding, Windows) else error < 1e-11


def test_a_vision_transformer_trains_with_it(encoding):
    model = VisionTransformer(2, HEADS * HEAD_DIM, 1, HEADS, 3, encoding).double()
    model(torch.rand(2, 8, 8).double()).sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in encoding.parameters())


# --- Tables, networks, distances


def test_a_window_bias_reads_the_index_and_between_its_entries():
    bias = WindowBias(2, 3, HEADS, std=1.0)
    whole = bias.bias(*offsets(grid(2, 3), grid(2, 3)))
    assert difference(whole, bias.table[window_index(2, 3)].permute(2, 0, 1)) < 1e-6
    half = bias.bias(torch.tensor([[0.5]]), torch.tensor([[-1.0]]))[0, 0, 0]
    entries = bias.table[:, 0].view(3, 5)
    assert difference(half, (entries[1, 1] + entries[2, 1]) / 2) < 1e-6


@pytest.mark.parametrize("n_heads", [1, 2])
def test_the_score_of_each_pair_gets_the_entry_of_query_minus_key(n_heads):
    bias, scores = WindowBias(2, 3, n_heads, std=1.0).double(), torch.zeros(n_heads, 6, 6, dtype=torch.float64)
    got = bias.scores(scores, scores, scores, grid(2, 3), grid(2, 3))
    assert difference(got, bias.table[window_index(2, 3)].permute(2, 0, 1)) < 1e-12
    fewer = bias.scores(scores[:, :2], scores[:, :2], scores, grid(2, 3)[:, :2], grid(2, 3))
    assert difference(fewer, got[:, :2]) < 1e-12
    for bare in (torch.zeros(6, 6), torch.zeros(1, 6)):
        with pytest.raises(ValueError, match="the scores have 0"):
            bias.scores(bare, bare, bare, grid(2, 3)[:, : len(bare)], grid(2, 3))


def test_reading_between_is_bilinear():
    generator = torch.Generator().manual_seed(0)
    table = torch.randn(2, 4, 5, generator=generator, dtype=torch.float64)
    down, across = (torch.rand(7, 3, generator=generator, dtype=torch.float64) * (n - 1) for n in (4, 5))
    near = [(1 - (at.unsqueeze(-1) - torch.arange(n)).abs()).clamp(min=0) for at, n in ((down, 4), (across, 5))]
    assert difference(read_between(table, down, across), torch.einsum("abr,abc,hrc->hab", *near, table)) < 1e-12


def test_less_than_a_step_outside_the_edge_is_read_and_further_out_is_an_error():
    table = torch.arange(6.0).view(2, 3)
    assert read_between(table, torch.tensor(-0.4), torch.tensor(2.9)) == table[0, 2]
    for down, across in ((-1.0, 0.0), (2.0, 0.0), (0.0, 3.5)):
        with pytest.raises(ValueError, match="resize the table"):
            read_between(table, torch.tensor(down), torch.tensor(across))
    for down in ([0.0, 5.0], [-2.0, 1.0]):
        with pytest.raises(ValueError, match="resize the table"):
            read_between(table, torch.tensor(down), torch.zeros(2))
    with pytest.raises(ValueError, match="row -1 to 5 asked, 0 to 4 in the table"):
        WindowBias(3, 3, 1).bias(*offsets(grid(4, 3), grid(4, 3)))


def test_a_table_resized_to_its_own_window_stays_and_a_wrong_window_is_an_error():
    table = torch.randn(3 * 9, 2)
    assert difference(resize_bias(table, (2, 5), (2, 5)), table) < 1e-6
    with pytest.raises(ValueError, match="need 81 entries, got 27"):
        resize_bias(table, (5, 5), (2, 5))


def test_a_table_starts_as_small_noise():
    torch.manual_seed(0)
    assert WindowBias(20, 20, 4).table.std().item() == pytest.approx(0.02, rel=0.05)


def test_class_entries_stand_at_the_end():
    index = with_class_token(window_index(2, 2))
    assert index[0].tolist() == [11, 9, 9, 9, 9]
    assert index[1:, 0].tolist() == [10] * 4
    assert torch.equal(index[1:, 1:], window_index(2, 2))


def test_log_spaced_is_odd_one_for_the_edge_and_slow_beyond():
    at = log_spaced(torch.tensor([-7, 0, 7, 15]), 8)
    assert at[0] == -at[2] == -math.log2(9) / 3
    assert at[1] == 0
    assert at[3] / at[2] < 1.4
    assert log_spaced(torch.tensor(1), 2) == math.log2(9) / 3
    assert log_spaced(torch.tensor(0), 1) == 0  # a window of one patch


def test_swin_v2s_network_has_no_bias_at_its_end():
    assert [name for name, _ in ContinuousBias(4, 4, 2).named_parameters()] == [
        "network.0.weight",
        "network.0.bias",
        "network.2.weight",
    ]


def test_alibi_in_the_plane_is_the_distance():
    bias = ALiBi2D(2, largest_exponent=2.0).bias(torch.tensor([[3]]), torch.tensor([[-4]]))
    assert bias.flatten().tolist() == [-2.5, -1.25]  # slopes 1/2 and 1/4
    as_in_texts = ALiBi2D(2).bias(torch.tensor([[3]]), torch.tensor([[-4]]))
    assert as_in_texts.flatten().tolist() == [-5 / 16, -5 / 256]


def test_wrong_number_of_heads():
    with pytest.raises(ValueError, match="has 3 heads, the scores have 2"):
        layer_with(ALiBi2D(3))(tokens(4), grid(2, 2))
    with pytest.raises(NotImplementedError):
        PlaneBias(1).bias(torch.zeros(1, 1), torch.zeros(1, 1))


def test_windows_and_their_rolled_mask_refuse_a_shift_of_a_whole_window():
    for shift in (4, -1):
        with pytest.raises(ValueError, match="shift must be 0 to 3"):
            Windows(4, shift)
    with pytest.raises(ValueError, match="do not fill"):
        rolled_mask(6, 8, 4, 2)


def test_windows_begin_at_the_edge_unless_they_are_shifted():
    places = torch.arange(7)
    assert Windows(3).window(places).diff().tolist() == [0, 0, 1, 0, 0, 1]
    assert Windows(3, 1).window(places).diff().tolist() == [1, 0, 0, 1, 0, 0]
    some_queries = grid(2, 3)[:, [0, 5]]
    assert Windows(2).mask(some_queries, grid(2, 3)).int().tolist() == [[1, 1, 0, 1, 1, 0], [0, 0, 1, 0, 0, 1]]


def test_a_window_as_large_as_the_picture_falls_into_its_corners_when_it_is_shifted():
    assert torch.equal(rolled_mask(2, 2, 2, 1)[0], torch.eye(4, dtype=torch.bool))


# --- Rotary


def test_mixed_vectors_have_axial_lengths_and_any_direction():
    torch.manual_seed(0)
    vectors = mixed_vectors(10_000, HEAD_DIM)  # (2, heads, pairs)
    lengths = frequencies(HEAD_DIM // 2, 10.0).repeat(2)
    assert difference(vectors.norm(dim=0), lengths.expand(10_000, -1)) < 1e-6
    assert difference(MixedRotary(2, HEAD_DIM).vectors.norm(dim=0), lengths.float().expand(2, -1)) < 1e-6
    quarter = (torch.atan2(*vectors.flip(0))[:, 0] / (torch.pi / 2)).floor().long() + 2
    assert (quarter.bincount() / 10_000).tolist() == pytest.approx([0.25] * 4, abs=0.02)


def test_mrope_stands_in_a_row_with_the_base_of_texts_unless_it_is_told_otherwise():
    own = mrope_vectors(HEAD_DIM, (2, 1, 1), 10_000.0, interleaved=False)
    assert torch.equal(mrope_vectors(HEAD_DIM, (2, 1, 1)), own)
    assert torch.equal(MRotary(HEAD_DIM, (2, 1, 1)).vectors, own)
    assert own.nonzero().tolist() == [[0, 0], [0, 1], [1, 2], [2, 3]]
    dealt = MRotary(HEAD_DIM, (2, 1, 1), 100.0, interleaved=True).vectors
    assert torch.equal(dealt, mrope_vectors(HEAD_DIM, (2, 1, 1), 100.0, interleaved=True))
    assert dealt.nonzero().tolist() == [[0, 0], [0, 3], [1, 1], [2, 2]]


def test_a_frequency_vector_in_one_dimension_is_plain_rotary():
    x = tokens(6)[..., :HEAD_DIM]
    vectors = mrope_vectors(HEAD_DIM, (4, 0, 0))
    ours = GridRotary(vectors).queries_and_keys(x, x, mrope_positions([6]), mrope_positions([6]))
    theirs = Rotary().queries_and_keys(x, x, torch.arange(6), torch.arange(6))
    assert difference(ours[0], theirs[0]) < 1e-12
    assert difference(ours[1], theirs[1]) < 1e-12


def test_vectors_survive_a_cast_and_mixed_ones_are_learned():
    axial = AxialRotary(HEAD_DIM).to(torch.bfloat16)
    assert torch.equal(axial.vectors, axial_vectors(HEAD_DIM))
    mixed = MixedRotary(HEADS, HEAD_DIM)
    assert isinstance(mixed.vectors, nn.Parameter)
    assert mixed.vectors.shape == (2, HEADS, HEAD_DIM // 2)


def test_axial_scores_are_a_sum_over_the_axes_and_mixed_ones_are_not():
    x = tokens(1)[..., :HEAD_DIM]
    at = torch.tensor([[1, 2, 1, 2], [2, 1, 1, 2]])
    for encoding in (AxialRotary(HEAD_DIM), MixedRotary(1, HEAD_DIM, base=2.0).double()):
        queries, keys = encoding.queries_and_keys(x.view(1, 1, -1), x.expand(1, 4, -1), torch.zeros(2, 1), at)
        s = (queries @ keys.mT)[0, 0]
        error = abs(s[0] + s[1] - s[2] - s[3]).item()
        assert error < 1e-12 if isinstance(encoding, AxialRotary) else must_break(error)


def test_centred_places_span_the_frame():
    places = centred(3, 4)
    assert places[:, 0].tolist() == pytest.approx([-2 / 3, -3 / 4])
    assert difference(places.sum(1), torch.zeros(2, dtype=torch.float64)) < 1e-12


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: axial_vectors(6), "multiple of 4, got 6"),
        (lambda: axial_vectors(8, allocation="both"), "'shared' or 'alternating'"),
        (lambda: mixed_vectors(1, 10), "multiple of 4, got 10"),
        (lambda: mrope_vectors(8, (2, 1, 2)), "add up to 4 pairs"),
        (lambda: mrope_vectors(64, (8, 12, 12), interleaved=True), r"it comes to \(11, 11, 10\)"),
        (lambda: grid_angles(grid(2, 2), torch.zeros(3, 4)), "2 axes, the frequency vectors 3"),
        (lambda: mrope_positions([3, 0]), "at least one token, got 0"),
        (lambda: mrope_positions([(1, 0, 2)]), "at least one token"),
    ],
)
def test_bad_input_is_told(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_nothing_has_no_places():
    assert (mrope_positions([]).shape, mrope_positions([]).dtype) == ((3, 0), torch.long)


def test_a_picture_costs_its_longest_side():
    positions = mrope_positions([2, (1, 3, 5), 1])
    assert positions.shape == (3, 2 + 15 + 1)
    assert positions[:, -1].tolist() == [7, 7, 7]
    assert mrope_positions([]).shape == (3, 0)


# --- The predictions of exercise 11.5, measured


def symmetric_table() -> WindowBias:
    bias = WindowBias(4, 4, HEADS, std=1.0)
    with torch.no_grad():
        table = bias.table.view(7, 7, HEADS)
        bias.table.copy_(((table + table.flip(1)) / 2).flatten(0, 1))
    return bias


def film_kept() -> float:
    places = mrope_positions([(3, 2, 2)])
    later = places + torch.tensor([[1], [0], [0]])
    return relabelling_error(layer_with(MRotary(HEAD_DIM, (2, 1, 1))), tokens(12), places, later)


def class_token_stays() -> float:
    places = torch.cat([torch.zeros(2, 1, dtype=torch.long), grid(4, 4)], dim=1)
    moved = torch.cat([places[:, :1], shift_grid(grid(4, 4))], dim=1)
    return relabelling_error(layer_with(AxialRotary(HEAD_DIM)), tokens(17), places, moved)


def moved(encoding: PositionEncoding, move) -> float:
    side = 8 if isinstance(encoding, Windows) else 4
    at = grid(side, side)
    return relabelling_error(layer_with(encoding.double()), tokens(side**2), at, move(at))


MEASURED = {
    "Swin table: all places shifted": lambda: moved(ENCODINGS["Swin table"](), GRID_MOVES["shift"]),
    "Swin table: left and right exchanged": lambda: moved(ENCODINGS["Swin table"](), GRID_MOVES["left-right"]),
    "Swin table with equal entries for (a, b) and (a, -b): left and right exchanged": lambda: moved(
        symmetric_table(), GRID_MOVES["left-right"]
    ),
    "2-D ALiBi: rows and columns exchanged": lambda: moved(ALiBi2D(HEADS), GRID_MOVES["transpose"]),
    "2-D ALiBi: all places doubled": lambda: moved(ALiBi2D(HEADS), lambda places: 2 * places),
    "axial rotary: patches shifted, an unturned class token stays": class_token_stays,
    "mixed rotary: half a turn": lambda: moved(ENCODINGS["mixed rotary"](), GRID_MOVES["half turn"]),
    "windows of 4: all places shifted by 2": lambda: moved(Windows(4), lambda places: places + 2),
    "windows of 4: all places shifted by 8": lambda: moved(Windows(4), lambda places: places + 8),
    "M-RoPE: all frames one second later": film_kept,
}


@pytest.mark.parametrize("name", SCORES_TRUTH)
def test_the_predictions_are_true(name):
    error = MEASURED[name]()
    assert error < 1e-10 if SCORES_TRUTH[name] else must_break(error, 1e-4)


# --- The study


def test_the_stored_study_is_complete():
    found = picture_study.results()
    for task, (_, size, others, *_) in picture_study.TASKS.items():
        assert set(found["measured"][task]) == set(picture_study.SCHEMES)
        for by_seed in found["measured"][task].values():
            assert len(by_seed) >= 5
            for run in by_seed.values():
                assert len(run) == 1 + 2 * len(others)
                assert 0 <= run[f"{size[0]}x{size[1]}"] <= 1


def test_a_study_goes_on_where_it_stopped(tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr(picture_study, "measure", lambda task, scheme, seed: made.append((task, scheme, seed)) or {})
    path = tmp_path / "pictures.json"
    picture_study.study(path, 1, report=lambda _: None)
    first = len(made)
    picture_study.study(path, 2, report=lambda _: None)
    assert len(made) == 2 * first == len(set(made))


def test_tables_are_resampled_or_have_no_answer():
    model = VisionTransformer(2, 32, 1, 4, 10, LearnedGrid(4, 4, 32))
    kept = model.encoding
    assert picture_study.accuracy_at(model, "digits", 6, 6, rescaled=False) is None
    assert 0 <= picture_study.accuracy_at(model, "digits", 6, 6, rescaled=True) <= 1
    assert model.encoding is kept


def test_together_with_a_mask():
    """Swin's layer: windows and a table. Offsets inside a window always have an entry; others are hidden."""
    layer = layer_with(Together(Windows(4), WindowBias(8, 8, HEADS, std=1.0)).double())
    x = tokens(64)
    changed = x.clone()
    changed[-1] = 0  # the last window's last patch
    assert difference(layer(changed, grid(8, 8))[:4], layer(x, grid(8, 8))[:4]) < 1e-12
