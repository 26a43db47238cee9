"""The GPU's late interaction is the plain one: on a GPU where there is one, else as Triton interprets it."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec

import pytest
import torch

pytestmark = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")

SHAPES = [(37, 32, 128, 32), (21, 49, 128, 12), (9, 7, 40, 3), (5, 1, 16, 1), (1, 64, 64, 64)]

INTERPRETED = """
import json, sys, warnings
warnings.simplefilter("ignore")
import torch
from benchmarks.maxsim_kernel import best, maxsim, reference
from benchmarks.test_maxsim_kernel import SHAPES, case
errors = []
for shape in SHAPES:
    for kind in ("float16", "int8"):
        for is_masked in (False, True):
            given = case(shape, kind, is_masked, "cpu")
            exact, found = reference(*given), maxsim(*given)
            errors.append(float(((found - exact).abs() / exact.abs()).max()))
words, fragments, mask, scales = case((40, 5, 16, 3), "float16", True, "cpu")
top = best(words, fragments, 7, mask)[1].tolist()
right = torch.topk(reference(words, fragments, mask), 7).indices.tolist()
print(json.dumps([max(errors), top == right, maxsim(words, fragments[:0]).shape[0]]))
"""


def case(
    shape: tuple[int, int, int, int], kind: str, is_masked: bool, device: str
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
    """Words, fragments, mask and scales; behind the mask stands what would win if it counted."""
    images, each, dim, count = shape
    chance = torch.Generator().manual_seed(sum(shape))
    dtype = torch.bfloat16 if kind == "bfloat16" else torch.float16
    words = torch.nn.functional.normalize(torch.randn(count, dim, generator=chance), dim=-1)
    fragments = torch.nn.functional.normalize(torch.randn(images, each, dim, generator=chance), dim=-1)
    mask = torch.rand(images, each, generator=chance) > 0.4
    mask[:, each // 2] = True
    if is_masked:
        fragments[~mask] = 9 * words[0]
    scales = None
    if kind == "int8":
        scales = fragments.abs().amax(-1) / 127
        fragments = (fragments / scales[..., None]).round()
    fragments = fragments.to(torch.int8 if kind == "int8" else dtype)
    given = words.to(dtype), fragments, mask if is_masked else None, scales
    return tuple(None if part is None else part.to(device) for part in given)  # type: ignore[return-value]


def test_interpreted_it_is_the_reference() -> None:
    """Tiles that are not filled, masks, scales. (Triton interprets no products of bfloat16.)"""
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", INTERPRETED], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    error, is_top, nothing = json.loads(done.stdout)
    assert error < 1e-4
    assert is_top
    assert nothing == 0


def test_the_reference_is_a_sum_of_best_products_whatever_the_blocks() -> None:
    from benchmarks.maxsim_kernel import reference

    words, fragments, mask, _ = case((11, 5, 16, 3), "float16", True, "cpu")
    assert mask is not None
    expected = [
        sum(float((own[seen].float() @ word.float()).max()) for word in words)
        for own, seen in zip(fragments, mask, strict=True)
    ]
    for at_once in (1, 4, 100):
        assert reference(words, fragments, mask, at_once=at_once).tolist() == pytest.approx(expected, rel=1e-5)


def test_what_the_kernel_would_read_wrongly_is_refused() -> None:
    from benchmarks.maxsim_kernel import maxsim
    from sightline.errors import ModelError

    words, fragments, mask, _ = case((11, 5, 16, 3), "float16", True, "cpu")
    assert mask is not None
    _, whole, _, scales = case((11, 5, 16, 3), "int8", False, "cpu")
    for given, says in (
        ((words[:, :8], fragments), "for fragments"),
        ((words[:0], fragments), "without fragments"),
        ((words.float(), fragments.float()), "float32"),
        ((words, fragments.bfloat16()), "bfloat16"),
        ((words, whole), "int8"),
        ((words, fragments, mask[:, :2]), "a mask"),
        ((words, fragments, mask.float()), "a mask"),
        ((words, whole, None, None if scales is None else scales[:3]), "scales"),
        ((words, fragments), "on the cpu"),
    ):
        with pytest.raises(ModelError, match=says):
            maxsim(*given)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize("shape", [*SHAPES, (5000, 49, 128, 20)], ids=str)
@pytest.mark.parametrize("kind", ["float16", "bfloat16", "int8"])
@pytest.mark.parametrize("is_masked", [False, True])
def test_on_a_gpu_it_is_the_reference(shape: tuple[int, int, int, int], kind: str, is_masked: bool) -> None:
    from benchmarks.maxsim_kernel import maxsim, reference

    given = case(shape, kind, is_masked, "cuda")
    exact = reference(*given)
    error = (maxsim(*given) - exact).abs() / exact.abs()
    assert float(error.max()) < (1e-2 if kind == "bfloat16" else 1e-3)
