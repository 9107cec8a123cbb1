"""The symmetry table: measured cells against a table written by hand, and tests that must fail where they have to."""

from collections.abc import Callable
from html import escape
from math import factorial
from xml.etree import ElementTree

import pytest
import torch
from torch import Tensor, nn

from posenc import symmetry_table
from posenc.absolute import Sinusoidal
from posenc.checks.chapter_12 import KEPT_MOVES, free_orders, kept_moves, unseen_layer
from posenc.checks.examine import examine
from posenc.encoding import NoPE, PositionEncoding, Together
from posenc.grids import LearnedGrid, RowAndColumn, Sinusoidal2D
from posenc.learned import Learned
from posenc.masks import Causal, Chunked, SlidingWindow
from posenc.offsets import Shaw, ShawKeys, TransformerXL
from posenc.relative import ALiBi, Fire, Gaussian, KerpleLog, OffsetBias, T5Bias
from posenc.rotary import Rotary
from posenc.rotary_grid import AxialRotary, MixedRotary
from posenc.symmetry_table import (
    BROKEN,
    D_MODEL,
    EXACT,
    GRID_MOVE_NAMES,
    GRIDS,
    HEAD_DIM,
    N_HEADS,
    N_TOKENS,
    SIDE,
    TEXT_MOVES,
    TEXTS,
    WHY,
    Cell,
    Scheme,
    Stack,
    as_html,
    at_random,
    gaps,
    grid_moves,
    in_words,
    kept_by,
    measured,
    reasons_as_html,
    table,
    text_moves,
    why,
)
from posenc.windows import ALiBi2D, ContinuousBias, WindowBias, Windows

# Written by hand, from the definitions of the schemes: what one layer keeps. Everything else is broken.
KEPT = {
    "none": {"any order", "earlier tokens", "shift", "reversal", "stretch"},
    "sinusoids": set(),
    "learned table": set(),
    "Shaw, keys": {"shift"},
    "Shaw, keys + values": {"shift"},
    "Transformer-XL": {"shift"},
    "T5, two-sided": {"shift"},
    "ALiBi, |i - j|": {"shift", "reversal"},
    "KERPLE": {"shift", "reversal"},
    "Gaussian": {"shift", "reversal"},
    "RoPE": {"shift"},
    "sinusoids + RoPE": set(),
    "causal": {"earlier tokens", "shift", "stretch"},
    "window of 3": {"shift"},
    "chunks of 4": set(),
    "causal sinusoids": set(),
    "causal table": set(),
    "causal Shaw": {"shift"},
    "causal T5": {"shift"},
    "causal ALiBi": {"shift"},
    "causal FIRE": set(),
    "causal RoPE": {"shift"},
    "window + RoPE": {"shift"},
    "chunks + RoPE": set(),
}
SHIFTS, MIRRORS = {"shift down", "shift right"}, {"left-right", "up-down", "half turn", "transpose"}
KEPT_ON_GRIDS = {
    "none": {"any order"} | SHIFTS | MIRRORS,
    "learned table": set(),
    "row + column": set(),
    "2-D sin-cos": set(),
    "Swin table": SHIFTS,
    "Swin v2 network": SHIFTS,
    "2-D ALiBi": SHIFTS | MIRRORS,
    "axial RoPE": SHIFTS,
    "mixed RoPE": SHIFTS,
    "windows of 2": MIRRORS,
    "windows + Swin table": set(),
}


@pytest.mark.parametrize("name", TEXTS)
def test_every_cell_of_a_text_is_as_expected_at_one_layer_and_at_two(name):
    for n_layers in (1, 2):
        cells = measured(TEXTS[name], text_moves(N_TOKENS), n_layers, seeds=range(10, 13))
        assert tuple(cells) == TEXT_MOVES
        kept = KEPT[name] - ({"earlier tokens"} if n_layers == 2 and name == "causal" else set())
        assert {move for move, cell in cells.items() if cell.kept} == kept


