"""The quizzes of the chapters: their form as a whole, and every answer that a few lines can settle, run.

A check of question 3 of chapter 6 is a function with `@settles(6, 3)`. It returns, for the beginning of each choice,
whether the choice holds; `test_answer_is_what_runs` demands that just the choice marked right does.
"""

import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction

import pytest
import torch
from nbformat.v4 import new_markdown_cell, new_notebook
from torch import Tensor
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from posenc import contexts, costs, grids, offsets, relative, rotary_grid, windows
from posenc.absolute import Sinusoidal, frequencies, sinusoids, step_matrix
from posenc.attention import Attention, attention
from posenc.encoding import NoPE, PositionEncoding, Together
from posenc.learned import Learned, resize_table
from posenc.masks import Causal, Chunked, Given, SlidingWindow, causal, padding, sliding_window
from posenc.model import build
from posenc.rotary import Rotary, rotate, turn, weights_to_halves
from posenc.symmetry import flip_left_right
from posenc.symmetry_table import at_random
from posenc.tasks import spell
from posenc.vision import grid
from tools import files, prose, quiz

CHAPTERS = {int(path.name[:2]): files.read(path) for path in files.notebooks(folders=("chapters",))}
QUIZZES = {chapter: quiz.questions(notebook) for chapter, notebook in CHAPTERS.items()}
TINY = 1e-9  # what rounding may do in float64; what is broken here is larger than a thousandth
Check = Callable[[], dict[str, bool]]
CHECKS: dict[tuple[int, int], Check] = {}


def settles(chapter: int, question: int) -> Callable[[Check], Check]:
    def keep(check: Check) -> Check:
        assert (chapter, question) not in CHECKS
        CHECKS[chapter, question] = check
        return check

    return keep


@pytest.fixture(autouse=True)
def sixteen_digits() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    yield
    torch.set_default_dtype(before)


# ---- the form of all quizzes together (what one must be alone, tools/guard.py demands)


def test_the_right_choice_stands_in_every_place_about_equally_often() -> None:
    places = Counter(
        [choice.is_right for choice in question.choices].index(True) for asked in QUIZZES.values() for question in asked
    )
    n = sum(places.values())
    assert n == 5 * len(CHAPTERS)
    assert all(0.2 * n <= places[place] <= 0.3 * n for place in range(4)), places


def test_the_right_choice_is_not_the_longest_by_habit() -> None:
    longest = [
        all(len(choice.text) <= len(right.text) for choice in question.choices)
        for asked in QUIZZES.values()
        for question in asked
        for right in question.choices
        if right.is_right
    ]
    assert sum(longest) <= 0.4 * len(longest), f"{sum(longest)} of {len(longest)}"


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_every_section_that_an_answer_names_is_there(chapter: int) -> None:
    """`(*The statement*)` at the end of an answer names a heading of the chapter."""
    cells = [cell for cell in CHAPTERS[chapter].cells if cell.cell_type == "markdown"]
    headings = {heading.lstrip("# ").replace("*", "") for cell in cells for heading in prose.headings(cell.source)}
    named = [
        name
        for question in QUIZZES[chapter]
        for choice in question.choices
        for name in re.findall(r"\(\*([^*]+)\*[,)]", choice.reason)
    ]
    assert set(named) <= headings
    assert len(named) >= 3


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_quiz_stands_after_the_interview_and_asks(chapter: int) -> None:
    cells = [cell for cell in CHAPTERS[chapter].cells if cell.cell_type == "markdown"]
    headings = [heading for cell in cells for heading in prose.headings(cell.source)]
    place = headings.index("## Quiz")
    assert (headings[place - 1], headings[place + 1]) == ("## If an interviewer asks", "## Sources")
    assert all(question.text.endswith("?**") for question in QUIZZES[chapter])


def test_reading_a_quiz() -> None:
    text = (
        "## Quiz\n\nDecide.\n\n**1. Who?**\n\n"
        "<details>\n<summary><code>a &lt; b</code></summary>\n\n**Right.** So.\n\n</details>\n\n"
        "<details>\n<summary>you</summary>\n\n**No.** Why?\n\n</details>\n\n## Sources\n\n**2.** none"
    )
    (question,) = quiz.questions(new_notebook(cells=[new_markdown_cell(text)]))
    assert (question.number, question.text) == (1, "Who?**")
    assert [(c.text, c.is_right, c.reason) for c in question.choices] == [
        ("a < b", True, "So."),
        ("you", False, "Why?"),
    ]
    assert quiz.questions(new_notebook(cells=[new_markdown_cell("## Sources")])) == []


# ---- every answer that a few lines can settle


def test_most_answers_are_run() -> None:
    assert len(CHECKS) >= 0.8 * sum(map(len, QUIZZES.values()))
    assert {chapter for chapter, _ in CHECKS} == set(CHAPTERS)


@pytest.mark.parametrize(("chapter", "number"), CHECKS, ids=lambda n: f"{n:02}")
def test_answer_is_what_runs(chapter: int, number: int) -> None:
    choices = QUIZZES[chapter][number - 1].choices
    holds = {}
    for begins, true in CHECKS[chapter, number]().items():
        found = [choice.text for choice in choices if choice.text.startswith(begins)]
        (text,) = [begins] if begins in found else found
        holds[text] = bool(true)
    assert holds == {choice.text: choice.is_right for choice in choices}


def one_of(answer: object, texts: Iterable[str]) -> dict[str, bool]:
    """The choice that says what came out."""
    return {text: text == str(answer) for text in texts}


def gap(a: Tensor, b: Tensor) -> float:
    assert a.shape == b.shape
    return (a - b).abs().max().item()


def same(a: Tensor, b: Tensor) -> bool:
    """Equal up to rounding, or clearly different."""
    assert not TINY < gap(a, b) < 1e-4, gap(a, b)
    return gap(a, b) < TINY


