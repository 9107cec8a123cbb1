"""What chapter 10 adds: encodings of a grid, resampling, walks, symmetries of the grid, and the study of sizes."""

import json
from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional as F

from posenc import resolution
from posenc.absolute import Sinusoidal, sinusoids
from posenc.encoding import NoPE
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
from posenc.images import digits
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
    made, said = [], []
    monkeypatch.setattr(resolution, "measure", lambda scheme, seed: made.append((scheme, seed)) or {"done": seed})
    path = tmp_path / "study.json"
    resolution.study(path, 1, report=said.append)
    every = ["none", "table", "large table", "row and column", "2-D sin-cos"]
    every += ["raster", "columns", "snake", "hilbert", "random"]
    assert made == [(scheme, 0) for scheme in every]
    resolution.study(path, 2, report=said.append)
    assert made[10:] == [(scheme, 1) for scheme in every]
    stored = json.loads(path.read_text())
    assert stored["seeds"] == {str(seed): {scheme: {"done": seed} for scheme in every} for seed in (0, 1)}
    assert stored["made"]["command"] == "python -m posenc.resolution --seeds 2"
    assert len(said) == 20


def test_the_encodings_of_the_study():
    torch.manual_seed(0)
    made = {name: make() for name, make in resolution.SCHEMES.items()}
    assert [type(made[name]) for name in ("none", "2-D sin-cos")] == [NoPE, Sinusoidal2D]
    for name, std in (("table", 0.02), ("large table", 0.5**0.5)):
        assert made[name].table.shape == (4, 4, 32)
        assert made[name].table.std().item() == pytest.approx(std, rel=0.15)
    assert [table.shape for table in made["row and column"].parameters()] == [(4, 32), (4, 32)]
    length = sinusoids(torch.arange(16.0), 32).norm(dim=-1)  # the large table's rows are as long as these
    assert made["large table"].table.norm(dim=-1).mean().item() == pytest.approx(length.mean().item(), rel=0.1)


@pytest.mark.parametrize(("walk", "visited"), [("raster", [9, 7]), ("columns", [6, 13]), ("snake", [9, 4])])
def test_along_a_walk_a_patch_is_told_when_it_is_visited(walk, visited):
    encoding, places = resolution.along(walk, 0), torch.tensor([[2, 1], [1, 3]])  # row 2 column 1, row 1 column 3
    expected = sinusoids(torch.tensor(visited), 32)
    assert difference(encoding.tokens(torch.zeros(2, 32).double(), places), expected) < 1e-6


def test_random_walks_differ_by_their_seed():
    places = grid(4, 4)
    one, same, other = (resolution.along("random", s).tokens(torch.zeros(16, 8).double(), places) for s in (0, 0, 1))
    assert torch.equal(one, same)
    must_break(difference(one, other))


def test_how_the_models_of_the_study_are_trained(monkeypatch):
    calls = []
    monkeypatch.setattr(resolution, "train", lambda model, task, **how: calls.append((model, task, how)))
    before = torch.get_rng_state()
    model, same, other = (resolution.trained("table", seed) for seed in (3, 3, 4))
    assert torch.equal(torch.get_rng_state(), before)
    assert calls[0][0] is model
    assert calls[0][1] is digits()[0]
    assert calls[0][2] == {"steps": 300, "batch": 64, "seed": 3}
    assert resolution.trained("raster", 0, steps=7).encoding.number.tolist() == list(range(16))
    assert calls[-1][2] == {"steps": 7, "batch": 64, "seed": 0}
    assert (model.side, len(model.blocks), model.blocks[0].attention.n_heads) == (2, 2, 4)
    assert (model.embedding.out_features, model.to_logits.out_features) == (32, 10)
    assert torch.equal(model.encoding.table, same.encoding.table)
    assert torch.equal(model.embedding.weight, same.embedding.weight)
    must_break(difference(model.encoding.table, other.encoding.table))
    must_break(difference(model.embedding.weight, other.embedding.weight))


def test_the_pictures_of_the_test_are_scaled_to_so_many_patches():
    task = resolution.test_at(3, 8)
    assert torch.equal(task.labels, digits()[1].labels)
    expected = F.interpolate(digits()[1].tokens[:, None], (6, 16), mode="bilinear")[:, 0]
    assert difference(task.tokens, expected) == 0


class Reader:
    """Stands in for a model: reads the first 100 of the 450 pictures rightly, and notes what it was given."""

    encoding = "its own"

    def __call__(self, pictures, places):
        assert not torch.is_grad_enabled()
        self.given = (tuple(pictures.shape), places, self.encoding)
        right = torch.arange(450) < 100
        return F.one_hot((digits()[1].labels + ~right) % 10, 10).double()


def test_an_accuracy_is_the_share_read_rightly_with_what_was_asked_for():
    model = Reader()
    assert resolution.accuracy_at(model, (3, 4)) == 0.2222
    assert model.given == ((450, 6, 8), None, "its own")
    assert resolution.accuracy_at(model, (4, 3), "places", "another") == 0.2222
    assert model.given == ((450, 8, 6), "places", "another")
    assert model.encoding == "its own"


