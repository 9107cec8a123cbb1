"""Pictures: the stored digits are scikit-learn's, and a scene's label is its geometry."""

import numpy as np
import pytest
import torch

from posenc import images, vision


def test_the_stored_digits_are_scikit_learns() -> None:
    datasets = pytest.importorskip("sklearn.datasets")
    theirs = datasets.load_digits()
    train, test = images.digits()
    ours = torch.cat([train.tokens, test.tokens]).double().numpy() * 16
    labels = torch.cat([train.labels, test.labels]).numpy()
    order = torch.randperm(len(ours), generator=torch.Generator().manual_seed(0)).numpy()
    np.testing.assert_array_equal(ours, theirs.images[order])
    np.testing.assert_array_equal(labels, theirs.target[order])
    assert (len(train), len(test)) == (1_347, 450)


@pytest.mark.parametrize(("make", "axis"), [(images.left_of, 2), (images.above, 1)])
def test_the_brighter_dot_decides_and_half_say_yes(make, axis) -> None:
    task = make(400, 3, height=6, width=10)
    bright, pale = ((task.tokens == ink).nonzero() for ink in (1.0, 0.5))  # (400, 3): example, row, column
    assert len(bright) == len(pale) == 400
    assert torch.equal(task.labels, (bright[:, axis] < pale[:, axis]).long())
    assert task.labels.sum() == 200
    of_two = task.tokens.view(200, 2, -1)
    assert torch.equal(of_two[:, 0].sort().values, of_two[:, 1].sort().values)  # the same set of pixels


def test_quadrants_are_numbered_row_by_row() -> None:
    task = images.quadrant(400, 1, height=4, width=8)
    _, row, column = task.tokens.nonzero().T
    assert torch.equal(task.labels, 2 * (row >= 2) + (column >= 4).long())


def test_mirrored_scenes_are_their_own_mirror_image_and_the_others_are_not() -> None:
    task = images.mirrored(400, 2)
    mirror = (task.tokens == task.tokens.flip(-1)).flatten(1).all(dim=1)
    assert torch.equal(mirror.long(), task.labels)
    assert task.labels.sum() == 200
    assert torch.equal(task.tokens.sum((1, 2)), torch.full((400,), 8.0))  # the number of dots tells nothing


def test_patches_are_cut_row_by_row_and_places_count_rows_first() -> None:
    image = torch.arange(48.0).view(6, 8)
    cut = vision.patches(image, 2)
    rows, columns = vision.grid(3, 4)
    for patch, row, column in zip(cut, rows, columns, strict=True):
        square = image[2 * row : 2 * row + 2, 2 * column : 2 * column + 2]
        assert torch.equal(patch.view(2, 2), square)
    with pytest.raises(ValueError, match="do not fill"):
        vision.patches(image, 5)


def test_without_an_encoding_a_picture_is_a_set_of_patches() -> None:
    model = vision.build(0, side=1, d_model=16, n_layers=2, n_heads=2, n_outputs=3).double()
    image = torch.randn(1, 4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    shuffled = image.flatten()[torch.randperm(24, generator=torch.Generator().manual_seed(1))].view(1, 4, 6)
    assert torch.allclose(model(image), model(shuffled), atol=1e-12)


def test_places_of_their_own_for_each_picture_of_a_batch() -> None:
    """(2, batch, n) reaches the doors with an axis for the heads, as (batch, n) does for texts."""
    from posenc.rotary import rotate

    class ByRow(vision.PositionEncoding):
        def queries_and_keys(self, queries, keys, query_positions, key_positions):
            return rotate(queries, query_positions[0]), rotate(keys, key_positions[0])

    model = vision.build(0, side=2, d_model=16, n_layers=1, n_heads=2, n_outputs=3, encoding=ByRow())
    pictures = torch.randn(3, 8, 8, generator=torch.Generator().manual_seed(0))
    shared = vision.grid(4, 4)
    alike = shared[:, None].expand(2, 3, 16)
    assert torch.allclose(model(pictures, shared), model(pictures, alike), atol=1e-6)
    assert not torch.allclose(model(pictures, 2 * shared), model(pictures, alike), atol=1e-3)