def stack(encoding: PositionEncoding, n_layers: int = 1) -> Callable[[Tensor, Tensor], Tensor]:
    """Blocks with random weights and tables, width 16: tokens (n, 16) and labels to rows (n, 16)."""
    model = at_random(encoding, n_layers, seed=0)
    return lambda x, labels: model(x, labels).detach()


def words(encoding: PositionEncoding | None = None, n_layers: int = 2, readout: str = "mean") -> Callable:
    """A model of letters with random weights: a word to three numbers (or to three for each letter)."""
    model = build(
        0, vocabulary=27, d_model=32, n_layers=n_layers, n_heads=4, n_outputs=3, encoding=encoding, readout=readout
    )
    return lambda word, bos=False: model(torch.cat([torch.tensor([26])[: int(bos)], spell(word)])[None])[0].detach()


# ---- 1


@settles(1, 1)
def rows_after_a_shuffle() -> dict[str, bool]:
    layer, x = Attention(8, 2), torch.randn(3, 8)
    rows, after = layer(x), layer(x[[2, 0, 1]])  # D O G, then G D O
    orders = {"r3, r1, r2": [2, 0, 1], "r1, r2, r3": [0, 1, 2], "r2, r3, r1": [1, 2, 0]}
    holds = {text: same(after, rows[order]) for text, order in orders.items()}
    return holds | {"three new vectors": not any(holds.values())}


@settles(1, 2)
def what_an_unrelated_token_leaves_alone() -> dict[str, bool]:
    layer, x = Attention(8), torch.randn(5, 8)
    other = torch.cat([x[:4], torch.randn(1, 8)])
    scores = [layer.to_queries(t) @ layer.to_keys(t).T for t in (x, other)]
    rows = [layer(t) for t in (x, other)]
    return {
        "the score": same(scores[0][0, 1], scores[1][0, 1]),
        "the weight": same(scores[0].softmax(-1)[0, 1], scores[1].softmax(-1)[0, 1]),
        "the output row": same(rows[0][0], rows[1][0]),
        "the mean": same(rows[0].mean(0), rows[1].mean(0)),
    }


@settles(1, 4)
def which_line_is_a_sound_test() -> dict[str, bool]:
    """Sound: it passes a correct layer, and fails one that ignores the order in which its rows came."""
    torch.set_default_dtype(torch.float32)
    right, x, p = Attention(64, 4), torch.randn(128, 64), torch.randperm(128)

    def sorts(x: Tensor) -> Tensor:
        return x[x[:, 0].argsort()]

    lines = {choice.text: choice.text.removeprefix("assert ") for choice in QUIZZES[1][3].choices}
    names = {"torch": torch, "x": x, "p": p}
    return {
        text: eval(line, names | {"f": right}) and not eval(line, names | {"f": sorts}) for text, line in lines.items()
    }


@settles(1, 5)
def labels_move_along() -> dict[str, bool]:
    layer, x, labels = Attention(8, 2, Causal()), torch.randn(6, 8), torch.arange(6)
    order = torch.tensor([3, 0, 5, 1, 2, 4])
    stays = (layer(x[order], labels[order]) - layer(x, labels)[order]).abs().amax(-1) < TINY
    in_text = stays[order.argsort()]
    return {
        "Each token": stays.all(),
        "All vectors": not stays.any(),
        "Only the first": in_text[0] and not in_text[1:].any(),
        "Later tokens": in_text[0] and not in_text[-1],
    }


# ---- 2


@settles(2, 1)
def words_that_tie() -> dict[str, bool]:
    read = words()
    pairs = [choice.text for choice in QUIZZES[2][0].choices]
    return {pair: same(*map(read, pair.split(" and "))) for pair in pairs}


@settles(2, 2)
def out_of_reach_of_shares() -> dict[str, bool]:
    """Two words of the same shares with different answers. (Bags are enough: no question is about order.)"""
    questions: dict[str, Callable[[str], bool]] = {
        "Is at least a third": lambda word: 3 * word.count("A") >= len(word),
        "Has it exactly three": lambda word: len(set(word)) == 3,
        "Has it more letters A": lambda word: word.count("A") > word.count("B"),
        "Has it an even number": lambda word: len(word) % 2 == 0,
    }
    bags = ["".join(b) for n in range(1, 13) for b in itertools.combinations_with_replacement("ABCD", n)]
    return {name: _mixed(question, bags) for name, question in questions.items()}


def _mixed(question: Callable[[str], bool], bags: list[str]) -> bool:
    answers: dict[tuple, set[bool]] = {}
    for bag in bags:
        shares = tuple(Fraction(bag.count(letter), len(bag)) for letter in "ABCD")
        answers.setdefault(shares, set()).add(question(bag))
    return any(len(given) > 1 for given in answers.values())


@settles(2, 3)
def what_bos_brings() -> dict[str, bool]:
    read, rows = words(), words(readout="each")
    once, reordered, twice = (read(word, bos=True) for word in ("BANANA", "NABANA", "BANANABANANA"))
    letters = rows("BANANA", bos=True)[1:]
    share = (1 / torch.arange(2, 1000.0)).bfloat16()
    assert same(read("BANANA"), read("BANANABANANA"))
    return {
        "telling BANANA from BANANABANANA": not same(once, twice),
        "telling BANANA from NABANA": not same(once, reordered),
        "telling the two N": not same(letters[2], letters[4]),
        "telling lengths apart": (share[1:] != share[:-1]).all(),
    }


@settles(2, 4)
def one_b_among_many_a() -> dict[str, bool]:
    read = words()
    few, many = (gap(read("B" + (n - 1) * "A"), read("A")) for n in (100, 1000))
    return {
        "It stays": many > 0.9 * few,
        "It shrinks to about a hundredth": many < 0.02 * few,
        "It shrinks to about a tenth": 0.08 * few < many < 0.12 * few,
        "It is exactly 0": many == 0,
    }