@pytest.mark.parametrize("name", GRIDS)
def test_every_cell_of_a_grid_is_as_expected(name):
    cells = measured(GRIDS[name], grid_moves(SIDE), seeds=range(10, 13))
    assert tuple(cells) == GRID_MOVE_NAMES
    assert {move for move, cell in cells.items() if cell.kept} == KEPT_ON_GRIDS[name]


def test_what_an_encoding_reads_predicts_its_row():
    for schemes, kept, moves in ((TEXTS, KEPT, TEXT_MOVES), (GRIDS, KEPT_ON_GRIDS, GRID_MOVE_NAMES)):
        assert set(schemes) == set(kept)
        for name, scheme in schemes.items():
            assert {move for move in moves if kept_by(scheme.reads, move)} == kept[name]


# Which moves each kind keeps, the other way round. In a row, a mask that breaks a move hides what stands behind it.
KEEPERS = {
    "any order": {"nothing"},
    "earlier tokens": {"nothing", "before or after"},
    "shift": {"nothing", "before or after", "a window", "the offset", "the distance"},
    "reversal": {"nothing", "the distance"},
    "stretch": {"nothing", "before or after"},
}


def test_each_kind_alone_keeps_what_it_keeps():
    on_texts = [kind for kind, says in WHY.items() if says.keys() >= set(TEXT_MOVES)]
    assert {move: {kind for kind in on_texts if kept_by([kind], move)} for move in TEXT_MOVES} == KEEPERS


READ_BY = {
    **dict.fromkeys([NoPE], "nothing"),
    **dict.fromkeys([Sinusoidal, Learned, LearnedGrid, RowAndColumn, Sinusoidal2D], "the place"),
    **dict.fromkeys([ShawKeys, Shaw, TransformerXL, T5Bias, Rotary], "the offset"),
    **dict.fromkeys([WindowBias, ContinuousBias, AxialRotary, MixedRotary], "the offset"),
    **dict.fromkeys([ALiBi, KerpleLog, Gaussian, ALiBi2D], "the distance"),
    **{Causal: "before or after", SlidingWindow: "a window", Chunked: "chunks", Windows: "square windows"},
    Fire: "a share of the place",
}


def parts(encoding: PositionEncoding) -> list[PositionEncoding]:
    return [*encoding.encodings] if isinstance(encoding, Together) else [encoding]


@pytest.mark.parametrize("schemes", [TEXTS, GRIDS], ids=["texts", "grids"])
def test_a_scheme_reads_what_its_parts_read_in_their_order(schemes):
    for scheme in schemes.values():
        assert scheme.reads == tuple(READ_BY[type(part)] for part in parts(scheme.make()))


def test_a_scheme_is_what_it_is_called():
    made = {name: parts(scheme.make()) for name, scheme in (GRIDS | TEXTS).items()}
    assert made["T5, two-sided"][0].bidirectional
    assert not made["causal T5"][1].bidirectional
    assert made["window of 3"][0].window == made["window + RoPE"][0].window == 3
    assert made["chunks of 4"][0].chunk == made["chunks + RoPE"][0].chunk == 4
    assert made["windows of 2"][0].side == made["windows + Swin table"][0].side == 2
    for shaw in (made["Shaw, keys"][0], made["Shaw, keys + values"][0], made["causal Shaw"][1]):
        assert shaw.key_table.shape[0] == N_HEADS


def test_every_cell_has_its_sentence():
    for schemes, moves in ((TEXTS, TEXT_MOVES), (GRIDS, GRID_MOVE_NAMES)):
        for scheme in schemes.values():
            for move in moves:
                sentence = why(scheme.reads, move)
                assert sentence.endswith(".")
                decides = [k for k in scheme.reads if not WHY[k][move][0]] or [scheme.reads[-1]]
                assert sentence == WHY[decides[0]][move][1]


