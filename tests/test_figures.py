"""A figure without words is refused; its alt text travels with it."""

import itertools

import matplotlib.pyplot as plt
import numpy as np
import pytest

from posenc import figures

ALT = "A line that rises from zero to one, as a test."


def drawn():
    figure, (axis,) = figures.new()
    axis.plot([0, 1])
    axis.set(title="A line", xlabel="x", ylabel="y")
    return figure, axis


def test_a_complete_figure_is_shown_with_its_alt_text_and_closed(monkeypatch):
    shown = []
    monkeypatch.setattr(figures, "display", lambda figure, metadata: shown.append(metadata))
    figure, _ = drawn()
    figures.show(figure, ALT)
    assert shown == [{"image/png": {"alt": ALT}}]
    assert not plt.fignum_exists(figure.number)


@pytest.mark.parametrize(
    ("spoil", "alt", "words"),
    [
        (lambda axis: axis.set_title(""), ALT, "every axis needs a title"),
        (lambda axis: axis.set_xlabel(""), ALT, "axis 'A line' needs an xlabel and a ylabel"),
        (lambda axis: axis.set_ylabel(""), ALT, "axis 'A line' needs an xlabel and a ylabel"),
        (lambda axis: None, "a plot", "alt text must say what is seen"),
    ],
)
def test_a_figure_without_words_is_refused(spoil, alt, words):
    figure, axis = drawn()
    spoil(axis)
    with pytest.raises(ValueError, match=words):
        figures.show(figure, alt)
    plt.close(figure)


def test_heatmap_writes_every_number_readably():
    figure, (axis,) = figures.new()
    matrix = np.array([[0.0, -1.0], [0.5, 1.0]])
    figures.heatmap(axis, matrix, title="m", x="ab", y="cd", xlabel="x", ylabel="y", signed=True)
    assert [t.get_text() for t in axis.texts] == ["0.00", "-1.00", "0.50", "1.00"]
    for text, value in zip(axis.texts, matrix.ravel(), strict=True):
        background = figures.SIGNED((value + 1) / 2)
        assert contrast(background, plt.matplotlib.colors.to_rgb(text.get_color())) > 3
    plt.close(figure)


def test_palette_is_readable_on_its_paper_and_its_neighbours_differ_in_lightness():
    paper = plt.matplotlib.colors.to_rgb(figures.PAPER)
    assert contrast(plt.matplotlib.colors.to_rgb(figures.INK), paper) > 7
    colours = [plt.matplotlib.colors.to_rgb(c) for c in figures.PALETTE]
    assert len(set(colours)) == len(colours)
    for a, b in itertools.pairwise(colours):
        assert contrast(a, b) > 1.15


def contrast(a, b) -> float:
    """WCAG contrast ratio of two colours."""
    light, dark = sorted((luminance(a), luminance(b)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(colour) -> float:
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour[:3]]
    return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))