@settles(2, 5)
def terms_that_tell_a_word_from_its_mirror() -> dict[str, bool]:
    terms: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
        "−m · |i − j|": lambda i, j: -(i - j).abs(),
        "−m · (i − j)²": lambda i, j: -((i - j) ** 2),
        "+m · i": lambda i, j: i + 0 * j,
        "+m · j": lambda i, j: j + 0 * i,
    }

    class Term(PositionEncoding):
        def __init__(self, term: Callable[[Tensor, Tensor], Tensor]):
            super().__init__()
            self.term = term

        def scores(self, scores, queries, keys, query_positions, key_positions):
            return scores + 0.3 * self.term(query_positions.unsqueeze(-1), key_positions.unsqueeze(-2))

    word = "CDAEB"
    return {name: not same(words(Term(t))(word), words(Term(t))(word[::-1])) for name, t in terms.items()}


# ---- 3


@settles(3, 1)
def orders_that_row_3_cannot_notice() -> dict[str, bool]:
    layer, x, labels = stack(Causal()), torch.randn(6, 16), torch.arange(6)
    orders = torch.tensor(list(itertools.permutations(range(6))))
    free = (layer(x[orders], labels)[:, 3] - layer(x, labels)[3]).abs().amax(-1) < TINY
    return one_of(int(free.sum()), ("2", "6", "12", "120"))


@settles(3, 2)
def rows_of_one_repeated_word() -> dict[str, bool]:
    def differ(encoding: PositionEncoding, n_layers: int = 2) -> bool:
        rows = stack(Together(Causal(), encoding), n_layers)(torch.ones(4, 16), torch.arange(4))
        return not same(rows, rows[:1].expand_as(rows))

    return {
        "rotary": differ(Rotary()),
        "ALiBi": differ(relative.ALiBi(2)),
        "sinusoids": differ(Sinusoidal()),
        "eight layers": differ(NoPE(), n_layers=8),
    }


def _first_token_that_matters(encoding: PositionEncoding, n_layers: int, n: int) -> int:
    model, x = at_random(encoding, n_layers, seed=0), torch.randn(n, 16, requires_grad=True)
    model(x, torch.arange(n))[-1].sum().backward()
    return int((x.grad.abs().sum(-1) > 0).nonzero()[0])


@settles(3, 3)
def three_windows_of_four() -> dict[str, bool]:
    first = _first_token_that_matters(SlidingWindow(4), n_layers=3, n=16)
    return one_of(f"token {first}", ("token 0", "token 3", "token 6", "token 12"))


@settles(3, 4)
def one_causal_layer_and_two_exchanged_words() -> dict[str, bool]:
    layer, x, labels = stack(Causal()), torch.randn(7, 16), torch.arange(6)
    swapped = x[[0, 2, 1, 3, 4, 5, 6]]  # row 0 is BOS, where there is one
    many_heads = Attention(64, 64, Causal())
    wide = torch.randn(6, 64)
    return {
        "the last row": not same(layer(x[1:], labels)[-1], layer(swapped[1:], labels)[-1]),
        "the mean of all rows": not same(layer(x[1:], labels).mean(0), layer(swapped[1:], labels).mean(0)),
        "the last row, with BOS": not same(layer(x, torch.arange(7))[-1], layer(swapped, torch.arange(7))[-1]),
        "the last row, with 64": not same(many_heads(wide)[-1], many_heads(wide[[1, 0, 2, 3, 4, 5]])[-1]),
    }


@settles(3, 5)
def the_last_real_row_before_padding() -> dict[str, bool]:
    x, labels = torch.randn(5, 16), torch.arange(5)  # rows 3 and 4 are PAD
    x[4] = x[3]
    real = padding(torch.tensor([True, True, True, False, False]))
    unmasked, masked = (stack(door, n_layers=2) for door in (Causal(), Together(Causal(), Given(real))))
    wanted, as_it_stands = unmasked(x[:3], labels[:3])[2], unmasked(x, labels)
    return {
        "row 4, as": same(as_it_stands[4], wanted),
        "row 4, once": same(masked(x, labels)[4], wanted),
        "row 2, but only": same(masked(x, labels)[2], wanted) and not same(as_it_stands[2], wanted),
        "row 2, as": same(as_it_stands[2], wanted),
    }


# ---- 4


@settles(4, 1)
def the_papers_speeds() -> dict[str, bool]:
    wanted = torch.tensor([10_000 ** (-2 * k / 64) for k in range(32)])
    found = {choice.text: eval(choice.text, {"torch": torch}) for choice in QUIZZES[4][0].choices}
    half = found["10000.0 ** (-torch.arange(32) / 64)"]
    assert 80 < half[-1] / wanted[-1] < 100  # "almost a hundred times"
    return {text: same(speeds, wanted) for text, speeds in found.items()}


@settles(4, 2)
def dot_products_of_places() -> dict[str, bool]:
    p = sinusoids(torch.arange(128), 64)

    def dot(text: str) -> Tensor:
        i, j = map(int, re.findall(r"\d+", text))
        return p[i] @ p[j]

    return {choice.text: same(dot(choice.text), p[2] @ p[7]) for choice in QUIZZES[4][1].choices}


@settles(4, 4)
def where_bfloat16_hurts() -> dict[str, bool]:
    many, turns = torch.arange(100_000), frequencies(64)

    def rows(angles: Tensor, dtype: torch.dtype = torch.float64) -> int:
        table = torch.cat([angles.sin(), angles.cos()], dim=-1).to(dtype).contiguous()
        return len({row.tobytes() for row in table.view(torch.int8).numpy()})

    exact = many.unsqueeze(-1) * turns
    left = {
        "at the finished vectors": rows(exact, torch.bfloat16),
        "at the angles": rows(exact.bfloat16().double()),
        "at none": len(many),
        "at the positions": rows(many.bfloat16().double().unsqueeze(-1) * turns),
    }
    return {text: count == min(left.values()) for text, count in left.items()}