def test_the_folded_reasons_name_every_reader_and_every_move():
    for schemes, moves in ((TEXTS, TEXT_MOVES), (GRIDS, GRID_MOVE_NAMES)):
        folded = reasons_as_html(moves, schemes).split("<details>")[1:]
        kinds = [kind for kind in WHY if any(kind in scheme.reads for scheme in schemes.values())]
        assert len(folded) == len(kinds)
        for kind, part in zip(kinds, folded, strict=True):
            assert f"<b>{kind}</b>" in part
            for name, scheme in schemes.items():
                assert kind not in scheme.reads or name in part
            for move in moves:
                assert move in part
                assert escape(WHY[kind][move][1]) in part


# --- The moves, and what is measured of each


def test_the_moves_of_a_text_are_those_of_the_definition():
    places, orders, relabelled = text_moves(3)
    assert places.tolist() == [0, 1, 2]
    assert sorted(orders.tolist()) == [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]]
    assert [moved.tolist() for moved in relabelled["shift"]] == [[by, by + 1, by + 2] for by in range(1, 9)]
    assert [moved.tolist() for moved in relabelled["reversal"]] == [[2, 1, 0]]
    assert [moved.tolist() for moved in relabelled["stretch"]] == [[0, 2, 4], [0, 3, 6]]


def test_the_moves_of_a_grid_are_those_of_the_plane():
    places, orders, relabelled = grid_moves(2)
    assert places.tolist() == [[0, 0, 1, 1], [0, 1, 0, 1]]
    assert orders.shape == (200, 4)
    assert (orders.sort(-1).values == torch.arange(4)).all()
    assert len({tuple(order) for order in orders.tolist()}) == 24  # of so many, each is met
    assert torch.equal(orders, grid_moves(2)[1])
    assert [moved.tolist() for moved in relabelled["shift down"]] == [
        [[1, 1, 2, 2], [0, 1, 0, 1]],
        [[2, 2, 3, 3], [0, 1, 0, 1]],
    ]
    assert [moved.tolist() for moved in relabelled["shift right"]] == [
        [[0, 0, 1, 1], [1, 2, 1, 2]],
        [[0, 0, 1, 1], [2, 3, 2, 3]],
    ]
    assert [moved.tolist() for moved in relabelled["half turn"]] == [[[1, 1, 0, 0], [1, 0, 1, 0]]]
    assert relabelled.keys() == set(GRID_MOVE_NAMES) - {"any order"}


def test_gaps_are_the_largest_change_of_each_version_by_hand():
    """A layer that adds 10 times its label, and one that hands on the sum of what stands before."""
    x = torch.tensor([[1.0], [2.0], [4.0]])
    places, orders, relabelled = text_moves(3)
    found = gaps(lambda x, labels: x + 10.0 * labels.unsqueeze(-1), x, places, orders, relabelled)
    by_order = {
        tuple(order): change for order, change in zip(orders.tolist(), found["any order"].tolist(), strict=True)
    }
    assert by_order == {(0, 1, 2): 0, (0, 2, 1): 10, (1, 0, 2): 10, (1, 2, 0): 20, (2, 0, 1): 20, (2, 1, 0): 20}
    assert found["earlier tokens"].tolist() == [0, 0]
    assert found["shift"].tolist() == [10 * by for by in range(1, 9)]
    assert found["reversal"].tolist() == [20]
    assert found["stretch"].tolist() == [20, 40]
    sums = gaps(lambda x, labels: x.cumsum(-2) - x[..., :1, :], x, places, orders, relabelled)
    assert sorted(sums["earlier tokens"].tolist()) == [0, 1]  # the last row holds what the second and the third are
    assert sums["shift"].tolist() == [0] * 8


