"""What chapter 10 adds: encodings of a grid, resampling, walks, symmetries of the grid, and the study of sizes."""

import pytest
import torch

from posenc import resolution
from posenc.absolute import Sinusoidal, sinusoids
from posenc.grids import (
    Flattened,
    LearnedGrid,
    RowAndColumn,
    Sinusoidal2D,
    check_places,
    places_in,
    resample,
    sinusoids_2d,
    traversal,
)
from posenc.learned import Learned, resize_table
from posenc.symmetry import GRID_MOVES, difference, must_break, relabelling_error, shift_grid
from posenc.vision import build, grid

SIZES = {"side": 1, "d_model": 16, "n_layers": 1, "n_heads": 2, "n_outputs": 3}


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# --- 2-D sin-cos


def by_loop(row: float, column: float, d_model: int, base: float) -> dict[str, torch.Tensor]:
    quarter = d_model // 4
    turns = torch.tensor([base ** (-k / quarter) for k in range(quarter)], dtype=torch.float64)
    return {"r": row * turns, "c": column * turns}


@pytest.mark.parametrize("base", [100.0, 10_000.0])
@pytest.mark.parametrize(
    ("parts", "order"),
    [("rows first", "rs rc cs cc"), ("columns first", "cs cc rs rc"), ("sines first", "rs cs rc cc")],
)
def test_the_three_orders_of_the_parts(parts, order, base):
    places = torch.stack([normal(5), normal(5, seed=1)]) * 20
    vectors = sinusoids_2d(places, 12, base, parts)
    for vector, (row, column) in zip(vectors, places.T.tolist(), strict=True):
        angles = by_loop(row, column, 12, base)
        wanted = [(torch.sin if f == "s" else torch.cos)(angles[axis]) for axis, f in order.split()]
        assert difference(vector.double(), torch.cat(wanted)) < 1e-5


def test_sinusoids_2d_are_added_to_the_tokens():
    x, places = normal(2, 6, 8), grid(2, 3)
    expected = x + sinusoids_2d(places, 8, 10_000.0, "rows first").double()
    assert torch.equal(Sinusoidal2D().tokens(x, places), expected)
    assert torch.equal(x + sinusoids_2d(places, 8).double(), expected)
    other = x + sinusoids_2d(places, 8, 100.0, "sines first").double()
    assert torch.equal(Sinusoidal2D(100.0, "sines first").tokens(x, places), other)


def test_sinusoids_2d_takes_places_of_a_batch_and_refuses_what_it_cannot_do():
    places = torch.stack([grid(2, 3), grid(2, 3) + 4], dim=1)  # (2, batch, n)
    vectors = sinusoids_2d(places, 8)
    assert vectors.shape == (2, 6, 8)
    assert torch.equal(vectors[1], sinusoids_2d(grid(2, 3) + 4, 8))
    with pytest.raises(ValueError, match="multiple of 4; got 6"):
        sinusoids_2d(grid(2, 2), 6)
    with pytest.raises(ValueError, match="got 'cosines first'"):
        sinusoids_2d(grid(2, 2), 8, parts="cosines first")


def test_the_dot_product_is_a_sum_over_the_axes():
    vectors = sinusoids_2d(grid(5, 6), 16).double()
    line = sinusoids(torch.arange(6), 8).double()
    f = line @ line[0]
    rows, columns = grid(5, 6)
    wanted = f[(rows[:, None] - rows).abs()] + f[(columns[:, None] - columns).abs()]
    assert difference(vectors @ vectors.mT, wanted) < 1e-4


# --- tables


def encodings() -> dict:
    torch.manual_seed(0)
    return {
        "table": LearnedGrid(6, 7, 16, std=1.0),
        "row and column": RowAndColumn(6, 7, 16, std=1.0),
        "sin-cos": Sinusoidal2D(),
        "flattened": Flattened(Sinusoidal(), traversal(6, 7, "snake"), columns=7),
    }