@settles(4, 5)
def matrices_that_see_the_offset_alone() -> dict[str, bool]:
    p = sinusoids(torch.arange(40), 8)
    drawn = torch.randn(8, 8)
    matrices = {
        "every symmetric W": drawn + drawn.T,
        "the step matrix R(3)": 5 * step_matrix(3, 8),
        "every orthogonal W": torch.linalg.qr(drawn).Q,
        "every diagonal W": torch.diag(torch.randn(8)),
    }

    def relative_only(w: Tensor) -> bool:
        scores = p @ w @ p.T
        return same(scores[1:, 1:], scores[:-1, :-1])

    return {text: relative_only(w) for text, w in matrices.items()}


# ---- 5


@settles(5, 1)
def rows_that_left_padding_reads() -> dict[str, bool]:
    table, real = torch.arange(6), torch.tensor([0, 0, 1, 1, 1])
    read = ", ".join(map(str, table[real.cumsum(0) - 1].tolist()))
    return one_of(read, ("0, 0, 0, 1, 2", "5, 5, 0, 1, 2", "0, 1, 2, 3, 4")) | {"none: it raises": False}


@settles(5, 2)
def relabelled_tables_train_alike() -> dict[str, bool]:
    """Some steps of Adam; the first loss, all losses, and the last."""
    order = torch.arange(16).view(2, 8).T.flatten()
    start, tokens, labels = torch.randn(16, 16), torch.randint(9, (6, 8, 16)), torch.randint(2, (6, 8))

    def losses(rows: Tensor, order: Tensor) -> Tensor:
        encoding = Learned(16, 16)
        encoding.table.data = rows.clone()
        sizes = {"vocabulary": 9, "d_model": 16, "n_layers": 1, "n_heads": 2, "n_outputs": 2}
        model = build(0, **sizes, encoding=encoding, readout="mean").double()
        weights, found = list(model.parameters()), []
        averages = [(torch.zeros_like(w), torch.zeros_like(w)) for w in weights]
        for step, (batch, wanted) in enumerate(zip(tokens[:, :, order], labels, strict=True), start=1):
            found.append(F.cross_entropy(model(batch), wanted))
            gradients = torch.autograd.grad(found[-1], weights)
            for weight, gradient, (first, second) in zip(weights, gradients, averages, strict=True):
                first.lerp_(gradient, 0.1)
                second.lerp_(gradient.square(), 0.001)
                sizes = (second / (1 - 0.999**step)).sqrt() + 1e-8
                weight.data -= 0.01 * first / (1 - 0.9**step) / sizes
        return torch.stack(found).detach()

    by_rows, by_columns = losses(start, torch.arange(16)), losses(start[order], order)
    unmoved = losses(start, order)
    assert not same(unmoved, by_columns)  # the comparison can fail
    equal = (by_rows - by_columns).abs() < TINY
    return {
        "row by row is ahead": by_rows[-1] < by_columns[-1] - TINY,
        "equal at first": equal[0] and not equal[-1],
        "equal in the end": equal[-1] and not equal.all(),
        "equal at every step": equal.all(),
    }


@settles(5, 3)
def the_middle_of_a_chord() -> dict[str, bool]:
    middle = resize_table(sinusoids(torch.tensor([4, 5]), 2), 3)[1]
    formula = sinusoids(torch.tensor([4.5]), 2)[0]
    direction = same(middle / middle.norm(), formula / formula.norm())
    longer = (middle.norm() - formula.norm()).item()
    assert same(middle.norm(), torch.tensor(0.5).cos())
    return {
        "the same direction, but shorter": direction and longer < -TINY,
        "the same vector": same(middle, formula),
        "the same length, other": not direction and abs(longer) < TINY,
        "the same direction, but longer": direction and longer > TINY,
    }


# ---- 6


@settles(6, 1)
def how_far_a_clip_of_four_knows() -> dict[str, bool]:
    """The furthest distance whose token the last row can tell from all that lie further back."""
    layer = stack(Together(Causal(), offsets.Shaw(8, clip=4)))
    x, labels, known = torch.randn(12, 16), torch.arange(12), []
    for distance in range(1, 10):
        order = labels.clone()
        order[[11 - distance, 10 - distance]] = order[[10 - distance, 11 - distance]]  # exchanged with the next one
        if not same(layer(x[order], labels)[-1], layer(x, labels)[-1]):
            known.append(distance)
    assert known == list(range(1, max(known) + 1))
    return one_of(max(known), ("3", "4", "8")) | {"any": False}


@settles(6, 2)
def rows_of_a_new_query() -> dict[str, bool]:
    rows = offsets.offset_rows(torch.tensor([9]), torch.arange(4, 10), clip=2)[0]
    first = offsets.offset_rows(torch.tensor([4]), torch.arange(4, 10), clip=2)[0]
    other_sign = offsets.offset_rows(torch.arange(4, 10), torch.tensor([9]), clip=2)[:, 0]
    not_clipped = torch.arange(5)[torch.arange(4, 10) - 9 + 2]

    def text(rows: Tensor) -> str:
        return ", ".join(map(str, rows.tolist()))

    return one_of(text(rows), map(text, (rows, first, other_sign, not_clipped)))