def test_weights_are_drawn_by_the_seed_and_the_callers_generator_is_left_alone():
    encoding = Learned(32, D_MODEL)
    torch.manual_seed(5)
    stack = at_random(encoding, 2, seed=1)
    after = torch.rand(1)
    torch.manual_seed(5)
    assert torch.equal(after, torch.rand(1))
    again, other = (at_random(Learned(32, D_MODEL), 2, seed=seed) for seed in (1, 2))
    assert torch.equal(stack.encoding.table, again.encoding.table)
    assert not torch.equal(stack.encoding.table, other.encoding.table)
    assert 0.4 < stack.encoding.table.std().item() < 0.6
    assert len(stack.blocks) == 2
    assert len(Stack(NoPE()).blocks) == 1
    assert {weight.dtype for weight in stack.parameters()} == {torch.float64}
    assert stack.blocks[0].attention.n_heads == N_HEADS


class Adding(nn.Module):
    """A layer without weights, wherever a scheme is measured: it adds what a function makes of labels."""

    def __init__(self, seed: int):
        super().__init__()
        self.seed = seed

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        return x + (self.seed + 1) * labels.unsqueeze(-1)


def test_a_cell_holds_the_smallest_error_of_a_broken_move_and_the_largest_of_a_kept_one(monkeypatch):
    made = []

    def layer(encoding: PositionEncoding, n_layers: int, seed: int) -> nn.Module:
        made.append((n_layers, seed))
        return Adding(seed)

    monkeypatch.setattr(symmetry_table, "at_random", layer)
    cells = measured(TEXTS["sinusoids"], text_moves(3), seeds=[4, 1, 2])
    assert made == [(1, 4), (1, 1), (1, 2)]
    assert cells["stretch"].error == pytest.approx(2 * 4)  # of 4 steps, times 5, 2 and 3
    assert (cells["stretch"].kept, cells["stretch"].free, cells["stretch"].versions) == (False, 0, 2)
    assert cells["earlier tokens"].kept
    assert (cells["any order"].free, cells["any order"].versions) == (1, 6)
    made.clear()
    measured(TEXTS["sinusoids"], text_moves(3), n_layers=2)
    assert made == [(2, 0), (2, 1), (2, 2)]
    made.clear()
    table({"one": TEXTS["sinusoids"]}, text_moves(3))
    assert made == [(1, 0), (1, 1), (1, 2)]


class Growing(Adding):
    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        return x + 1e-14 * (self.seed + 1) * labels.unsqueeze(-1)


def test_a_kept_move_has_its_largest_rounding_error(monkeypatch):
    monkeypatch.setattr(symmetry_table, "at_random", lambda encoding, n_layers, seed: Growing(seed))
    cell = measured(TEXTS["none"], text_moves(3), seeds=[1, 4, 2])["stretch"]
    assert (cell.kept, cell.free) == (True, 2)
    assert cell.error == pytest.approx(5 * 4e-14, rel=0.02)


# --- Negative controls: what makes the table blind


class ZeroTable(PositionEncoding):
    """Reads the place, and adds zeros."""

    def tokens(self, x: Tensor, positions: Tensor) -> Tensor:
        return x + 0 * positions.unsqueeze(-1)


def kept_moves_of(make: Callable[[], PositionEncoding], reads: str = "the place") -> set[str]:
    return {m for m, c in measured(Scheme(make, (reads,)), text_moves(N_TOKENS)).items() if c.kept}


def test_a_table_of_zeros_looks_symmetric_so_tables_are_drawn():
    assert kept_moves_of(ZeroTable) == set(TEXT_MOVES)
    t5 = T5Bias(N_HEADS)
    assert not t5.table.any()  # as it starts: it would have looked symmetric
    stack = at_random(t5, 1, seed=0)
    assert stack.encoding.table.std() > 0.3
    for scheme in TEXTS.values():
        for name, weight in at_random(scheme.make(), 1, seed=0).named_parameters():
            assert weight.ndim == 0 or "norm" in name or weight.std() > 1e-3, name