@pytest.mark.parametrize("name", encodings())
def test_every_encoding_takes_shared_places_and_places_of_a_batch_and_keeps_the_dtype(name):
    encoding = encodings()[name]
    shared = grid(4, 5)
    apart = torch.stack([shared, shift_grid(shared)], dim=1)
    x = normal(2, 20, 16)
    alike = encoding.tokens(x, shared)
    assert difference(encoding.tokens(x, apart)[0], alike[0]) == 0
    must_break(difference(encoding.tokens(x, apart)[1], alike[1]))
    assert encoding.tokens(x.bfloat16(), shared).dtype == torch.bfloat16


def test_row_and_column_is_a_table_of_sums():
    encoding = encodings()["row and column"]
    table = encoding.rows[:, None] + encoding.columns
    got = encoding.tokens(torch.zeros(42, 16), grid(6, 7))
    assert difference(got, table.flatten(0, 1)) == 0


@pytest.mark.parametrize("make", [LearnedGrid, RowAndColumn])
def test_tables_refuse_places_that_they_do_not_have(make):
    encoding, x = make(3, 4, 8), torch.zeros(1, 8)
    for place, words in (((3, 0), "rows 3 to 3 asked, 0 to 2"), ((0, 4), "columns 4 to 4"), ((-1, 0), "rows -1 to -1")):
        with pytest.raises(ValueError, match=words):
            encoding.tokens(x, torch.tensor(place)[:, None])
    for places, words in (([[-1, 2], [0, 0]], "rows -1 to 2 asked"), ([[0, 0], [0, 9]], "columns 0 to 9 asked")):
        with pytest.raises(ValueError, match=words):
            encoding.tokens(torch.zeros(2, 8), torch.tensor(places))
    with pytest.raises(ValueError, match="whole places"):
        encoding.tokens(x, torch.tensor([[0.5], [0.0]]))
    check_places(torch.zeros(2, 0, dtype=torch.long), 3, 4)


def test_a_flat_table_and_a_grid_of_two_indices_are_the_same():
    rows = normal(20, 16).float()
    flat, two = Flattened(Learned(20, 16), traversal(4, 5, "raster"), columns=5), LearnedGrid(4, 5, 16)
    flat.encoding.table.data, two.table.data = rows, rows.view(4, 5, 16)
    assert difference(flat.tokens(torch.zeros(20, 16), grid(4, 5)), two.tokens(torch.zeros(20, 16), grid(4, 5))) == 0


@pytest.mark.parametrize("walk", ["columns", "snake"])
def test_a_flattened_grid_counts_the_patches_in_the_order_of_the_walk(walk):
    order = traversal(2, 3, walk)
    flat = Flattened(Learned(6, 4), order, columns=3)
    added = flat.tokens(torch.zeros(6, 4), grid(2, 3))
    assert torch.equal(added[order], flat.encoding.table)


# --- resampling


def hat(places: torch.Tensor, n: int) -> torch.Tensor:
    """Bilinear weights along one axis. (new, n)."""
    return (1 - (places.clamp(0, n - 1)[:, None] - torch.arange(n)).abs()).clamp(min=0)


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("size", [(2, 3), (7, 5), (4, 12), (1, 1), (4, 5)])
def test_bilinear_resampling_reads_the_table_at_the_places(size, align_corners):
    old = normal(4, 5, 3)
    rows, columns = places_in(4, 5, *size, align_corners).view(2, *size)
    weights = hat(rows[:, 0], 4), hat(columns[0], 5)
    wanted = torch.einsum("ri,cj,ijd->rcd", *weights, old)
    assert difference(resample(old, *size, mode="bilinear", align_corners=align_corners), wanted) < 1e-12


def test_resampling_keeps_dtypes_and_half_precision_is_rounded_once():
    old = normal(4, 4, 3)
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        assert resample(old.to(dtype), 6, 5).dtype == dtype
    rounded = old.bfloat16()
    assert torch.equal(resample(rounded, 6, 5), resample(rounded.float(), 6, 5).bfloat16())


