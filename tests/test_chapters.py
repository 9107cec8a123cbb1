"""A chapter teaches what the library does: the two definitions are the same code."""

import ast
import importlib
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parent.parent

# What each chapter defines anew, and where the library keeps it.
TAUGHT = {
    "01_a_set_not_a_sequence": {
        "masked_softmax": "posenc.attention",
        "attention": "posenc.attention",
        "permute": "posenc.symmetry",
        "difference": "posenc.symmetry",
        "equivariance_error": "posenc.symmetry",
    },
    "02_what_a_set_can_say": {"shares": "posenc.sets", "DeepSets": "posenc.sets"},
    "03_the_mask_door": {
        "causal": "posenc.masks",
        "sliding_window": "posenc.masks",
        "chunked": "posenc.masks",
        "padding": "posenc.masks",
        "same_document": "posenc.masks",
        "leak": "posenc.symmetry",
        "fit_probe": "posenc.probe",
        "apply_probe": "posenc.probe",
        "r_squared": "posenc.probe",
    },
    "04_sinusoids": {
        "frequencies": "posenc.absolute",
        "sinusoids": "posenc.absolute",
        "step_matrix": "posenc.absolute",
        "to_halves": "posenc.absolute",
        "to_interleaved": "posenc.absolute",
    },
    "05_learned_tables": {
        "check_positions": "posenc.learned",
        "Learned": "posenc.learned",
        "resize_table": "posenc.learned",
        "roberta_rows": "posenc.learned",
        "opt_rows": "posenc.learned",
        "bart_rows": "posenc.learned",
    },
    "06_relative_offsets": {
        "offset_rows": "posenc.offsets",
        "relative_scores": "posenc.offsets",
        "relative_values": "posenc.offsets",
        "ShawKeys": "posenc.offsets",
        "Shaw": "posenc.offsets",
        "skew": "posenc.offsets",
        "TransformerXL": "posenc.offsets",
        "translation_error": "posenc.symmetry",
    },
    "07_biases": {
        "bucket_starts": "posenc.relative",
        "t5_bucket": "posenc.relative",
        "horizon": "posenc.relative",
        "keys_that_hold": "posenc.relative",
    },
    "08_rotary": {
        "turn": "posenc.rotary",
        "turn_halves": "posenc.rotary",
        "weights_to_halves": "posenc.rotary",
        "look_back_as_asked": "posenc.tasks",
    },
    "09_longer_contexts": {
        "turns": "posenc.contexts",
        "interpolated": "posenc.contexts",
        "ntk_base": "posenc.contexts",
        "by_parts": "posenc.contexts",
        "yarn_factor": "posenc.contexts",
        "ClampedRotary": "posenc.contexts",
        "Layer": "posenc.contexts",
        "repeated": "posenc.contexts",
        "keys_seen": "posenc.contexts",
        "reach": "posenc.contexts",
        "temperature": "posenc.contexts",
    },
    "10_grids": {
        "sinusoids_2d": "posenc.grids",
        "resample": "posenc.grids",
        "places_in": "posenc.grids",
    },
    "11_relative_and_rotary": {
        "Windows": "posenc.windows",
        "roll_and_cut": "posenc.windows",
        "log_spaced": "posenc.windows",
        "grid_angles": "posenc.rotary_grid",
        "axial_vectors": "posenc.rotary_grid",
        "mrope_vectors": "posenc.rotary_grid",
    },
    "12_measured": {
        "gaps": "posenc.symmetry_table",
    },
    "13_production_models": {
        "rotary_of": "posenc.production",
        "llama4_doors": "posenc.production",
        "gemma3_doors": "posenc.production",
    },
    "14_what_it_costs": {
        "by_grid": "posenc.costs",
        "by_written_bias": "posenc.costs",
        "by_one_feature": "posenc.costs",
        "Meter": "posenc.costs",
        "metered": "posenc.costs",
        "layer_bytes": "posenc.costs",
        "slots": "posenc.costs",
        "cache_bytes": "posenc.costs",
        "turn_with": "posenc.costs",
        "turn_in_place": "posenc.costs",
    },
}


class Bare(ast.NodeTransformer):
    """Take docstrings and annotations away: they are the library's manners, not its mathematics."""

    def visit_FunctionDef(self, node):
        node.returns = None
        return self._without_docstring(node)

    def visit_ClassDef(self, node):
        return self._without_docstring(node)

    def _without_docstring(self, node):
        self.generic_visit(node)
        if ast.get_docstring(node) is not None:
            node.body = node.body[1:]
        return node

    def visit_arg(self, node):
        node.annotation = None
        return node

    def visit_AnnAssign(self, node):
        if node.value is None:  # a field without a default, as in a dataclass
            return node
        return ast.Assign(targets=[node.target], value=node.value, lineno=node.lineno)


def definitions(source: str) -> dict[str, str]:
    """Name to bare code of every top-level function and class; the last one wins."""
    nodes = [n for n in ast.parse(source).body if isinstance(n, (ast.FunctionDef, ast.ClassDef))]
    return {node.name: ast.unparse(Bare().visit(node)) for node in nodes}


def code_of(notebook: Path) -> str:
    cells = nbformat.read(notebook, as_version=4).cells
    lines = "\n".join(c.source for c in cells if c.cell_type == "code").splitlines()
    return "\n".join(line.replace("%pip", "pass  # %pip") for line in lines)


@pytest.mark.parametrize(("chapter", "name"), [(chapter, name) for chapter, names in TAUGHT.items() for name in names])
def test_chapter_and_library_define_the_same(chapter, name):
    taught = definitions(code_of(ROOT / "chapters" / f"{chapter}.ipynb"))
    module = importlib.import_module(TAUGHT[chapter][name])
    kept = definitions(Path(module.__file__).read_text(encoding="utf-8"))
    assert taught[name] == kept[name]


def test_every_chapter_is_listed_and_the_comparison_can_fail():
    assert {p.stem for p in (ROOT / "chapters").glob("*.ipynb")} == set(TAUGHT)
    assert definitions("def f(x: int) -> int:\n    'Doc.'\n    return x") == definitions("def f(x):\n    return x")
    assert definitions("def f(x):\n    return x") != definitions("def f(x):\n    return -x")