class Faint(OffsetBias):
    def bias(self, offsets: Tensor) -> Tensor:
        return (-1e-6 * offsets.abs()).expand(N_HEADS, -1, -1)


def test_an_effect_between_exact_and_broken_is_refused():
    with pytest.raises(AssertionError, match="neither exact nor broken"):
        measured(Scheme(Faint, ("the distance",)), text_moves(N_TOKENS))


def cell_of(monkeypatch: pytest.MonkeyPatch, *runs: list[float]) -> Cell:
    """The cell of a move whose versions change so much, a list for each seed."""
    answers = iter([{"shift": torch.tensor(run, dtype=torch.float64)} for run in runs])
    monkeypatch.setattr(symmetry_table, "gaps", lambda *_: next(answers))
    return measured(TEXTS["RoPE"], text_moves(2), seeds=range(len(runs)))["shift"]


def test_a_cell_by_hand(monkeypatch):
    reason = WHY["the offset"]["shift"][1]
    assert cell_of(monkeypatch, [0.0, 1e-13, 3.0], [2.0, 1.0]) == Cell(False, 2.0, 2, 3, reason)
    assert cell_of(monkeypatch, [0.0, 1e-14], [0.0, 3e-13], [0.0]) == Cell(True, 3e-13, 2, 2, reason)
    assert cell_of(monkeypatch, [BROKEN, EXACT]) == Cell(False, BROKEN, 0, 2, reason)


@pytest.mark.parametrize("runs", [[[EXACT]], [[1e-13], [1.0]], [[1e-6], [1.0]]], ids=str)
def test_seeds_must_agree_on_exact_or_broken(monkeypatch, runs):
    with pytest.raises(AssertionError, match="neither exact nor broken; draw other weights"):
        cell_of(monkeypatch, *runs)


def test_a_measurement_does_not_depend_on_what_was_drawn_before_and_draws_nothing():
    cells = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        cells.append([measured(TEXTS["RoPE"], text_moves(3), seeds=[0]), measured(GRIDS["axial RoPE"], grid_moves(2))])
        assert torch.equal(torch.get_rng_state(), before)
    assert cells[0] == cells[1]


class Cancelling(PositionEncoding):
    def __init__(self, one: PositionEncoding):
        super().__init__()
        self.one = one

    def tokens(self, x: Tensor, positions: Tensor) -> Tensor:
        return 2 * x - self.one.tokens(x, positions)


def test_two_parts_that_break_may_cancel():
    def both() -> Together:
        sinusoidal = Sinusoidal()
        return Together(sinusoidal, Cancelling(sinusoidal))

    assert kept_moves_of(Sinusoidal) == set()
    assert kept_moves_of(both) == set(TEXT_MOVES)