@pytest.fixture
def asked(monkeypatch):
    """What `ways` asks `accuracy_at` for: (model, size, places, encoding)."""
    monkeypatch.setattr(
        resolution, "accuracy_at", lambda model, size, places=None, encoding=None: (model, size, places, encoding)
    )


def test_the_ways_to_resample_a_table_are_torchs(asked):
    model = SimpleNamespace(encoding=LearnedGrid(4, 4, 8, std=1.0))
    ways = {
        "bicubic": {"mode": "bicubic"},
        "bicubic, antialiased": {"mode": "bicubic", "antialias": True},
        "bilinear": {"mode": "bilinear"},
        "bilinear, antialiased": {"mode": "bilinear", "antialias": True},
        "bilinear, corners kept": {"mode": "bilinear", "align_corners": True},
    }
    found = resolution.ways(model, (3, 6))
    assert list(found) == list(ways)
    for name, how in ways.items():
        read, size, places, encoding = found[name]()
        assert (read, size, places) == (model, (3, 6), None)
        expected = F.interpolate(model.encoding.table.permute(2, 0, 1)[None], (3, 6), **how)[0].permute(1, 2, 0)
        assert difference(encoding.table, expected) < 1e-6


def test_the_ways_to_read_other_encodings(asked):
    model = SimpleNamespace(encoding=RowAndColumn(4, 4, 8, std=1.0))
    ((name, read),) = resolution.ways(model, (3, 6)).items()
    found, size, places, encoding = read()
    assert (name, found, size, places) == ("linear, ends kept", model, (3, 6), None)
    assert torch.equal(encoding.rows, resize_table(model.encoding.rows, 3))
    assert torch.equal(encoding.columns, resize_table(model.encoding.columns, 6))

    for encoding in (NoPE(), resolution.along("raster", 0)):
        model = SimpleNamespace(encoding=encoding)
        found = resolution.ways(model, (3, 6))
        assert {name: read() for name, read in found.items()} == {"indices": (model, (3, 6), None, None)}

    model = SimpleNamespace(encoding=Sinusoidal2D())
    found = {name: read() for name, read in resolution.ways(model, (3, 6)).items()}
    assert list(found) == ["indices", "places in the picture", "places, corners kept"]
    assert [(each[0], each[1], each[3]) for each in found.values()] == [(model, (3, 6), None)] * 3
    indices, inside, corners = (places for _, _, places, _ in found.values())
    assert indices is None
    assert inside[:, 0].tolist() == pytest.approx([1 / 6, -1 / 6])  # the centre of a cell of 4/3 by 2/3 patches
    assert corners[:, [0, -1]].tolist() == [[0, 3], [0, 3]]


def test_what_is_measured_of_a_scheme(monkeypatch):
    trained = []

    def model_of(scheme: str, seed: int, steps: int = 300) -> SimpleNamespace:
        trained.append((scheme, seed, steps))
        torch.manual_seed(steps)
        return SimpleNamespace(encoding=LearnedGrid(4, 4, 8) if "table" in scheme else NoPE())

    monkeypatch.setattr(resolution, "trained", model_of)
    monkeypatch.setattr(resolution, "ways", lambda model, size: {"way": lambda: size})
    sizes = {"4x4": (4, 4), "3x3": (3, 3), "6x6": (6, 6), "8x8": (8, 8), "4x8": (4, 8), "8x4": (8, 4)}
    found = resolution.measure("none", 5)
    assert list(found.items()) == [(name, {"way": size}) for name, size in sizes.items()]
    assert resolution.measure("snake", 5) == {"4x4": {"way": (4, 4)}}
    trained.clear()
    found = resolution.measure("table", 5)
    assert trained == [("table", 5, 300), ("table", 5, 0)]
    assert list(found) == [*sizes, "cosines"]
    assert list(found["cosines"]) == ["start", "trained"]
    for name, steps in (("start", 0), ("trained", 300)):
        table = model_of("table", 5, steps).encoding.table.detach().reshape(16, 8)
        expected = torch.corrcoef(torch.cat([table - table.mean(0), -(table - table.mean(0))], dim=1))
        assert difference(torch.tensor(found["cosines"][name]), expected) < 6e-4  # three decimals
        assert any(round(x, 2) != x for row in found["cosines"][name] for x in row)
        assert all(round(x, 3) == x for row in found["cosines"][name] for x in row)


def test_cosines_are_of_what_differs_from_the_mean():
    rows = torch.tensor([[4.0, 2.0], [1.0, 6.0], [-2.0, -2.0]])  # less the mean: (3, 0), (0, 4), (-3, -4)
    expected = torch.tensor([[1.0, 0.0, -0.6], [0.0, 1.0, -0.8], [-0.6, -0.8, 1.0]])
    assert difference(resolution.cosines(rows), expected) < 1e-6
