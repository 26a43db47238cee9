"""Exporting a checkpoint as a bundle: ONNX graphs that do not need torch."""

import contextlib
import io
import logging
import shutil
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from sightline.arrays import Float32Array
from sightline.bundle.layout import SPEC_FILE
from sightline.bundle.model import Ability, Defaults, Graph
from sightline.bundle.spec import FORMAT, BundleSpec, ImageSpec, TextSpec, sha256, write_spec
from sightline.bundle.tokenizer import Tokenizer
from sightline.bundle.words import most_frequent
from sightline.datasets import Record
from sightline.datasets.record import OnProblem
from sightline.errors import BundleError, ModelError
from sightline.evaluation.encodings import Progress
from sightline.media import Preprocess, RegionConfig
from sightline.models.retriever import EncodedTensors, Regions, Retriever, Tokens
from sightline.onnx_export.calibrate import finish
from sightline.onnx_export.quantize import check_pattern, quantize
from sightline.onnx_export.samples import caption_samples, image_samples, pair_samples

_SOURCES = "pkg.torch.onnx.stack_trace"  # metadata of a node
_EXTRA_POSITIONS = 2  # RoBERTa counts from 2
_MOST_POSITIONS = 1 << 20
OPSET = 23  # the first with an Attention operator, which ONNX Runtime runs fused


class _ImageGraph(nn.Module):
    def __init__(self, retriever: Retriever) -> None:
        super().__init__()
        self.retriever = retriever

    def forward(self, pixels: Tensor) -> tuple[Tensor, ...]:
        return _outputs(self.retriever.encode_images(pixels), self.retriever.abilities)


