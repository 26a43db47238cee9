"""A checkpoint in torch, with the same interface as an open bundle."""

import hashlib
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from sightline import bundle
from sightline.arrays import FloatArray
from sightline.bundle.encoded import CodeAttention
from sightline.bundle.layout import CHECKPOINT_FILE, OPEN_CLIP_FILE, PUBLISHED_FILE, name_of
from sightline.bundle.model import Ability, Calibration, Model
from sightline.bundle.tokenizer import Tokenizer
from sightline.device import Device
from sightline.media import ImageInput, RegionConfig, blank, check_batch, split_padding
from sightline.models import checkpoint
from sightline.models.code_attention import code_attention
from sightline.models.retriever import EncodedTensors, Regions, Retriever, Tokens

Mask = npt.NDArray[np.bool_]


class TorchModel(Model):
    """Runs a retriever without gradients on NumPy arrays, on the device its weights are on."""

    def __init__(self, retriever: Retriever, tokenizer: Tokenizer, name: str) -> None:
        self.retriever = retriever
        self._tokenizer = tokenizer
        self._name = name

    @classmethod
    def open(cls, folder: str | Path, device: str | None = None, *, name: str | None = None) -> "TorchModel":
        """Open a checkpoint or a published model on `device`: by default the GPU, if there is one.

        name: its name in results; by default see `layout.name_of`.
        """
        retriever, tokenizer = read(folder)
        device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        return cls(retriever.to(device).eval(), tokenizer, name or name_of(folder))

    @property
    def name(self) -> str:
        """The model's name in results."""
        return self._name

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        return self._tokenizer

    @property
    def calibration(self) -> Mapping[str, Calibration]:
        """The mapping of scores to probabilities, if the model was trained with a calibrated loss."""
        return self.retriever.calibration

    @property
    def languages(self) -> tuple[str, ...]:
        """The languages that the model was trained to read."""
        return self.retriever.text_input.languages

    @property
    def grid(self) -> tuple[int, int] | None:
        """Rows and columns of an image's first fragments; None if they form no grid."""
        return self.retriever.grid

    @property
    def device(self) -> Device:
        """The device that the weights are on."""
        return "gpu" if next(self.retriever.parameters()).device.type == "cuda" else "cpu"

    @cached_property
    def sha256(self) -> str:
        """A hash of the weights and of the preprocessing of images and texts."""
        digest = hashlib.sha256(repr((self.preprocess, self.tokenizer.max_length)).encode())
        for name, tensor in sorted(self.retriever.state_dict().items()):
            digest.update(name.encode())
            digest.update(tensor.detach().cpu().flatten().contiguous().view(torch.uint8).numpy().tobytes())
        return digest.hexdigest()

    @property
    def abilities(self) -> frozenset[Ability]:
        """The abilities that the model supports, among `embed`, `fragments` and `match`."""
        return self.retriever.abilities

    @property
    def preprocess(self) -> ImageInput:
        """How images are resized and normalised for the model; or the regions that it reads instead of pixels."""
        return self.retriever.preprocess

    @torch.inference_mode()
    def encode_images(self, pixels: npt.NDArray[np.float32]) -> bundle.Encoded:
        """Encode normalised pixels [batch, 3, size, size]; or regions [batch, n, width], see `media.stack_inputs`."""
        wanted = self.preprocess
        pixels = check_batch(pixels, wanted)
        if not len(pixels):
            return self.encode_images(blank(wanted)).emptied()
        if isinstance(wanted, RegionConfig):
            regions, mask = (self.tensor(part) for part in split_padding(pixels))
            return to_arrays(self.retriever.encode_images(Regions.of(regions, mask, wanted)))
        return to_arrays(self.retriever.encode_images(self.tensor(pixels)))

    @torch.inference_mode()
    def encode_texts(self, texts: Sequence[str]) -> bundle.Encoded:
        """Encode a batch of texts; texts above the length limit are cut off, and marked in `truncated`."""
        if not isinstance(texts, str) and not len(texts):
            return self.encode_texts(["a"]).emptied()
        tokens = self.tokenizer(texts)
        encoded = self.retriever.encode_texts(Tokens(self.tensor(tokens.ids), self.tensor(tokens.mask)))
        return to_arrays(encoded, tokens.truncated)

    @torch.inference_mode()
    def match(
        self, text_states: FloatArray, text_mask: Mask, image_states: FloatArray, image_mask: Mask
    ) -> npt.NDArray[np.float32]:
        """Return logits [batch] that text i and image i match; states [batch, n, hidden], masks [batch, n]."""
        logits = self.retriever.match(
            self.tensor(text_states).float(),
            self.tensor(text_mask),
            self.tensor(image_states).float(),
            self.tensor(image_mask),
        )
        return logits.float().cpu().numpy()

    @torch.inference_mode()
    def word_cosines(
        self, text_states: FloatArray, text_mask: Mask, image_states: FloatArray, image_mask: Mask
    ) -> npt.NDArray[np.float32] | None:
        """Return the matcher's cosines [batch, words, n] of words with parts of an image; None if it has none."""
        found = self.retriever.word_cosines(
            self.tensor(text_states).float(), self.tensor(image_states).float(), self.tensor(image_mask)
        )
        return None if found is None else found.float().cpu().numpy()

    def code_attention(self, text: str, pixels: npt.NDArray[np.float32]) -> CodeAttention:
        """Return what the codes of a model attend to in a text and in normalised pixels [1, 3, size, size]."""
        tokens = self.tokenizer([text])
        ids, mask = self.tensor(tokens.ids), self.tensor(tokens.mask)
        return code_attention(self.retriever, Tokens(ids, mask), self.tensor(pixels))

    def tensor(self, array: npt.NDArray[np.generic]) -> torch.Tensor:
        """Copy an array to the device of the weights."""
        return torch.from_numpy(np.ascontiguousarray(array)).to(next(self.retriever.parameters()).device)


def read(folder: str | Path) -> tuple[Retriever, Tokenizer]:
    """Read a checkpoint of Sightline, or a published model in its authors' layout."""
    folder = Path(folder)
    published = (folder / PUBLISHED_FILE).is_file() or (folder / OPEN_CLIP_FILE).is_file()
    if (folder / CHECKPOINT_FILE).is_file() or not published:
        return checkpoint.load(folder)
    from sightline.models import pretrained  # slow to import and seldom needed

    return pretrained.load(folder)


def to_arrays(encoded: EncodedTensors, truncated: Mask | None = None) -> bundle.Encoded:
    """Copy encodings to arrays; fragments of width 0 are None."""
    states = None if encoded.states is None else encoded.states.float().cpu().numpy()
    return bundle.Encoded(
        encoded.embedding.float().cpu().numpy(),
        encoded.mask.cpu().numpy(),
        encoded.fragments.float().cpu().numpy() if encoded.fragments.shape[-1] else None,
        states,
        truncated,
    )