def test_resampled_encodings_leave_the_old_ones_alone():
    for name in ("table", "row and column"):
        encoding = encodings()[name]
        before = [p.clone() for p in encoding.parameters()]
        other = encoding.resampled(3, 9)
        assert other.tokens(torch.zeros(27, 16), grid(3, 9)).shape == (27, 16)
        assert all(torch.equal(a, b) for a, b in zip(before, encoding.parameters(), strict=True))
        assert all(p.requires_grad for p in other.parameters())


def test_tables_start_as_small_noise():
    torch.manual_seed(0)
    for encoding in (LearnedGrid(20, 20, 64), RowAndColumn(100, 100, 64)):
        for start in encoding.parameters():
            assert start.std().item() == pytest.approx(0.02, rel=0.05)


def test_a_table_is_resampled_bicubically_and_by_areas_unless_it_is_told_otherwise():
    encoding = LearnedGrid(4, 5, 3)
    table = encoding.table.detach()
    for got in (encoding.resampled(3, 7).table, resample(table, 3, 7)):
        assert torch.equal(got, resample(table, 3, 7, "bicubic", align_corners=False, antialias=False))
    for settings in ({"align_corners": True}, {"antialias": True}):
        other = encoding.resampled(2, 3, "bilinear", **settings).table
        assert torch.equal(other, resample(table, 2, 3, "bilinear", **settings))
        must_break(difference(other, resample(table, 2, 3, "bilinear")), 1e-5)


def test_tables_of_rows_and_of_columns_are_stretched_each_by_itself():
    encoding = RowAndColumn(4, 5, 8)
    other = encoding.resampled(7, 2)
    assert torch.equal(other.rows, resize_table(encoding.rows.detach(), 7))
    assert torch.equal(other.columns, resize_table(encoding.columns.detach(), 2))


def test_places_of_the_same_grid_are_its_own():
    for align_corners in (False, True):
        assert difference(places_in(3, 5, 3, 5, align_corners), grid(3, 5).double()) < 1e-12


# --- the model


def test_a_vision_transformer_reads_the_mean_of_its_patches_where_they_stand():
    images, encoding = normal(2, 4, 6), Sinusoidal2D()
    model, same, other = (build(seed, **(SIZES | {"side": 2}), encoding=encoding).double() for seed in (0, 0, 1))
    rows = model.rows(images)
    assert rows.shape == (2, 6, 16)
    assert difference(model(images), model.to_logits(rows.mean(dim=1))) < 1e-12
    assert difference(model.rows(images, grid(2, 3)), rows) == 0
    must_break(difference(model.rows(images, grid(3, 2)), rows))
    assert difference(same(images), model(images)) == 0
    must_break(difference(other(images), model(images)))


# --- walks


@pytest.mark.parametrize("name", ["raster", "columns", "snake", "hilbert", "random"])
def test_a_walk_visits_every_patch_once(name):
    assert sorted(traversal(8, 8, name).tolist()) == list(range(64))


def test_where_the_walks_begin_and_turn():
    walks = {"raster": [0, 1, 2, 3, 4, 5], "columns": [0, 3, 1, 4, 2, 5], "snake": [0, 1, 2, 5, 4, 3]}
    assert {name: traversal(2, 3, name).tolist() for name in walks} == walks
    assert traversal(2, 2, "hilbert").tolist() == [0, 2, 3, 1]
    torch.manual_seed(5)
    state = torch.get_rng_state()
    assert torch.equal(traversal(4, 4, "random"), traversal(4, 4, "random", seed=0))
    assert torch.equal(torch.get_rng_state(), state)
    assert not torch.equal(traversal(4, 4, "random"), traversal(4, 4, "random", seed=1))