class _RegionGraph(nn.Module):
    def __init__(self, retriever: Retriever, config: RegionConfig) -> None:
        super().__init__()
        self.retriever = retriever
        self.config = config

    def forward(self, regions: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
        encoded = self.retriever.encode_images(Regions.of(regions, mask, self.config))
        outputs = _outputs(encoded, self.retriever.abilities)
        return outputs if encoded.mask is mask else (*outputs, encoded.mask)


class _TextGraph(nn.Module):
    def __init__(self, retriever: Retriever) -> None:
        super().__init__()
        self.retriever = retriever

    def forward(self, ids: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
        encoded = self.retriever.encode_texts(Tokens(ids, mask))
        outputs = _outputs(encoded, self.retriever.abilities)
        return outputs if encoded.mask is mask else (*outputs, encoded.mask)


class _MatchGraph(nn.Module):
    def __init__(self, retriever: Retriever) -> None:
        super().__init__()
        self.retriever = retriever

    def forward(
        self, text_states: Tensor, text_mask: Tensor, image_states: Tensor, image_mask: Tensor
    ) -> tuple[Tensor, ...]:
        logits = self.retriever.match(text_states, text_mask, image_states, image_mask)
        cosines = self.retriever.word_cosines(text_states, image_states, image_mask)
        return (logits,) if cosines is None else (logits, cosines)


def export(
    retriever: Retriever,
    tokenizer: Tokenizer,
    out: str | Path,
    *,
    name: str,
    precision: Literal["float32", "int8"] = "float32",
    four_bits: str = "",
    images: Float32Array | None = None,
    provenance: Mapping[str, Any] | None = None,
    held_out: Sequence[Record] | None = None,
    trained_on: Iterable[str] = (),
    progress: Progress | None = None,
    on_problem: OnProblem | None = None,
) -> BundleSpec:
    """Write a bundle to `out`, replacing an earlier one only when the new one is complete.

    A failure leaves nothing behind. The graphs have a dynamic batch size and, for texts and regions, a dynamic length.
    Only trained abilities are exported.

    precision: the type of the weights. four_bits: with int8, a pattern; modules whose path matches it get four-bit
        weights.
    images: with int8, about a hundred typical images as pixels [images, 3, size, size]; they make the image graph
        faster (see `fix_ranges`).
    held_out: captions not trained on, to round four-bit weights and to calibrate the bundle (see `finish`); without
        them, the bundle reranks only on request.
    progress, on_problem: called during calibration, the latter for each unreadable held-out image.
    trained_on: captions that the model was trained on; the bundle stores their words as the ones that it can read.
    """
    check_pattern(four_bits, precision)
    with _in_place_of(Path(out).resolve()) as building:
        retriever = retriever.eval().cpu()
        if not retriever.abilities:
            raise ModelError(
                "this model was not trained for anything that a search uses",
                "Train it with a loss such as contrastive, triplet or matching.",
            )
        if not retriever.unit_length:
            raise ModelError(
                "search needs vectors of unit length, which this model does not produce",
                "Train it with model.unit_length = true.",
            )
        encoded = _graphs(retriever, tokenizer, building)
        if precision == "int8":
            texts = caption_samples(held_out or (), retriever.text_input.languages, tokenizer)
            samples = {
                "image": image_samples(images),
                "text": texts,
                "match": pair_samples(retriever, texts, images),
            }
            small = [
                quantize(path, four_bits, samples.get(path.stem, ()), fixed_ranges=path.stem == "image")
                for path in building.glob("*.onnx")
            ]
            if four_bits and not any(small):
                raise ModelError(
                    f"four bits: no module's path matches {four_bits!r}", r"For the text tower, use 'text\.encoder'."
                )
        tokenizer.save(building / "tokenizer.json")
        spec = BundleSpec(
            format=FORMAT,
            name=name,
            abilities=tuple(sorted(retriever.abilities)),
            embedding_dim=encoded.embedding.shape[-1],
            fragment_dim=encoded.fragments.shape[-1] if "fragments" in retriever.abilities else 0,
            image=_image_spec(retriever),
            text=TextSpec(tokenizer.max_length, pad_id=tokenizer.pad_id, languages=retriever.text_input.languages),
            files={path.name: sha256(path) for path in sorted(building.iterdir())},
            precision=precision,
            defaults=Defaults(rerank=0),
            relevance=dict(retriever.calibration),
            provenance=dict(provenance or {}),
            words=" ".join(most_frequent(trained_on)),
        )
        write_spec(building, spec)
        return spec if held_out is None else finish(building, held_out, progress=progress, on_problem=on_problem)


@contextlib.contextmanager
def _in_place_of(out: Path) -> Iterator[Path]:
    """Yield a new folder that replaces `out` when it is complete, and is deleted otherwise.

    The earlier folder is moved aside, and deleted only when the new one is in place.
    """
    new, old = (out.with_name(out.name + suffix) for suffix in (".building", ".replaced"))
    _check_replaceable(out)
    _check_replaceable(old)
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    try:
        yield new
        if out.exists():
            shutil.rmtree(old, ignore_errors=True)
            out.rename(old)
        new.rename(out)
    except BaseException:  # Ctrl-C too
        shutil.rmtree(new, ignore_errors=True)
        if old.exists() and not out.exists():
            old.rename(out)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _check_replaceable(out: Path) -> None:
    """Raise an error if the folder to replace is not an earlier bundle."""
    if not out.exists() or (out.is_dir() and ((out / SPEC_FILE).is_file() or not any(out.iterdir()))):
        return
    raise BundleError(f"{out}: already exists and is not a bundle", "Choose another --out.")


@torch.inference_mode()
def _graphs(retriever: Retriever, tokenizer: Tokenizer, folder: Path) -> EncodedTensors:
    """Trace the three graphs with a small batch; returns the encoded images, whose shapes go into the spec.

    If the fragments of a text are not its tokens, the text graph has an output for their mask.
    """
    tokens = tokenizer(["a dog", "two children playing on a beach"])
    ids, mask = torch.from_numpy(tokens.ids), torch.from_numpy(tokens.mask)
    image, text = _image_graph(retriever, folder), retriever.encode_texts(Tokens(ids, mask))
    outputs = _names(image, retriever)
    own_mask = [] if text.mask is mask else ["fragments_mask"]
    words, longest = {"ids": ids, "mask": mask}, tokenizer.max_length
    with _positions(retriever, longest):
        trace(_TextGraph(retriever), "text", words, [*outputs, *own_mask], folder, most_words=longest)
    if "match" in retriever.abilities and text.states is not None and image.states is not None:
        inputs = {
            "text_states": text.states,
            "text_mask": text.mask,
            "image_states": image.states,
            "image_mask": image.mask,
        }
        varying = () if retriever.reads_pixels else ("image_states", "image_mask")
        most = longest + image.states.shape[1] if retriever.reads_pixels else _MOST_POSITIONS
        with _positions(retriever, most):
            graph = _MatchGraph(retriever)
            outputs = ["logits", "word_cosines"][: len(graph(**inputs))]
            trace(graph, "match", inputs, outputs, folder, varying)
    return image


@contextlib.contextmanager
def _positions(retriever: Retriever, most: int) -> Iterator[None]:
    """Temporarily cut position tables to the positions that a graph can use."""
    found = (getattr(module, "position_embeddings", None) for module in retriever.modules())
    tables = [table for table in found if isinstance(table, nn.Embedding)]
    whole = [table.weight for table in tables]
    for table in tables:
        first = most + _EXTRA_POSITIONS
        table.weight = nn.Parameter(table.weight[:first].detach(), requires_grad=False)
    try:
        yield
    finally:
        for table, weight in zip(tables, whole, strict=True):
            table.weight = weight


def _image_graph(retriever: Retriever, folder: Path) -> EncodedTensors:
    """Trace the image graph, for pixels or regions; returns the encoded batch."""
    wanted = retriever.preprocess
    if isinstance(wanted, Preprocess):
        pixels = torch.zeros(2, 3, wanted.size, wanted.size)
        image = retriever.encode_images(pixels)
        trace(_ImageGraph(retriever), "image", {"pixels": pixels}, _names(image, retriever), folder)
        return image
    regions, mask = torch.zeros(2, 5, wanted.width), torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    image = retriever.encode_images(Regions.of(regions, mask, wanted))
    own_mask = [] if image.mask is mask else ["fragments_mask"]
    graph = _RegionGraph(retriever, wanted)
    inputs = {"regions": regions, "mask": mask}
    trace(graph, "image", inputs, [*_names(image, retriever), *own_mask], folder, varying=tuple(inputs))
    return image


def _image_spec(retriever: Retriever) -> ImageSpec:
    wanted = retriever.preprocess
    if isinstance(wanted, RegionConfig):
        return ImageSpec(regions=wanted)
    return ImageSpec(wanted, retriever.grid)


def _names(encoded: EncodedTensors, retriever: Retriever) -> list[str]:
    return list(_given(encoded, retriever.abilities))


def trace(
    module: nn.Module,
    graph: Graph,
    inputs: dict[str, Tensor],
    outputs: list[str],
    folder: Path,
    varying: tuple[str, ...] = (),
    most_words: int = 4096,
) -> None:
    """Write one graph. varying: inputs of the image side with a dynamic length."""
    batch = torch.export.Dim("batch", min=1, max=65536)
    words = torch.export.Dim("words", min=1, max=most_words)
    regions = torch.export.Dim("regions", min=1, max=4096)
    texts = ("ids", "mask", "text_states", "text_mask")
    lengths = {**dict.fromkeys(texts, words), **dict.fromkeys(varying, regions)}
    shapes = {name: {0: batch, 1: lengths[name]} if name in lengths else {0: batch} for name in inputs}
    with _quiet():
        program = torch.onnx.export(
            module.eval(),
            tuple(inputs.values()),
            dynamo=True,
            opset_version=OPSET,
            dynamic_shapes=tuple(shapes.values()),
            input_names=list(inputs),
            verbose=False,
        )
        if program is None:
            raise ModelError(f"the {graph} graph could not be exported")
        _name_outputs(program.model.graph, outputs)
        _forget_sources(program.model.graph)
        program.save(str(folder / f"{graph}.onnx"), external_data=False)


def _name_outputs(graph: Any, names: list[str]) -> None:
    """Name a graph's outputs; inner values with one of these names are renamed."""
    inside = [value for node in graph for value in node.outputs]
    for value in [*inside, *graph.initializers.values()]:
        if value.name in names:
            value.name += "_inside"
    for value, name in zip(graph.outputs, names, strict=True):
        value.name = name


def _forget_sources(graph: Any) -> None:
    """Remove source locations, which contain local paths, from the nodes."""
    for node in graph.all_nodes():
        node.metadata_props.pop(_SOURCES, None)


def _outputs(encoded: EncodedTensors, abilities: frozenset[Ability]) -> tuple[Tensor, ...]:
    return tuple(_given(encoded, abilities).values())


def _given(encoded: EncodedTensors, abilities: frozenset[Ability]) -> dict[str, Tensor]:
    """Return the outputs of a graph by name, without those that the model does not have.

    The embedding is always included, even with width zero, because it gives the number of items.
    """
    found = {"embedding": encoded.embedding}
    if "fragments" in abilities and encoded.fragments.shape[-1]:
        found["fragments"] = encoded.fragments
    if "match" in abilities and encoded.states is not None:
        found["states"] = encoded.states
    return found


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporter's log messages and warnings."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