@settles(6, 3)
def a_vector_or_a_number_for_each_pair() -> dict[str, bool]:
    n, queries, table = 64, torch.randn(64, 64), torch.randn(127, 64)
    rows = offsets.offset_rows(torch.arange(n), torch.arange(n), clip=n - 1)

    def vectors() -> Tensor:
        return (queries.unsqueeze(-2) * table[rows]).sum(-1)

    def numbers() -> Tensor:
        return (queries @ table.T).gather(-1, rows)

    assert same(vectors(), numbers())
    ratio = costs.metered(vectors).largest / costs.metered(numbers).largest
    times = {"no larger": 1, "2 times": 2, "about 32 times": 32, "64 times": 64}
    return {text: abs(ratio - k) < 0.02 * k for text, k in times.items()}


@settles(6, 5)
def the_other_sign_of_an_offset() -> dict[str, bool]:
    queries, keys, table, at = torch.randn(6, 4), torch.randn(6, 4), torch.randn(5, 4), torch.arange(6)
    theirs = offsets.offset_rows(at, at, 2)  # key minus query
    ours = theirs.T  # query minus key

    def scores(queries: Tensor, keys: Tensor, table: Tensor, rows: Tensor) -> Tensor:
        return queries @ keys.T + offsets.relative_scores(queries, table, rows)

    wanted = scores(queries, keys, table, theirs)
    return {
        "nothing": same(scores(queries, keys, table, ours), wanted),
        "turn the order": same(scores(queries, keys, table.flip(0), ours), wanted),
        "change the sign": same(scores(queries, keys, -table, ours), wanted),
        "exchange queries": same(scores(keys, queries, table, ours), wanted),
    }


# ---- 7


@settles(7, 1)
def a_term_that_softmax_cancels() -> dict[str, bool]:
    at, content = torch.arange(8.0), torch.randn(8, 8)
    i, j, hidden = at[:, None], at[None, :], ~causal(at, at)
    terms = {"+ 0.5 · j": j, "+ 0.5 · i": i, "+ 0.5 · (i − j)": i - j, "+ 0.5 · |i − j|": (i - j).abs()}

    def weights(term: Tensor) -> Tensor:
        return (content + 0.5 * term).masked_fill(hidden, -torch.inf).softmax(-1)

    return {text: same(weights(term), weights(0 * i)) for text, term in terms.items()}


@settles(7, 2)
def flattest_against_steepest() -> dict[str, bool]:
    slopes = relative.alibi_slopes(8)
    ratio = relative.horizon(slopes.min().item()) / relative.horizon(slopes.max().item())
    times = {"8 times": 8, "about 128 times": 128, "about 256 times": 256, "without limit": math.inf}
    return {text: ratio == pytest.approx(k) for text, k in times.items()}


@settles(7, 4)
def distances_in_one_bucket() -> dict[str, bool]:
    def bucket(distance: int) -> int:
        return relative.t5_bucket(torch.tensor(-distance), 16, 128, bidirectional=False).item()

    pairs = {choice.text: map(int, choice.text.split(" and ")) for choice in QUIZZES[7][3].choices}
    return {text: len(set(map(bucket, pair))) == 1 for text, pair in pairs.items()}


@settles(7, 5)
def t5s_table_in_a_layer_that_divides() -> dict[str, bool]:
    (queries, keys), bias, root = torch.randn(2, 6, 16), torch.randn(6, 6), 4
    wanted = (queries @ keys.T + bias).softmax(-1)

    def weights(queries: Tensor, keys: Tensor, bias: Tensor) -> Tensor:
        return (queries @ keys.T / root + bias).softmax(-1)

    return {
        "multiply the queries": same(weights(root * queries, keys, bias), wanted),
        "divide the bias": same(weights(queries, keys, bias / root), wanted),
        "multiply the bias": same(weights(queries, keys, bias * root), wanted),
        "multiply queries and keys": same(weights(root * queries, root * keys, bias), wanted),
    }


# ---- 8


@settles(8, 1)
def keys_turned_backward() -> dict[str, bool]:
    (q, k), at = torch.randn(2, 1, 8).expand(2, 6, 8), torch.arange(6)
    right, wrong = rotate(q, at) @ rotate(k, at).T, rotate(q, at) @ rotate(k, -at).T
    return {
        "all": same(right, wrong),
        "those of a query with": same(right.diagonal()[1:], wrong.diagonal()[1:]),
        "those of the query at": same(right[0], wrong[0]),
        "those with the key at": same(right[:, 0], wrong[:, 0]),
    }


@settles(8, 2)
def from_neighbours_to_halves() -> dict[str, bool]:
    order = ", ".join(map(str, weights_to_halves(torch.arange(8), 8).tolist()))
    return one_of(order, [choice.text for choice in QUIZZES[8][1].choices])


@settles(8, 3)
def the_next_position_behind_a_window() -> dict[str, bool]:
    x = torch.randn(101, 16)
    layer = Attention(16, 2, Together(SlidingWindow(4), Rotary()))
    wanted, keys = layer(x)[-1], torch.arange(97, 101)

    def at(position: int) -> Tensor:
        """Three kept keys, turned at 97 to 99, and the new token."""
        labels = torch.cat([keys[:3], torch.tensor([position])])
        seen = Attention(16, 2, Rotary())
        seen.load_state_dict(layer.state_dict())
        return seen(x[-4:], labels)[-1]

    return {f"{position}:": same(at(position), wanted) for position in (0, 3, 99, 100)}


