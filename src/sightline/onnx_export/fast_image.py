"""Adding a fast image graph to a bundle: a smaller image encoder with the same vector space."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sightline.arrays import Arrays
from sightline.bundle.engines import OnnxRuntime
from sightline.bundle.layout import FAST_IMAGE_FILE, IMAGE_FILE
from sightline.bundle.onnx_file import check_self_contained
from sightline.bundle.relevance_formula import PairRelevance
from sightline.bundle.spec import BundleSpec, FastSpec, ImageSpec, read_spec, sha256, write_spec
from sightline.errors import BundleError
from sightline.files import write_atomic
from sightline.media import Preprocess, blank, require_pixels


def add_fast_image(
    folder: str | Path,
    onnx_path: str | Path,
    preprocess: Preprocess,
    relevance: PairRelevance | None = None,
    provenance: Mapping[str, Any] | None = None,
    results: Sequence[Mapping[str, Any]] = (),
    *,
    grid: tuple[int, int] | None = None,
) -> BundleSpec:
    """Add a fast image graph to the bundle in `folder`, or replace its earlier one; returns the new spec.

    The identity of the bundle does not change, so that collections remain valid. After a crash, the bundle has its
    earlier fast graph, none, or the new one.

    onnx_path: a graph with the input `pixels` and the same outputs, of the same widths, as the bundle's image graph.
    preprocess: how images are resized and normalised for it.
    relevance: fitted for its vectors. provenance, results: of this graph, as in a bundle's spec.
    grid: the rows and columns that its fragments form; by default those of the bundle's image graph.
    """
    folder, onnx_path = Path(folder), Path(onnx_path)
    spec = read_spec(folder).without_fast()
    check_self_contained(onnx_path)
    _check_outputs(onnx_path, preprocess, folder / IMAGE_FILE, require_pixels(spec.image.input))
    graph = onnx_path.read_bytes()
    write_spec(folder, spec)
    write_atomic(folder / FAST_IMAGE_FILE, graph)
    image = ImageSpec(preprocess, grid or spec.image.grid)
    added = replace(
        spec,
        files={**spec.files, FAST_IMAGE_FILE: sha256(folder / FAST_IMAGE_FILE)},
        fast=FastSpec(image, relevance, dict(provenance or {}), tuple(results)),
    )
    write_spec(folder, added)
    return added


def _check_outputs(fast: Path, preprocess: Preprocess, full: Path, own: Preprocess) -> None:
    """Reject a graph whose outputs differ in name or width from those of the bundle's image graph."""
    found, expected = _widths(fast, preprocess), _widths(full, own)
    if found != expected:
        raise BundleError(
            f"{fast}: returns {found}, but the bundle's image graph returns {expected}",
            "Distil the graph from this bundle's image graph.",
        )


def _widths(graph: Path, preprocess: Preprocess) -> dict[str, int]:
    out: Arrays = OnnxRuntime(graph, threads=1).run({"pixels": blank(preprocess)})
    return {name: values.shape[-1] for name, values in sorted(out.items())}
