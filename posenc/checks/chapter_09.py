"""Exercises of chapter 9: longer contexts."""

import math
from collections.abc import Callable, Sequence
from functools import cache

import torch
from torch import Generator, Tensor

from posenc.absolute import frequencies as plain_frequencies
from posenc.checks.common import dtype_complaint
from posenc.checks.compare import as_tensor
from posenc.checks.exercise import Complaint, Exercise, Mistake, Property, drawn, with_arguments
from posenc.contexts import by_parts, interpolated, llama3, ntk_base
from posenc.encoding import Together
from posenc.extension import BASE, HEAD_DIM, PLAIN, TRAINED, checkpoint, from_pair, losses, needles
from posenc.masks import Causal
from posenc.model import Transformer
from posenc.rotary import Rotary

# --- 9.1 pairs_without_a_turn


def pairs_without_a_turn(head_dim: int, base: float, trained_length: int) -> int:
    wavelengths = 2 * math.pi / plain_frequencies(head_dim, base)
    return int((wavelengths > trained_length).sum())


def _by_counting_up(head_dim: int, base: float, trained_length: int) -> int:
    return sum(2 * math.pi * base ** (2 * k / head_dim) > trained_length for k in range(head_dim // 2))


def _counted(wavelength: Callable[[int, int, float], float]) -> Callable:
    def wrong(head_dim: int, base: float, trained_length: int) -> int:
        return sum(wavelength(k, head_dim, base) > trained_length for k in range(head_dim // 2))

    return wrong


PAIRS_WITHOUT_A_TURN = Exercise(
    chapter=9,
    title="Who never gets round?",
    points=1,
    minutes=5,
    difficulty=1,
    reference=pairs_without_a_turn,
    cases=(
        with_arguments("the model of the chapter", 16, 10_000.0, 64),
        with_arguments("Llama 2", 128, 10_000.0, 4096),
        with_arguments("Llama 3", 128, 500_000.0, 8192),
        with_arguments("one pair", 2, 10_000.0, 7),
        with_arguments("a text too short for any turn", 64, 10_000.0, 6),
        with_arguments("a small base: all get round", 64, 100.0, 4096),
    ),
    mistakes=(
        Mistake(
            "the others counted",
            lambda d, b, n: d // 2 - pairs_without_a_turn(d, b, n),
            "You counted the pairs that do get round. Compare the other way.",
        ),
        Mistake(
            "2 pi forgotten",
            _counted(lambda k, d, b: b ** (2 * k / d)),
            "One over the frequency is the way for one radian. A whole turn has more of them.",
        ),
        Mistake(
            "the last offset for the length",
            lambda d, b, n: pairs_without_a_turn(d, b, n - 1),
            "You compared with one token less than the length. The statement says the text of the training itself.",
        ),
        Mistake(
            "features in place of pairs",
            lambda d, b, n: 2 * pairs_without_a_turn(d, b, n),
            "Two features make one pair, and a pair counts once.",
        ),
        Mistake(
            "a loop over the features",
            lambda d, b, n: sum(2 * math.pi * b ** (2 * k / d) > n for k in range(d)),
            "Your loop goes on past the last pair. How many pairs does a head of that width have?",
        ),
        Mistake(
            "a wavelength for each feature",
            lambda d, b, n: sum(2 * math.pi * b ** (i / d) > n for i in range(d)),
            "You gave each feature a wavelength of its own. Two features turn together: that is one pair.",
        ),
        Mistake(
            "pairs counted from 1",
            _counted(lambda k, d, b: 2 * math.pi * b ** (2 * (k + 1) / d)),
            "The first pair is number 0: it turns by one radian a position, whatever the base is.",
        ),
        Mistake(
            "the exponent halved",
            _counted(lambda k, d, b: 2 * math.pi * b ** (k / d)),
            "The exponent of pair k is 2k / head_dim, so that it runs from 0 to nearly 1.",
        ),
    ),
    also_right=(_by_counting_up,),
    learned="Pairs that make no full turn in training are those that meet new angles in a longer text.",
)

# --- 9.2 interpolated_angles


def interpolated_angles(positions: Tensor, frequencies: Tensor, trained_length: int, length: int) -> Tensor:
    scale = max(1.0, length / trained_length)
    return positions.unsqueeze(-1) / scale * frequencies


def _by_slower_pairs(positions: Tensor, frequencies: Tensor, trained_length: int, length: int) -> Tensor:
    return torch.outer(positions.to(frequencies.dtype), frequencies * min(1.0, trained_length / length))


def _scaled_angles(scale: Callable[[int, int], float]) -> Callable:
    return lambda positions, frequencies, trained, length: (
        positions.unsqueeze(-1) * frequencies * scale(trained, length)
    )


def _angles_never_leave(answer: Callable, _: Generator) -> Complaint:
    frequencies = plain_frequencies(16)
    got = as_tensor(answer(torch.arange(1000), frequencies, 100, 1000)).double()
    if got.shape != (1000, 8):
        return f"for 1000 positions and 8 pairs you returned the shape {tuple(got.shape)}"
    beyond = (got.amax(dim=0) / frequencies).max().item()
    return None if beyond < 100 else f"the largest angle belongs to position {beyond:.1f}, not seen in training"


def _keeps_dtype_of_angles(answer: Callable, _: Generator) -> Complaint:
    for dtype in (torch.float32, torch.float64):
        if complaint := dtype_complaint(answer(torch.arange(9), plain_frequencies(8).to(dtype), 3, 9), dtype):
            return complaint
    return None


INTERPOLATED_ANGLES = Exercise(
    chapter=9,
    title="Position interpolation",
    points=2,
    minutes=8,
    difficulty=1,
    reference=interpolated_angles,
    cases=(
        with_arguments("four times as long", torch.arange(0, 256, 15), plain_frequencies(8), 64, 256),
        with_arguments("half as long again", torch.arange(12), plain_frequencies(4), 8, 12),
        with_arguments("as long as in training", torch.arange(8), plain_frequencies(4), 8, 8),
        with_arguments("a shorter text", torch.arange(5), plain_frequencies(4), 8, 5),
        with_arguments("one late token", torch.tensor([8191]), plain_frequencies(64, 500_000.0), 4096, 8192),
        with_arguments("float32", torch.arange(9), plain_frequencies(8).float(), 3, 9),
    ),
    properties=(
        Property("no angle leaves the trained range", _angles_never_leave),
        Property("the angles have the dtype of the frequencies", _keeps_dtype_of_angles),
    ),
    mistakes=(
        Mistake(
            "short texts stretched",
            _scaled_angles(lambda trained, length: trained / length),
            "A text that fits needs no change. Yours spreads a short text over the whole range.",
        ),
        Mistake(
            "the wrong way round",
            _scaled_angles(lambda trained, length: max(1.0, length / trained)),
            "Your angles grow. The longer text should use the angles of the shorter one.",
        ),
        Mistake(
            "nothing changed",
            _scaled_angles(lambda trained, length: 1.0),
            "These are the plain angles. What must happen to position 255 if the model knows 0 to 63?",
        ),
        Mistake(
            "positions rounded down",
            lambda positions, frequencies, trained, length: (
                (positions / max(1.0, length / trained)).floor().unsqueeze(-1) * frequencies
            ),
            "You rounded the positions, so neighbours fall on one place. Positions need not be whole numbers.",
        ),
        Mistake(
            "positions cut off",
            lambda positions, frequencies, trained, length: (
                positions.clamp(max=trained - 1).unsqueeze(-1) * frequencies
            ),
            "You stopped at the last trained position, so all later tokens stand on one place. Squeeze, don't cut.",
        ),
        Mistake(
            "the tokens counted",
            lambda positions, frequencies, trained, length: interpolated_angles(
                positions, frequencies, trained, len(positions)
            ),
            "You took the number of positions for the length of the text. They need not be all of them.",
        ),
        Mistake(
            "the scale a whole number",
            lambda positions, frequencies, trained, length: (
                positions.unsqueeze(-1) / max(1, length // trained) * frequencies
            ),
            "Your scale is rounded down. What is it for a text half as long again?",
        ),
        Mistake(
            "the last positions matched",
            _scaled_angles(lambda trained, length: min(1.0, (trained - 1) / max(1, length - 1))),
            "You squeezed the last position onto the last one. What the statement squeezes is the length.",
        ),
        Mistake(
            "pairs down, positions across",
            lambda positions, frequencies, trained, length: (
                interpolated_angles(positions, frequencies, trained, length).mT
            ),
            "Right numbers, turned round. A row for each position, a column for each pair.",
        ),
    ),
    also_right=(_by_slower_pairs,),
    learned="Squeezing positions and slowing all pairs are one thing: only the product is ever used.",
)

# --- 9.3 ntk_aware_base


def ntk_aware_base(base: float, scale: float, head_dim: int) -> float:
    return ntk_base(base, scale, head_dim)


def _base_from_the_last_pair(base: float, scale: float, head_dim: int) -> float:
    last = base ** (-(head_dim - 2) / head_dim) / scale  # the frequency that we want
    return math.exp(-math.log(last) * head_dim / (head_dim - 2))


def _slowest_is_interpolated(answer: Callable, _: Generator) -> Complaint:
    for head_dim, scale in ((16, 4.0), (128, 8.0), (4, 2.0)):
        before, after = plain_frequencies(head_dim), plain_frequencies(head_dim, float(answer(1e4, scale, head_dim)))
        ratio = (before[-1] / after[-1]).item()
        if abs(ratio - scale) > 1e-3 * scale:
            return f"head_dim {head_dim}, scale {scale:g}: the slowest pair turns {ratio:.3f} times slower"
    return None


NTK_AWARE_BASE = Exercise(
    chapter=9,
    title="A new base from a scale",
    points=2,
    minutes=10,
    difficulty=2,
    reference=ntk_aware_base,
    cases=(
        with_arguments("the model of the chapter, 4 times", 10_000.0, 4.0, 16),
        with_arguments("Llama 2, 8 times", 10_000.0, 8.0, 128),
        with_arguments("another base", 500_000.0, 2.0, 64),
        with_arguments("two pairs", 10_000.0, 3.0, 4),
        with_arguments("scale 1", 10_000.0, 1.0, 32),
        with_arguments("not a whole scale", 10_000.0, 1.5, 32),
    ),
    properties=(Property("the slowest pair turns exactly `scale` times slower", _slowest_is_interpolated),),
    mistakes=(
        Mistake(
            "base times scale",
            lambda base, scale, head_dim: base * scale,
            "Nearly. The slowest pair's exponent is not 1 but (head_dim - 2) / head_dim. Solve for the base.",
        ),
        Mistake(
            "the exponent upside down",
            lambda base, scale, head_dim: base * scale ** ((head_dim - 2) / head_dim),
            "Your exponent is the slowest pair's own. You need its inverse, since you solve for the base.",
        ),
        Mistake(
            "pairs in place of features",
            lambda base, scale, head_dim: (
                base * scale ** ((head_dim // 2) / (head_dim // 2 - 2)) if head_dim > 4 else base
            ),
            "Count in features or in pairs, but in one of them: the last pair k = head_dim / 2 - 1 has exponent 2k/d.",
        ),
        Mistake(
            "one feature in place of two",
            lambda base, scale, head_dim: base * scale ** (head_dim / (head_dim - 1)),
            "Nearly. The slowest pair's number is head_dim / 2 - 1, so its exponent has head_dim minus how many?",
        ),
        Mistake(
            "whole-number division",
            lambda base, scale, head_dim: base * scale ** (head_dim // (head_dim - 2)),
            "Your exponent is always a whole number: `//` rounds down.",
        ),
        Mistake(
            "the power of the product",
            lambda base, scale, head_dim: (base * scale) ** (head_dim / (head_dim - 2)),
            "The exponent is right, and belongs to one factor alone: with scale 1 the base must stay what it was.",
        ),
        Mistake(
            "the factor alone",
            lambda base, scale, head_dim: scale ** (head_dim / (head_dim - 2)),
            "That is what the old base is multiplied by.",
        ),
        Mistake(
            "base divided",
            lambda base, scale, head_dim: base * scale ** (-head_dim / (head_dim - 2)),
            "A smaller base makes pairs turn faster. We want the slowest one slower.",
        ),
        Mistake(
            "scale squared",
            lambda base, scale, head_dim: base * scale**2,
            "Right for two pairs only. Write down the slowest pair's frequency for a base b, and solve for b.",
        ),
    ),
    also_right=(_base_from_the_last_pair,),
    learned="One number changes all pairs: the fastest not at all, the slowest by the whole scale, the rest between.",
)

# --- 9.4 yarn_frequencies


def yarn_frequencies(frequencies: Tensor, scale: float, trained_length: int) -> tuple[Tensor, float]:
    return by_parts(frequencies, scale, trained_length, slow=1, fast=32), 0.1 * math.log(scale) + 1


def _yarn_by_loop(frequencies: Tensor, scale: float, trained_length: int) -> tuple[Tensor, float]:
    changed = []
    for frequency in frequencies:
        number = trained_length * frequency.item() / (2 * math.pi)
        kept = 0.0 if number < 1 else 1.0 if number > 32 else (number - 1) / 31
        changed.append(kept * frequency + (1 - kept) * frequency / scale)
    return torch.stack(changed), 1 + math.log(scale) / 10


def _yarn_with(kept: Callable[[Tensor], Tensor]) -> Callable:
    """YaRN with another share of the plain frequency, from the number of turns."""

    def wrong(frequencies: Tensor, scale: float, trained_length: int) -> tuple[Tensor, float]:
        share = kept(trained_length * frequencies / (2 * math.pi))
        return share * frequencies + (1 - share) * frequencies / scale, 0.1 * math.log(scale) + 1

    return wrong


def _yarn_wavelengths_blended(frequencies: Tensor, scale: float, trained_length: int) -> tuple[Tensor, float]:
    kept = ((trained_length * frequencies / (2 * math.pi) - 1) / 31).clamp(0, 1)
    return 1 / (kept / frequencies + (1 - kept) * scale / frequencies), 0.1 * math.log(scale) + 1


def _yarn_ramp_of_the_code(frequencies: Tensor, scale: float, trained_length: int) -> tuple[Tensor, float]:
    """The ramp linear in the logarithm of the turns: in the pair's number, as published code has it."""
    number = trained_length * frequencies / (2 * math.pi)
    return _blended(frequencies, (number.log() / math.log(32)).clamp(0, 1), scale), 0.1 * math.log(scale) + 1


def _yarn_new_length(frequencies: Tensor, scale: float, trained_length: int) -> tuple[Tensor, float]:
    kept = ((scale * trained_length * frequencies / (2 * math.pi) - 1) / 31).clamp(0, 1)
    return _blended(frequencies, kept, scale), 0.1 * math.log(scale) + 1


def _keeps_dtype_of_frequencies(answer: Callable, _: Generator) -> Complaint:
    for dtype in (torch.float32, torch.float64):
        if complaint := dtype_complaint(answer(plain_frequencies(16).to(dtype), 4.0, 4096)[0], dtype):
            return complaint
    return None


YARN_FREQUENCIES = Exercise(
    chapter=9,
    title="YaRN from its paper",
    points=3,
    minutes=12,
    difficulty=3,
    reference=yarn_frequencies,
    cases=(
        with_arguments("Llama 2, 16 times", plain_frequencies(128), 16.0, 4096),
        with_arguments("Qwen 2.5, 4 times", plain_frequencies(128, 1e6), 4.0, 32_768),
        with_arguments("a small model, float32", plain_frequencies(32).float(), 2.0, 512),
        with_arguments("a tiny one: nobody turns 32 times", plain_frequencies(16), 4.0, 64),
        with_arguments("scale 1 changes nothing", plain_frequencies(16), 1.0, 4096),
        drawn(
            "frequencies in any order",
            lambda g: (torch.rand(12, generator=g, dtype=torch.float64) * 0.1 + 1e-4, 8.0, 4096),
        ),
    ),
    properties=(Property("the frequencies keep their dtype", _keeps_dtype_of_frequencies),),
    mistakes=(
        Mistake(
            "the ramp turned round",
            _yarn_with(lambda turns: 1 - ((turns - 1) / 31).clamp(0, 1)),
            "The attention factor is right. Your fast pairs are slowed and your slow ones kept. Who has seen it all?",
        ),
        Mistake(
            "the ramp has no ends",
            _yarn_with(lambda turns: (turns - 1) / 31),
            "Below 1 turn and above 32 the share must stay at 0 and 1. Yours goes on.",
        ),
        Mistake(
            "no ramp",
            _yarn_with(lambda turns: (turns >= 1).to(turns.dtype)),
            "You jump from slowed to kept at one turn. Between 1 and 32 turns, blend.",
        ),
        Mistake(
            "the ramp of published code",
            _yarn_ramp_of_the_code,
            "The ends are right. Between them your share grows with the logarithm of the turns, as in published code, "
            "which counts pairs. The paper's ramp is linear in something else.",
        ),
        Mistake(
            "turns counted in the new length",
            _yarn_new_length,
            "Which length has the model seen? Turns are counted there, not in the text that is to come.",
        ),
        Mistake(
            "the two results exchanged",
            lambda f, s, n: yarn_frequencies(f, s, n)[::-1],
            "Right numbers, in the wrong order: see what the statement returns first.",
        ),
        Mistake(
            "radians in place of turns",
            _yarn_with(lambda turns: ((2 * math.pi * turns - 1) / 31).clamp(0, 1)),
            "Length times frequency counts radians. How many of them make a turn?",
        ),
        Mistake(
            "divided by 32",
            _yarn_with(lambda turns: (turns / 32).clamp(0, 1)),
            "The ramp begins at 1 turn, not at 0: there the share is 0.",
        ),
        Mistake(
            "wavelengths blended",
            _yarn_wavelengths_blended,
            "You blended the wavelengths. The paper blends the frequencies, and one over a blend is another blend.",
        ),
        Mistake(
            "everything interpolated",
            _yarn_with(lambda turns: torch.zeros_like(turns)),
            "That is position interpolation. YaRN keeps the pairs that have turned often enough.",
        ),
        Mistake(
            "the factor squared",
            lambda f, s, n: (yarn_frequencies(f, s, n)[0], (0.1 * math.log(s) + 1) ** 2),
            "The frequencies are right. The factor multiplies queries and keys each: the square comes by itself.",
        ),
        Mistake(
            "the logarithm to base 10",
            lambda f, s, n: (yarn_frequencies(f, s, n)[0], 0.1 * math.log10(s) + 1),
            "The frequencies are right. The factor takes the natural logarithm.",
        ),
        Mistake(
            "the factor forgotten",
            lambda f, s, n: (yarn_frequencies(f, s, n)[0], 1.0),
            "The frequencies are right. The factor depends on the scale: see the statement.",
        ),
    ),
    also_right=(_yarn_by_loop,),
    learned="This is the formula of the paper. Published code has another ramp between the same two ends: read it.",
)

# --- 9.5 llama3_frequencies


def llama3_frequencies(frequencies: Tensor, rope_scaling: dict) -> Tensor:
    return llama3(
        frequencies,
        rope_scaling["factor"],
        rope_scaling["original_max_position_embeddings"],
        rope_scaling["low_freq_factor"],
        rope_scaling["high_freq_factor"],
    )


def _llama3_as_by_parts(frequencies: Tensor, rope_scaling: dict) -> Tensor:
    low, high = rope_scaling["low_freq_factor"], rope_scaling["high_freq_factor"]
    length = rope_scaling["original_max_position_embeddings"]
    return by_parts(frequencies, rope_scaling["factor"], length, low, high)


def _llama3_by_loop(frequencies: Tensor, rope_scaling: dict) -> Tensor:
    factor, low, high, length = (rope_scaling[key] for key in _KEYS)
    changed = []
    for frequency in frequencies:
        wavelength = 2 * math.pi / frequency
        if wavelength < length / high:
            changed.append(frequency)
        elif wavelength > length / low:
            changed.append(frequency / factor)
        else:
            smooth = (length / wavelength - low) / (high - low)
            changed.append((1 - smooth) * frequency / factor + smooth * frequency)
    return torch.stack(changed)


_KEYS = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")


def _rope_scaling(factor: float, low: float = 1.0, high: float = 4.0, length: int = 8192) -> dict:
    return {**dict(zip(_KEYS, (factor, low, high, length), strict=True)), "rope_type": "llama3"}


def _llama3_with(rule: Callable) -> Callable:
    """rule(frequencies, turns, factor, low, high) -> frequencies."""

    def wrong(frequencies: Tensor, rope_scaling: dict) -> Tensor:
        factor, low, high, length = (rope_scaling[key] for key in _KEYS)
        return rule(frequencies, length * frequencies / (2 * math.pi), factor, low, high)

    return wrong


def _blended(f: Tensor, share: Tensor, factor: float) -> Tensor:
    return share * f + (1 - share) * f / factor


def _llama3_fixed(**fixed: float) -> Callable:
    """Some entries of the configuration written into the code."""
    return lambda frequencies, rope_scaling: llama3_frequencies(frequencies, rope_scaling | fixed)


def _keeps_dtype_of_llama3(answer: Callable, _: Generator) -> Complaint:
    for dtype in (torch.float32, torch.float64):
        if complaint := dtype_complaint(answer(plain_frequencies(16).to(dtype), _rope_scaling(8.0)), dtype):
            return complaint
    return None


LLAMA3_FREQUENCIES = Exercise(
    chapter=9,
    title="Llama 3.1 from its configuration",
    points=3,
    minutes=12,
    difficulty=3,
    reference=llama3_frequencies,
    cases=(
        with_arguments("Llama 3.1 8B", plain_frequencies(128, 5e5), _rope_scaling(8.0)),
        with_arguments("Llama 3.2 1B", plain_frequencies(64, 5e5), _rope_scaling(32.0)),
        with_arguments("other borders", plain_frequencies(64), _rope_scaling(4.0, 2.0, 16.0, 4096)),
        with_arguments("float32", plain_frequencies(32, 5e5).float(), _rope_scaling(8.0)),
        with_arguments("factor 1", plain_frequencies(16), _rope_scaling(1.0)),
        with_arguments("the model of the chapter", plain_frequencies(16), _rope_scaling(4.0, length=64)),
    ),
    properties=(Property("the frequencies keep their dtype", _keeps_dtype_of_llama3),),
    mistakes=(
        Mistake(
            "the length written into the code",
            _llama3_fixed(original_max_position_embeddings=8192),
            "Right for one model. Other configurations have another original length.",
        ),
        Mistake(
            "the borders written into the code",
            _llama3_fixed(low_freq_factor=1.0, high_freq_factor=4.0),
            "Right for one model. The borders are entries of the configuration too.",
        ),
        Mistake(
            "the factor written into the code",
            _llama3_fixed(factor=8.0),
            "Right for one model. The factor is an entry of the configuration too.",
        ),
        Mistake(
            "the whole configuration written into the code",
            _llama3_fixed(**_rope_scaling(8.0)),
            "Right for the configuration printed above. The next one has other numbers: read them from the dict.",
        ),
        Mistake(
            "the borders and the length written into the code",
            _llama3_fixed(low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=8192),
            "The factor you read. The borders and the original length are entries of the configuration too.",
        ),
        Mistake(
            "2 pi forgotten in the blend",
            _llama3_with(
                lambda f, turns, factor, low, high: torch.where(
                    (turns < low) | (turns > high),
                    torch.where(turns < low, f / factor, f),
                    _blended(f, (2 * math.pi * turns - low) / (high - low), factor),
                )
            ),
            "Your borders are right. Between them your γ is off: compute the wavelength once, and use it there too.",
        ),
        Mistake(
            "the wavelength upside down",
            _llama3_with(
                lambda f, turns, factor, low, high: _blended(
                    f, ((turns / f**2 - low) / (high - low)).clamp(0, 1), factor
                )
            ),
            "With your wavelength, fast pairs have long waves. Check it with a frequency of 1 and with one of 1/100.",
        ),
        Mistake(
            "2 pi on the wrong side",
            _llama3_with(
                lambda f, turns, factor, low, high: _blended(
                    f, (((2 * math.pi) ** 2 * turns - low) / (high - low)).clamp(0, 1), factor
                )
            ),
            "A frequency is radians a token. How many tokens make a whole turn? Check it with frequency 1.",
        ),
        Mistake(
            "no blend",
            _llama3_with(lambda f, turns, factor, low, high: torch.where(turns < low, f / factor, f)),
            "Between the two borders the rule blends. You jump at the lower one.",
        ),
        Mistake(
            "no blend, at the upper border",
            _llama3_with(lambda f, turns, factor, low, high: torch.where(turns < high, f / factor, f)),
            "Between the two borders the rule blends. You jump at the upper one.",
        ),
        Mistake(
            "the blend turned round",
            _llama3_with(
                lambda f, turns, factor, low, high: torch.where(
                    (turns < low) | (turns > high),
                    torch.where(turns < low, f / factor, f),
                    _blended(f, 1 - (turns - low) / (high - low), factor),
                )
            ),
            "Outside the borders all is right. Inside, the blend must join up with both sides: try it at a border.",
        ),
        Mistake(
            "fast and slow exchanged",
            _llama3_with(
                lambda f, turns, factor, low, high: _blended(f, 1 - ((turns - low) / (high - low)).clamp(0, 1), factor)
            ),
            "Low frequencies are long waves. Those are the ones to slow down.",
        ),
        Mistake(
            "everything divided",
            _llama3_with(lambda f, turns, factor, low, high: f / factor),
            "That is position interpolation. The fast pairs stay as they are.",
        ),
        Mistake(
            "frequencies in place of wavelengths",
            _llama3_with(
                lambda f, turns, factor, low, high: _blended(
                    f, ((2 * math.pi * turns - low) / (high - low)).clamp(0, 1), factor
                )
            ),
            "You divided by the frequency without 2 pi. A wavelength is a whole turn.",
        ),
        Mistake(
            "wavelengths blended",
            _llama3_with(
                lambda f, turns, factor, low, high: (
                    1 / (lambda s: s / f + (1 - s) * factor / f)(((turns - low) / (high - low)).clamp(0, 1))
                )
            ),
            "The rule blends frequencies. A blend of wavelengths is something else.",
        ),
        Mistake(
            "the blend linear in the wavelength",
            _llama3_with(
                lambda f, turns, factor, low, high: _blended(
                    f, ((1 / low - 1 / turns) / (1 / low - 1 / high)).clamp(0, 1), factor
                )
            ),
            "The ends are right. Between them the share grows with length / wavelength, not with the wavelength.",
        ),
    ),
    also_right=(_llama3_as_by_parts, _llama3_by_loop),
    learned="Llama 3.1's rule is NTK-by-parts with a ramp from 1 to 4 turns, and no attention factor.",
)

# --- 9.6 oldest_token


def oldest_token(layers: Sequence[tuple], position: int) -> int:
    first = position
    for kind, size in reversed(layers):
        if kind == "window":
            first = max(0, first - size + 1)
        elif kind == "chunk":
            first = first // size * size
        else:
            first = 0
    return first


def _oldest_recursively(layers: Sequence[tuple], position: int) -> int:
    if not layers:
        return position
    kind, size = layers[-1]
    first = 0 if kind == "full" else position - position % size if kind == "chunk" else max(0, position + 1 - size)
    return min(_oldest_recursively(layers[:-1], first), first)


def _oldest_bottom_up(layers: Sequence[tuple], position: int) -> int:
    return oldest_token(layers[::-1], position)


def _oldest_by_counting(layers: Sequence[tuple], position: int) -> int:
    if any(kind == "full" for kind, _ in layers):
        return 0
    return max(0, position - sum(size - 1 for _, size in layers))


def _oldest_with(window: int = 1, chunk: Callable[[int, int], int] = lambda p, c: p // c * c) -> Callable:
    def wrong(layers: Sequence[tuple], position: int) -> int:
        first = position
        for kind, size in reversed(layers):
            first = max(0, first - size + window) if kind == "window" else chunk(first, size) if kind == "chunk" else 0
        return first

    return wrong


def _oldest_without_a_start(layers: Sequence[tuple], position: int) -> int:
    first = position
    for kind, size in reversed(layers):
        first = first - size + 1 if kind == "window" else first - first % size if kind == "chunk" else 0
    return first


def _oldest_in_one_layer(layers: Sequence[tuple], position: int) -> int:
    return min((oldest_token([layer], position) for layer in layers), default=position)


def _random_layers(g: Generator) -> tuple:
    kinds = torch.randint(2, (5,), generator=g).tolist()
    sizes = torch.randint(2, 9, (5,), generator=g).tolist()
    return [(("window", "chunk")[kind], size) for kind, size in zip(kinds, sizes, strict=True)], 61


OLDEST_TOKEN = Exercise(
    chapter=9,
    title="How far back does the stack see, with chunks?",
    points=3,
    minutes=12,
    difficulty=3,
    reference=oldest_token,
    cases=(
        with_arguments("a window", [("window", 4)], 10),
        with_arguments("a chunk", [("chunk", 4)], 10),
        with_arguments("three chunks", [("chunk", 4)] * 3, 10),
        with_arguments("a window below a chunk", [("window", 3), ("chunk", 4)], 9),
        with_arguments("a chunk below a window", [("chunk", 4), ("window", 3)], 9),
        with_arguments("Llama 4: chunks and a full layer", [("chunk", 8)] * 3 + [("full", None)], 100),
        with_arguments("a full layer at the bottom", [("full", None), ("window", 4)], 10),
        with_arguments("Mistral 7B, a thousandth of it", [("window", 4)] * 32, 130),
        with_arguments("the start of the text", [("window", 4), ("chunk", 8), ("window", 4)], 2),
        with_arguments("the first token of a chunk", [("chunk", 4), ("chunk", 4)], 8),
        with_arguments("no layer", [], 5),
        drawn("five layers", _random_layers),
    ),
    mistakes=(
        Mistake(
            "read from the bottom",
            _oldest_bottom_up,
            "Order matters once there are chunks. Start at the top layer, where the output is, and walk down.",
        ),
        Mistake(
            "a chunk taken for a window",
            _oldest_by_counting,
            "A chunk does not move along with its token. Where does token 10's chunk of 4 begin?",
        ),
        Mistake(
            "one token too many",
            _oldest_with(window=0),
            "A window of 4 holds the token itself and three before it.",
        ),
        Mistake(
            "one layer at a time",
            _oldest_in_one_layer,
            "You took the layer that sees furthest. Layers add up: the rows that it sees have themselves seen more.",
        ),
        Mistake(
            "the chunk's number",
            _oldest_with(chunk=lambda position, size: position // size),
            "That is the number of the chunk. Which token does it begin with?",
        ),
        Mistake(
            "how many in place of which",
            lambda layers, position: position - oldest_token(layers, position) + 1,
            "You counted the tokens in sight. Asked for is the position of the oldest.",
        ),
        Mistake(
            "the start of the text forgotten",
            _oldest_without_a_start,
            "There is nothing before position 0.",
        ),
    ),
    also_right=(_oldest_recursively,),
    learned="Windows add up, chunks never cross their edge, and one full layer anywhere opens everything.",
)

# --- 9.7 layers_of


def layers_of(config: dict) -> list[tuple[bool, str]]:
    n_layers, flags = config["num_hidden_layers"], config["no_rope_layers"]
    if flags is None:
        interval = config["no_rope_layer_interval"]
        flags = [int((layer + 1) % interval != 0) for layer in range(n_layers)]
    in_chunks = config["attention_chunk_size"] is not None
    return [(bool(flag), "chunk" if flag and in_chunks else "full") for flag in flags]


def _layers_by_loop(config: dict) -> list[tuple[bool, str]]:
    layers = []
    for number in range(1, config["num_hidden_layers"] + 1):
        if config["no_rope_layers"] is not None:
            rotates = config["no_rope_layers"][number - 1] == 1
        else:
            rotates = number % config["no_rope_layer_interval"] > 0
        layers.append((rotates, "full" if config["attention_chunk_size"] is None or not rotates else "chunk"))
    return layers


def _config(n_layers: int, flags: list[int] | None = None, interval: int = 4, chunk: int | None = 8192) -> dict:
    return {
        "num_hidden_layers": n_layers,
        "no_rope_layers": flags,
        "no_rope_layer_interval": interval,
        "attention_chunk_size": chunk,
    }


def _without_flags(config: dict, offset: int) -> dict:
    """The config with its flags made from the interval, counted from another layer."""
    n_layers, interval = config["num_hidden_layers"], config["no_rope_layer_interval"]
    made = [int((layer + offset) % interval != 0) for layer in range(n_layers)]
    return config | {"no_rope_layers": config["no_rope_layers"] or made}


def _chunk_if(config: dict, wanted: bool) -> str:
    return "chunk" if wanted and config["attention_chunk_size"] is not None else "full"


def _given(config: dict) -> list[int]:
    """The flags, which somebody forgot can be None: then this raises TypeError, as their loop does."""
    return list(config["no_rope_layers"])


def _flags_or_ones(config: dict) -> list[int]:
    return config["no_rope_layers"] or [1] * config["num_hidden_layers"]


def _by_number(config: dict, offset: int) -> list[tuple[bool, str]]:
    """Every fourth layer, whatever the configuration says."""
    return layers_of(_without_flags(config | {"no_rope_layers": None, "no_rope_layer_interval": 4}, offset))


def _exchanged(config: dict) -> list[tuple[bool, str]]:
    """The flag read as its name says."""
    flags = [int(not rotates) for rotates, _ in layers_of(config)]
    return layers_of(config | {"no_rope_layers": flags})


LAYERS_OF = Exercise(
    chapter=9,
    title="Which layers rotate?",
    points=2,
    minutes=10,
    difficulty=2,
    reference=layers_of,
    cases=(
        with_arguments("flags given", _config(4, [1, 1, 1, 0])),
        with_arguments("Llama 4 Scout: no flags", _config(48)),
        with_arguments("SmolLM3: no chunks", _config(36, None, 4, None)),
        with_arguments("flags win over the interval", _config(3, [0, 1, 1], 2)),
        with_arguments("all rotate", _config(2, [1, 1])),
        with_arguments("every second", _config(5, None, 2, 64)),
        with_arguments("none rotates", _config(3, None, 1, 64)),
    ),
    mistakes=(
        Mistake(
            "the flag read as its name says",
            _exchanged,
            "You believed the name. Read in the statement what a 1 means.",
        ),
        Mistake(
            "given flags read as the name says",
            lambda config: _exchanged(config) if config["no_rope_layers"] is not None else layers_of(config),
            "Without flags you are right. Where flags are given, read in the statement what a 1 means.",
        ),
        Mistake(
            "the flag read as its name says, and no flags forgotten",
            lambda config: [(not flag, "full" if flag else _chunk_if(config, True)) for flag in _given(config)],
            "Two things. You believed the name: read what a 1 means. And where the list is None, compute it.",
        ),
        Mistake(
            "no flags forgotten",
            lambda config: layers_of(config | {"no_rope_layers": _given(config)}),
            "Given flags you read rightly. Where the list is None, compute it from the interval.",
        ),
        Mistake(
            "no flags taken for ones",
            lambda config: layers_of(config | {"no_rope_layers": _flags_or_ones(config)}),
            "Given flags you read rightly. But a list that is None doesn't mean that all layers rotate.",
        ),
        Mistake(
            "the flag read as its name says, no flags taken for ones",
            lambda config: (_exchanged if config["no_rope_layers"] else layers_of)(
                config | {"no_rope_layers": _flags_or_ones(config)}
            ),
            "Two things. You believed the name: read what a 1 means. And where the list is None, compute it.",
        ),
        Mistake(
            "the interval wins, and is 4",
            lambda config: _by_number(config, 1),
            "Two things. Where flags are given, they count. And how long a group is stands in the configuration.",
        ),
        Mistake(
            "i % 4",
            lambda config: _by_number(config, 0),
            "You looked at the layer's number alone: not at the flags, not at the interval. And layers count from 0.",
        ),
        Mistake(
            "counted from 0",
            lambda config: layers_of(_without_flags(config, 0)),
            "Your first layer has no rotary. It is the *last* of each group: the fourth, the eighth …",
        ),
        Mistake(
            "counted from 0, and always fours",
            lambda config: layers_of(_without_flags(config | {"no_rope_layer_interval": 4}, 0)),
            "Two things. The layer without rotary is the *last* of its group. And how long a group is, is configured.",
        ),
        Mistake(
            "the interval written into the code",
            lambda config: layers_of(config | {"no_rope_layer_interval": 4}),
            "Right for one model. How long a group is stands in the configuration.",
        ),
        Mistake(
            "computed flags turned round",
            lambda config: _exchanged(config) if config["no_rope_layers"] is None else layers_of(config),
            "Given flags you read rightly. Those that you compute yourself are turned round: the last of a group is 0.",
        ),
        Mistake(
            "the interval wins",
            lambda config: layers_of(config | {"no_rope_layers": None}),
            "Where flags are given, they count. The interval is only for a model without them.",
        ),
        Mistake(
            "every layer in chunks",
            lambda config: [(rotates, _chunk_if(config, True)) for rotates, _ in layers_of(config)],
            "Then no layer would see across an edge. The layers without rotary see everything.",
        ),
        Mistake(
            "the wrong layers in chunks",
            lambda config: [(rotates, _chunk_if(config, not rotates)) for rotates, _ in layers_of(config)],
            "It is the rotating layers that are cut into chunks.",
        ),
        Mistake(
            "chunks where there are none",
            lambda config: [(rotates, "chunk" if rotates else "full") for rotates, _ in layers_of(config)],
            "Without a chunk size, no layer is cut into chunks.",
        ),
        Mistake(
            "flags in place of True and False",
            lambda config: [(int(rotates), sees) for rotates, sees in layers_of(config)],
            "Right layers. Return True and False, not 1 and 0.",
        ),
    ),
    also_right=(_layers_by_loop,),
    learned="A flag called `no_rope_layers` that is 1 where rotary IS used: read the code that uses a flag.",
)

# --- 9.8 stretched_frequencies

NEW_LENGTH = 256
GOAL_LOSS = 2.05
GOAL_NEEDLES = 0.7


def stretched_frequencies() -> Tensor:
    return by_parts(PLAIN, NEW_LENGTH / TRAINED, TRAINED, slow=1, fast=4)


def _a_larger_base() -> Tensor:
    return plain_frequencies(HEAD_DIM, 32 * BASE)


def _everything_slow_slowed() -> list[float]:
    return from_pair(3, 4.0, slowed="slow").tolist()


def stretched(frequencies: Sequence[float]) -> Transformer:
    """The stored model with these frequencies."""
    return checkpoint(Together(Causal(), Rotary(frequencies=torch.tensor(frequencies, dtype=torch.float64))))


@cache
def loss_past_training(frequencies: tuple[float, ...]) -> float:
    by_part = losses(stretched(frequencies), NEW_LENGTH, letters=8 * NEW_LENGTH)
    return sum(by_part[2:]) / len(by_part[2:])  # the first two of eight parts are positions 0 to 63


@cache
def needles_found(frequencies: tuple[float, ...]) -> float:
    found = needles(stretched(frequencies), NEW_LENGTH, examples=24)
    return sum(found) / len(found)


def _numbers(answer: Callable) -> tuple[float, ...] | str:
    got = answer()
    try:
        got = as_tensor(got).double()
    except (TypeError, ValueError, RuntimeError):
        return "return the 8 frequencies, as a tensor or a list of numbers"
    if got.shape != (HEAD_DIM // 2,):
        return f"the model has 8 pairs, so return 8 frequencies; got the shape {tuple(got.shape)}"
    return tuple(got.tolist()) if torch.isfinite(got).all() else "each frequency must be a finite number"


def _low_loss(answer: Callable, _: Generator) -> Complaint:
    numbers = _numbers(answer)
    if isinstance(numbers, str):
        return numbers
    loss = loss_past_training(numbers)
    return None if loss < GOAL_LOSS else f"the loss at positions 64 to 255 is {loss:.2f} nats"


def _finds_needles(answer: Callable, _: Generator) -> Complaint:
    numbers = _numbers(answer)
    if isinstance(numbers, str):
        return numbers
    found = needles_found(numbers)
    return None if found > GOAL_NEEDLES else f"{found:.0%} of the needles are found"


STRETCHED_FREQUENCIES = Exercise(
    chapter=9,
    title="Make it read four times as far",
    points=4,
    minutes=20,
    difficulty=4,
    reference=stretched_frequencies,
    properties=(
        Property(f"loss below {GOAL_LOSS} nats at positions 64 to 255", _low_loss),
        Property(f"more than {GOAL_NEEDLES:.0%} of the needles found", _finds_needles),
    ),
    mistakes=(
        Mistake(
            "as trained",
            lambda: PLAIN,
            "These are the frequencies of the training. At 256 letters some pairs reach angles that nobody taught.",
        ),
        Mistake(
            "all pairs slowed",
            lambda: interpolated(PLAIN, 4),
            "Position interpolation. Without a fine-tune the fast pairs, which tell neighbours apart, are damaged.",
        ),
        Mistake(
            "a new base",
            lambda: plain_frequencies(HEAD_DIM, ntk_base(BASE, 4, HEAD_DIM)),
            "NTK. It slows the pair that matters, but not by enough. Which pair is it, and how far must it go?",
        ),
        Mistake(
            "the fast pairs slowed",
            lambda: from_pair(3, 4.0, slowed="fast"),
            "You slowed the pairs that had seen their whole circle already. The others need it.",
        ),
        Mistake(
            "the slow pairs switched off",
            lambda: torch.where(torch.arange(len(PLAIN)) < 3, PLAIN, 0.0),
            "You switched off one pair too many: one of these the model does need, only slower. Try them one by one.",
        ),
        Mistake(
            "only pair 3 slowed",
            lambda: torch.where(torch.arange(len(PLAIN)) == 3, PLAIN / 4, PLAIN),
            "The loss is healed, the needles are not. Who else meets new angles at 256 letters?",
        ),
        Mistake(
            "turned backwards",
            lambda: -stretched_frequencies(),
            "Your pairs turn the other way than in training. Look at the signs.",
        ),
        Mistake(
            "slowed from pair 4 on",
            lambda: from_pair(4, 4.0, slowed="slow"),
            "One pair that you left alone makes less than one turn in 64 letters. Count again.",
        ),
        Mistake(
            "YaRN's published constants",
            lambda: by_parts(PLAIN, 4, TRAINED, slow=1, fast=32),
            "No pair of this model turns 32 times in training, so all of them are slowed. Choose the ramp's upper end.",
        ),
    ),
    also_right=(_everything_slow_slowed, _a_larger_base),
    learned="Eight numbers, no training, four times the length. Look at the turns of each pair before you scale it.",
)

EXERCISES = (
    PAIRS_WITHOUT_A_TURN,
    INTERPOLATED_ANGLES,
    NTK_AWARE_BASE,
    YARN_FREQUENCIES,
    LLAMA3_FREQUENCIES,
    OLDEST_TOKEN,
    LAYERS_OF,
    STRETCHED_FREQUENCIES,
)