@settles(8, 4)
def relative_and_yet_wrong() -> dict[str, bool]:
    speeds, (q, k) = frequencies(128), torch.randn(2, 200, 128)
    recipes: dict[str, Callable[[Tensor], Tensor]] = {
        "float32 throughout": lambda i: i.float() * speeds.float(),
        "float32 angles": lambda i: i.float() * speeds.float(),
        "bfloat16 frequencies": lambda i: i.float() * speeds.bfloat16().float(),
        "bfloat16 from the start": lambda i: i.bfloat16() * speeds.bfloat16(),
    }

    def scores(name: str, i: int, j: int) -> Tensor:
        turned = []
        for x, place in ((q, i), (k, j)):
            angles = recipes[name](torch.tensor([place]))
            cos, sin = angles.cos(), angles.sin()
            if name == "float32 angles":
                cos, sin = cos.bfloat16(), sin.bfloat16()
            even, odd = x[:, 0::2], x[:, 1::2]
            turned += [even * cos.double() - odd * sin.double(), even * sin.double() + odd * cos.double()]
        return (turned[0] * turned[2] + turned[1] * turned[3]).sum(-1) / 128**0.5

    at = torch.tensor([0]), torch.tensor([4000])
    exact = (rotate(q, at[0]) * rotate(k, at[1])).sum(-1) / 128**0.5
    drift = {name: (scores(name, 4096, 4101) - scores(name, 0, 5)).std().item() for name in recipes}
    wrong = {name: (scores(name, 0, 4000) - exact).std().item() for name in recipes}
    return {name: drift[name] < 0.01 and wrong[name] > 0.1 for name in recipes}


@settles(8, 5)
def peaks_that_the_query_chooses() -> dict[str, bool]:
    """Two queries, equal keys: can their scores peak 2 back and 4 back?"""
    at, key = torch.arange(12), torch.randn(16)
    keys = key.expand(1, 1, 12, 16)
    wanted = [rotate(key[None], torch.tensor([-back]))[0] for back in (2, 4)]  # such a query peaks `back` places back

    def peaks(encoding: PositionEncoding) -> list[int]:
        queries = torch.stack(wanted)[None, None]
        here = torch.tensor([8, 8])
        turned, turned_keys = encoding.queries_and_keys(queries, keys, here, at)
        scores = encoding.scores(turned @ turned_keys.mT, turned, turned_keys, here, at)
        mask = encoding.mask(here, at)
        scores = scores if mask is None else scores.masked_fill(~mask, -torch.inf)
        return (8 - scores[0, 0].argmax(dim=-1)).tolist()

    t5 = relative.T5Bias(1)
    t5.table.data.normal_()
    schemes = {"ALiBi": relative.ALiBi(1), "T5's buckets": t5, "rotary": Rotary(), "a sliding window": SlidingWindow(4)}
    return {text: peaks(scheme) == [2, 4] for text, scheme in schemes.items()}


# ---- 9


@settles(9, 1)
def the_pair_with_the_newest_angles() -> dict[str, bool]:
    def furthest(wavelength: float) -> float:
        shown, later = (torch.arange(*span) * 2 * math.pi / wavelength for span in ((4096,), (4096, 16_384)))
        shown, later = (shown % (2 * math.pi)).sort().values, later % (2 * math.pi)
        after = torch.searchsorted(shown, later)
        apart = torch.stack([(later - shown[(after - k) % len(shown)]).abs() for k in (0, 1)])
        return torch.minimum(apart, 2 * math.pi - apart).amin(0).max().item()

    new = {choice.text: furthest(float(choice.text.split()[-1].replace(",", ""))) for choice in QUIZZES[9][0].choices}
    return {text: angle == max(new.values()) for text, angle in new.items()}


@settles(9, 3)
def pairs_that_ntk_slows_by_the_whole_factor() -> dict[str, bool]:
    plain = frequencies(16)
    slowed = plain / frequencies(16, contexts.ntk_base(10_000.0, 4, 16))
    whole = (slowed > 3.99).tolist()
    assert same(slowed[0], torch.tensor(1.0))
    few_turns = (contexts.turns(plain, 64) < 1).tolist()
    return {
        "all pairs alike": whole == [True] * 8,
        "all that make less": whole == few_turns,
        "all but the fastest": whole == [False] + [True] * 7,
        "the slowest pair": whole == [False] * 7 + [True],
    }


@settles(9, 4)
def a_cache_under_a_growing_base() -> dict[str, bool]:
    """Is the score of a query at 110 with a key at 100 that of 20 with 10, when the base has grown in between?"""
    q, k = torch.randn(2, 1, 64)
    old, now = (contexts.ntk_base(10_000.0, scale, 64) for scale in (2, 4))

    def turned(x: Tensor, i: int, *bases: float) -> Tensor:
        for base in bases:
            x = rotate(x, torch.tensor([i]), base)
        return x

    def stays(query: tuple[float, ...], key: tuple[float, ...]) -> bool:
        return same(*(turned(q, i, *query) @ turned(k, i - 10, *key).T for i in (20, 110)))

    by_the_difference = rotate(turned(k, 10, old, now), torch.tensor([-10]), old)
    assert same(by_the_difference, turned(k, 10, now)), "as the answer says"
    return {
        "turn only new keys": stays((now,), (old,)),
        "keep keys unturned": stays((now,), (now,)),
        "turn the old keys again": stays((now,), (old, now)),
        "turn the query with": stays((old,), (now,)),  # a key that came after the base had grown
    }


@settles(9, 5)
def chunks_never_meet() -> dict[str, bool]:
    first = {layers: _first_token_that_matters(Together(Chunked(8), Rotary()), layers, 32) for layers in (2, 3, 32)}
    holds = {f"{layers}:": token < 8 for layers, token in first.items()}
    return holds | {"no number": not any(holds.values())}


# ---- 10


@settles(10, 3)
def dot_products_in_the_plane() -> dict[str, bool]:
    def dot(text: str) -> Tensor:
        numbers = torch.tensor(list(map(int, re.findall(r"\d+", text)))).view(2, 2)  # places, then axes
        vectors = grids.sinusoids_2d(numbers.T, 32)
        return vectors[0] @ vectors[1]

    return {choice.text: same(dot(choice.text), dot("(1, 1) and (3, 2)")) for choice in QUIZZES[10][2].choices}