@pytest.mark.parametrize(("name", "size"), [("snake", (5, 6)), ("hilbert", (8, 8)), ("hilbert", (2, 2))])
def test_snake_and_hilbert_make_steps_of_one(name, size):
    rows, columns = grid(*size)[:, traversal(*size, name)]
    assert ((rows.diff().abs() + columns.diff().abs()) == 1).all()
    raster = grid(*size)[:, traversal(*size, "raster")]
    must_break((raster.diff().abs().sum(0) - 1).max().item())


def test_hilbert_walks_through_one_quarter_after_another():
    rows, columns = grid(8, 8)[:, traversal(8, 8, "hilbert")].view(2, 4, 16)
    assert (rows.amax(1) - rows.amin(1) == 3).all()
    assert (columns.amax(1) - columns.amin(1) == 3).all()


def test_walks_refuse_what_they_cannot_do():
    with pytest.raises(ValueError, match="got 4 by 6"):
        traversal(4, 6, "hilbert")
    with pytest.raises(ValueError, match="no walk named 'spiral'"):
        traversal(4, 4, "spiral")


# --- symmetries


def test_the_moves_of_a_grid():
    moved = {name: move(grid(2, 3)).T.tolist() for name, move in GRID_MOVES.items()}
    assert moved["shift"][0] == [1, 1]
    assert moved["left-right"][0] == [0, 2]
    assert moved["up-down"][0] == [1, 0]
    assert moved["half turn"][0] == [1, 2]
    assert moved["transpose"][2] == [2, 0]
    for name in ("left-right", "up-down", "half turn", "transpose"):
        twice = GRID_MOVES[name](GRID_MOVES[name](grid(2, 3)))
        assert torch.equal(twice, grid(2, 3))


@pytest.mark.parametrize("move", GRID_MOVES)
def test_moving_labels_moves_the_picture_where_patches_are_pixels(move):
    """What the symmetry test measures: a model that reads labels moved by a flip reads the flipped picture."""
    model = build(0, **SIZES, encoding=Sinusoidal2D()).double()
    picture, places = normal(1, 4, 4), grid(4, 4)
    error = relabelling_error(model, picture, places, GRID_MOVES[move](places))
    must_break(error)
    pictures = {
        "left-right": picture.flip(-1),
        "up-down": picture.flip(-2),
        "half turn": picture.flip(-1, -2),
        "transpose": picture.mT,
    }
    if move in pictures:
        assert abs(difference(model(pictures[move]), model(picture)) - error) < 1e-9
    without = build(0, **SIZES).double()
    assert relabelling_error(without, picture, places, GRID_MOVES[move](places)) < 1e-12


# --- the study


def test_the_stored_study_is_complete():
    stored = resolution.results()
    assert stored["made"]["command"] == "python -m posenc.resolution --seeds 5"
    assert set(stored["seeds"]) == set("01234")
    for done in stored["seeds"].values():
        assert set(done) == {*resolution.SCHEMES, *resolution.WALKS}
        assert set(done["table"]) == {f"{r}x{c}" for r, c in resolution.SIZES} | {"cosines"}
        assert set(done["table"]["6x6"]) == set(resolution.RECIPES)


def test_reading_with_another_encoding_leaves_the_model_as_it_was():
    model = resolution.trained("table", 0, steps=1)
    encoding = model.encoding
    ways = resolution.ways(model, (4, 4))
    shares = {name: read() for name, read in ways.items()}
    assert len(set(shares.values())) == 1  # the size of training: nothing to resample
    assert model.encoding is encoding


def test_the_study_goes_on_where_it_stopped(tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr(resolution, "measure", lambda scheme, seed: made.append((scheme, seed)) or {"done": 1})
    path = tmp_path / "study.json"
    resolution.study(path, 1, report=lambda _: None)
    assert len(made) == len(resolution.SCHEMES) + len(resolution.WALKS)
    resolution.study(path, 2, report=lambda _: None)
    assert len(made) == 2 * (len(resolution.SCHEMES) + len(resolution.WALKS))
    assert {seed for _, seed in made[len(made) // 2 :]} == {1}