@pytest.mark.parametrize(("window", "clip"), [(6, 2), (3, 9), (6, 1), (6, 5), (4, 2), (1, 3), (5, 3), (6, 0)])
def test_the_orders_that_are_left_are_counted_rightly(window, clip):
    scheme = Scheme(lambda: Together(SlidingWindow(window), Shaw(HEAD_DIM, clip, N_HEADS)), ("a window", "the offset"))
    x = torch.randn(N_TOKENS, D_MODEL, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    with torch.no_grad():
        change = gaps(at_random(scheme.make(), 1, seed=3), x, *text_moves(N_TOKENS))["earlier tokens"]
    assert int((change < 1e-12).sum()) == free_orders(N_TOKENS, window, clip)
    assert not ((change > 1e-12) & (change < 1e-7)).any()


def test_counts_of_free_orders_and_free_shifts():
    cells = {name: measured(TEXTS[name], text_moves(N_TOKENS), seeds=[0]) for name in TEXTS}
    free = {name: cell["earlier tokens"].free for name, cell in cells.items()}
    assert free["none"] == free["causal"] == 120
    assert free["window of 3"] == 12
    assert free["Shaw, keys"] == free["causal Shaw"] == factorial(4)
    assert free["causal ALiBi"] == free["RoPE"] == free["sinusoids"] == 1
    assert cells["chunks of 4"]["shift"].free == 2  # by 4 and by 8, of 1 to 8
    assert measured(TEXTS["causal"], text_moves(N_TOKENS), 2)["earlier tokens"].free == 1
    assert measured(TEXTS["Shaw, keys"], text_moves(N_TOKENS), 2)["earlier tokens"].free == 1


def test_a_clip_of_one_keeps_the_stretch():
    def one() -> ShawKeys:
        return ShawKeys(HEAD_DIM, clip=1, n_heads=N_HEADS)

    assert kept_moves_of(one) == {"earlier tokens", "shift", "stretch"}  # it reads before, itself, after
    assert kept_moves_of(lambda: Together(Causal(), ALiBi(N_HEADS, 2.0))) == {"shift"}


def test_printed_tables_name_every_scheme():
    cells = table({"none": TEXTS["none"], "RoPE": TEXTS["RoPE"]}, text_moves(4), seeds=[0])
    words = in_words(cells)
    assert all(name in words for name in ("none", "RoPE", *TEXT_MOVES))
    html = as_html(cells, "A <title>")
    assert "A &lt;title&gt;" in html
    assert html.count("<tr>") == 3


BY_HAND = {
    "one": {"shift": Cell(True, 2e-16, 8, 8, "stays."), "reversal": Cell(False, 0.25, 0, 1, "a < b")},
    "two": {"shift": Cell(False, 3.0, 0, 8, "moves."), "reversal": Cell(True, 0.0, 1, 1, "stays.")},
}


def test_a_table_in_words_by_hand():
    assert in_words(BY_HAND).split("\n") == [
        " " * 20 + "           shift" + "        reversal",
        "one" + " " * 17 + "         (2e-16)" + "           2e-01",
        "two" + " " * 17 + "           3e+00" + "         (0e+00)",
    ]


def test_a_table_as_html_by_hand():
    root = ElementTree.fromstring(as_html(BY_HAND, "A <title>"))
    assert root.find(".//caption").text == "A <title>"
    assert [cell.text for cell in root.iterfind(".//thead/tr/th")] == ["encoding", "shift", "reversal"]
    rows = [[cell.text for cell in row] for row in root.iterfind(".//tbody/tr")]
    assert rows == [["one", "✓ 2e-16", "0.2"], ["two", "3", "✓ 0"]]
    cells = root.findall(".//td")
    assert [cell.get("title") for cell in cells] == ["stays.", "a < b", "moves.", "stays."]
    assert ["background" in cell.get("style") for cell in cells] == [True, False, False, True]


def test_folded_reasons_by_hand():
    schemes = {"A": Scheme(NoPE, ("nothing",)), "B": Scheme(NoPE, ("chunks", "nothing"))}
    folded = reasons_as_html(("shift", "any order", "reversal"), schemes)
    nothing, chunks = ElementTree.fromstring(f"<div>{folded}</div>")
    assert ["".join(part.find("summary").itertext()) for part in (nothing, chunks)] == ["nothing: A; B", "chunks: B"]
    assert ["".join(line.itertext()) for line in nothing.iter("li")] == [
        "✓ shift, reversal: Labels are never read.",
        "✓ any order: No term of the formula holds a place.",
    ]
    lines = ["".join(line.itertext()) for line in chunks.iter("li")]
    assert lines[0] == "✗ shift: Edges stay where they are. Only a shift by whole chunks is free."
    assert [line[0] for line in lines] == ["✗"] * 3


def test_predictions_for_several_layers_and_the_sentence_that_decides():
    assert kept_by(("before or after",), "earlier tokens")
    assert not kept_by(("before or after",), "earlier tokens", n_layers=2)
    assert kept_by(("nothing",), "earlier tokens", n_layers=2)
    assert kept_by(("nothing", "nothing"), "earlier tokens", n_layers=3)
    assert not kept_by(("nothing", "before or after"), "earlier tokens", n_layers=2)
    assert kept_by(("before or after",), "shift", n_layers=2)
    assert not kept_by(("the distance", "the place"), "shift")
    assert why(("the distance", "the place"), "shift") == "Other places, other vectors."
    assert why(("the offset", "the distance"), "shift") == "|j - i| stays."
    assert why(("the offset", "the place"), "reversal").startswith("j - i changes its sign")


def test_a_cell_says_how_many_versions_are_free():
    cell = measured(TEXTS["window of 3"], text_moves(N_TOKENS), seeds=[0])["earlier tokens"]
    assert isinstance(cell, Cell)
    assert (cell.kept, cell.free, cell.versions) == (False, 12, 120)
    assert "window" in cell.reason


# --- The exercise with unseen layers


@pytest.mark.parametrize("seed", range(8))
def test_the_reference_finds_what_unseen_layers_keep(seed):
    truth = {
        "layer A": {"any order", "shift", "reversal", "stretch"},
        "layer B": {"shift"},
        "layer C": {"shift", "reversal"},
        "layer D": {"shift", "stretch"},
        "layer E": set(),
        "layer F": set(),
        "layer G": {"reversal"},
        "layer H": {"shift", "reversal"},
        "layer I": {"shift", "stretch"},
        "layer J": {"shift"},
        "layer K": set(),
        "layer L": {"any order", "reversal"},
        "layer M": set(),
        "layer N": {"shift", "stretch"},
        "layer O": {"shift", "stretch"},
        "layer P": {"stretch"},
        "layer Q": set(),
    }
    assert [case.name for case in KEPT_MOVES.cases] == list(truth)
    for case in KEPT_MOVES.cases:
        layer, n, d = case.make(torch.Generator().manual_seed(seed))
        found = {move for move, kept in kept_moves(layer, n, d).items() if kept}
        by_chance = {"reversal"} if case.name == "layer F" and n % 2 else set()  # n - 1 - i is even where i is
        assert found == truth[case.name] | by_chance


def test_one_version_of_each_move_is_not_enough():
    def lucky(layer: Callable, n: int, d: int) -> dict[str, bool]:
        x, labels, order = torch.randn(n, d, dtype=torch.float64), torch.arange(n), torch.randperm(n)
        plain = layer(x, labels)
        same = {
            "any order": layer(x[order], labels) - plain[order],
            "shift": layer(x, labels + 1) - plain,
            "reversal": layer(x, labels.flip(0)) - plain,
            "stretch": layer(x, 2 * labels) - plain,
        }
        return {move: bool(change.abs().max() < 1e-10) for move, change in same.items()}

    for seed in range(10):
        torch.manual_seed(seed)
        wrong = [f.name for f in examine(lucky, KEPT_MOVES, seed).findings if f.complaint]
        assert {"layer L", "layer M"} <= set(wrong)


def test_a_faint_layer_changes_the_output_by_far_more_than_rounding_and_less_than_a_loose_limit():
    (case,) = (case for case in KEPT_MOVES.cases if case.name == "layer H")
    for seed in range(20):
        layer, n, d = case.make(torch.Generator().manual_seed(seed))
        x = torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        change = (layer(x, 2 * torch.arange(n)) - layer(x, torch.arange(n))).abs().max().item()
        assert 3e-8 < change < 5e-6, change


def test_unseen_layers_take_any_float_and_give_float64():
    layer = unseen_layer(Together(Chunked(2), NoPE()), torch.Generator().manual_seed(0))
    assert layer(torch.randn(5, D_MODEL, dtype=torch.float32), torch.arange(5)).dtype == torch.float64
    learned = unseen_layer(Learned(40, D_MODEL), torch.Generator().manual_seed(0))
    assert not learned(torch.randn(5, D_MODEL), torch.arange(5)).requires_grad