@settles(10, 4)
def a_strip_with_as_many_patches() -> dict[str, bool]:
    told, true = grid(14, 14), grid(7, 28)
    notices = int(true.shape[1] ** 0.5) != 14
    wrong = (told != true).any(dim=0)
    return {
        "an error": told.shape != true.shape,
        "it is resampled": notices,
        "nothing": not notices and wrong.any(),
        "only columns beyond 14": torch.equal(wrong, true[1] >= 14),
    }


@settles(10, 5)
def the_first_new_centre() -> dict[str, bool]:
    first = grids.places_in(4, 4, 8, 8)[0, 0].item()
    return one_of(f"at {first:g}".replace("-", "−"), ("at −0.25", "at 0", "at 0.25", "at 0.5"))


# ---- 11


@settles(11, 1)
def the_fourth_corner_of_an_axial_head() -> dict[str, bool]:
    vectors = rotary_grid.axial_vectors(16)
    q, k = torch.randn(2, 1, 16)

    def score(down: float, across: float, vectors: Tensor = vectors) -> float:
        return (turn(k, rotary_grid.grid_angles(torch.tensor([[down], [across]]), vectors)) @ q.T).item()

    for vectors_of, fixed in ((vectors, True), (torch.randn(2, 8), False)):
        corners = [score(a, b, vectors_of) for a, b in ((1, 2), (2, 1), (1, 1), (2, 2))]
        assert (abs(corners[0] + corners[1] - corners[2] - corners[3]) < TINY) == fixed
    return one_of(5 + 5 - 1, ("1", "5", "9")) | {"it can be anything": False}


@settles(11, 2)
def the_place_after_a_picture() -> dict[str, bool]:
    (after,) = set(rotary_grid.mrope_positions([2, (1, 3, 3), 1])[:, -1].tolist())
    return one_of(after, ("3", "5", "8", "11"))


@settles(11, 3)
def a_mirror_that_is_kept() -> dict[str, bool]:
    """Chance for ever: a scene and its mirror image get one answer."""
    at, x = grid(4, 4), torch.randn(16, 16)
    schemes = {
        "axial rotary": rotary_grid.AxialRotary(8),
        "2-D ALiBi": windows.ALiBi2D(2, largest_exponent=2.0),
        "a table of offsets": windows.WindowBias(4, 4, 2),
        "a learned table": grids.LearnedGrid(4, 4, 16),
    }
    models = {text: stack(scheme) for text, scheme in schemes.items()}
    return {text: same(model(x, at).mean(0), model(x, flip_left_right(at)).mean(0)) for text, model in models.items()}


@settles(11, 4)
def one_patch_to_the_right_on_a_finer_grid() -> dict[str, bool]:
    def step(side: int) -> Tensor:
        across = rotary_grid.centred(side, side)[1]
        return across[1] - across[0]

    patches = (step(4) / step(8)).item()
    counts = {"half a patch": 0.5, "one patch": 1, "two patches": 2, "four patches": 4}
    return {text: abs(patches - count) < TINY for text, count in counts.items()}


@settles(11, 5)
def a_token_that_is_not_turned() -> dict[str, bool]:
    token, vectors = torch.randn(1, 16), rotary_grid.axial_vectors(16)
    places = {"in the middle": (1, 1), "just outside": (-1, -1), "on the top left": (0, 0)}  # of a grid of 3 by 3

    def turned(place: tuple[int, int]) -> Tensor:
        return turn(token, rotary_grid.grid_angles(torch.tensor(place)[:, None], vectors))

    holds = {text: same(turned(place), token) for text, place in places.items()}
    return holds | {"nowhere": not any(holds.values())}


# ---- 12


@settles(12, 1)
def labels_in_the_same_order() -> dict[str, bool]:
    x, labels, other = torch.randn(6, 16), torch.arange(6), torch.tensor([3, 7, 8, 20, 21, 50])
    schemes = {
        "ALiBi under": Together(Causal(), relative.ALiBi(2, largest_exponent=2.0)),
        "the bare causal mask": Causal(),
        "rotary without": Rotary(),
        "a causal window": SlidingWindow(3),
    }
    layers = {text: stack(scheme) for text, scheme in schemes.items()}
    return {text: same(layer(x, labels), layer(x, other)) for text, layer in layers.items()}


@settles(12, 2)
def what_a_combination_keeps() -> dict[str, bool]:
    x, labels = torch.randn(6, 16), torch.arange(6)
    moves = {"shift": labels + 5, "reversal": labels.flip(0), "stretch": 2 * labels}

    def kept(*encodings: PositionEncoding) -> set[str]:
        layer = stack(Together(*encodings))
        return {name for name, moved in moves.items() if same(layer(x, moved), layer(x, labels))}

    alibi = relative.ALiBi(2, largest_exponent=2.0)
    assert (kept(alibi), kept(Causal())) == ({"shift", "reversal"}, {"shift", "stretch"})
    both = kept(alibi, Causal())
    return {
        "keeps all three": both == set(moves),
        "keeps only reversal": both == {"reversal", "stretch"},
        "keeps the shift": both == {"shift"},
        "breaks all three": not both,
    }


@settles(12, 3)
def orders_outside_and_inside_a_window() -> dict[str, bool]:
    layer, x, labels = stack(SlidingWindow(3)), torch.randn(8, 16), torch.arange(8)
    orders = torch.tensor([(*order, 7) for order in itertools.permutations(range(7))])
    free = (layer(x[orders], labels)[:, -1] - layer(x, labels)[-1]).abs().amax(-1) < TINY
    return one_of(f"{int(free.sum()):,}", ("2", "120", "240", "5,040"))


@settles(12, 4)
def a_range_of_three() -> dict[str, bool]:
    """Each run lies above or below the median, evenly; the range contains it unless all are on one side."""
    sides = list(itertools.product((0, 1), repeat=3))
    contained = Fraction(sum(len(set(side)) > 1 for side in sides), len(sides))
    return one_of(contained, ("1/2", "3/4", "7/8", "15/16"))


# ---- 13


@settles(13, 1)
def a_window_read_as_one_more() -> dict[str, bool]:
    def alike(n: int) -> bool:
        at = torch.arange(n)
        return torch.equal(sliding_window(at, at, 7), sliding_window(at, at, 8))

    tokens = next(n for n in range(1, 20) if not alike(n))
    return {f"{n},": n == tokens for n in (2, 7, 8, 14)}


@settles(13, 2)
def counted_from_one() -> dict[str, bool]:
    x, labels = torch.randn(6, 16), torch.arange(6)

    def shows(*encodings: PositionEncoding) -> bool:
        layer = stack(Together(*encodings), n_layers=2)
        return not same(layer(x, labels), layer(x, labels + 1))

    return {
        "GPT-NeoX": shows(Causal(), Rotary()),
        "BLOOM": shows(Causal(), relative.ALiBi(2)),
        "GPT-2": shows(Causal(), Learned(8, 16)),
        "T5": shows(relative.T5Bias(2)),
    }


@settles(13, 4)
def two_ways_to_cut_a_fused_matrix() -> dict[str, bool]:
    fused = torch.randn(5, 64) @ torch.randn(192, 64).T
    by_head = fused.unflatten(-1, (4, 3, 16)).unbind(-2)
    all_first = fused.unflatten(-1, (3, 4, 16)).unbind(-3)
    shapes = [part.shape for part in by_head], [part.shape for part in all_first]
    mixed = [attention(*(part.transpose(0, 1) for part in parts)) for parts in (by_head, all_first)]
    return {
        "its shape": shapes[0] != shapes[1],
        "its name": False,
        "a comparison of logits": not same(*mixed),
        "an error message": False,  # both ran
    }


# ---- 14


@settles(14, 1)
def flops_for_each_byte() -> dict[str, bool]:
    def intensity(way: Callable, n: int) -> float:
        q, k, v = torch.randn(3, 1, 4, n, 32, dtype=torch.float32)
        return 4 * n**2 * 4 * 32 / costs.metered(way, q, k, v).moved

    ways = {"step by step": attention, "fused": F.scaled_dot_product_attention}
    grows = {name: intensity(way, 1024) / intensity(way, 512) for name, way in ways.items()}
    doubles = {name: ratio > 1.8 for name, ratio in grows.items()}
    assert all(doubles[name] or ratio < 1.1 for name, ratio in grows.items())
    return {
        "step by step doubles": doubles == {"step by step": True, "fused": False},
        "both double": all(doubles.values()),
        "step by step stays": doubles == {"step by step": False, "fused": True},
        "both stay": not any(doubles.values()),
    }


@settles(14, 2)
def encodings_that_come_before_the_kernel() -> dict[str, bool]:
    """Does the layer equal the kernel with nothing but `is_causal`, on queries and keys as the encoding gives them?"""

    def runs(encoding: PositionEncoding) -> bool:
        for table in encoding.parameters():
            table.data.normal_()
        layer, x, at = Attention(16, 2, Together(Causal(), encoding)), torch.randn(8, 16), torch.arange(8)
        q, k, v = (
            f(x).unflatten(-1, (2, 8)).transpose(0, 1) for f in (layer.to_queries, layer.to_keys, layer.to_values)
        )
        q, k = encoding.queries_and_keys(q, k, at, at)
        mixed = F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True)[0]
        return same(layer.to_output(mixed.transpose(0, 1).flatten(1)), layer(x))

    return {
        "rotary": runs(Rotary()),
        "T5's buckets": runs(relative.T5Bias(2, bidirectional=False)),
        "Shaw's keys and values": runs(offsets.Shaw(8, clip=2)),
        "Transformer-XL": runs(offsets.TransformerXL(16, 2)),
    }


@settles(14, 3)
def a_window_as_a_mask_on_the_grid() -> dict[str, bool]:
    (q, k, v), at = torch.randn(3, 1024, 8), torch.arange(1024)

    def flops(*mask: Tensor) -> int:
        with FlopCounterMode(display=False) as counter:
            attention(q, k, v, *mask)
        return counter.get_total_flops()

    saved = 1 - flops(sliding_window(at, at, 64)) / flops()
    shares = {"none": 0, "half of them": 1 / 2, "about 15 of 16": 15 / 16, "all but 64": 1 - (64 / 1024) ** 2}
    return {text: abs(saved - share) < 1e-3 for text, share in shares.items()}


@settles(14, 4)
def half_of_the_layers_bounded() -> dict[str, bool]:
    bounded, full = contexts.Layer(window=4096), contexts.Layer()
    n, numbers = 131_072, 2 * 8 * 128
    mixed = costs.cache_bytes([bounded, full] * 16, n, numbers) / costs.cache_bytes([full] * 32, n, numbers)
    return one_of(f"about {mixed:.0%}".replace("%", " %"), ("about 3 %", "about 25 %", "about 52 %", "about 97 %"))


@settles(14, 5)
def calls_that_lose_the_fused_kernel() -> dict[str, bool]:
    q, k, v = torch.randn(3, 1, 4, 512, 32, dtype=torch.float32)
    bias = torch.zeros(1, 4, 512, 512, dtype=torch.float32)
    calls = {
        "attn_mask=bias, of shape": {"attn_mask": bias},
        "is_causal=True, without": {"is_causal": True},
        "scale=0.1": {"scale": 0.1, "is_causal": True},
        "attn_mask=bias, with": {"attn_mask": bias.clone().requires_grad_()},
    }

    def makes_a_grid(call: dict) -> bool:
        with costs.Meter() as meter:
            F.scaled_dot_product_attention(q, k, v, **call)
        return meter.peak > bias.nbytes / 2

    return {text: makes_a_grid(call) for text, call in calls.items()}
