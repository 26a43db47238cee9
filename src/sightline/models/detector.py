"""Object detection for models that read regions: boxes, classes and a feature vector for each region of an image."""

import inspect
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import torch
from PIL import Image
from torch import Tensor
from transformers import AutoImageProcessor, AutoModelForObjectDetection, BaseImageProcessor, PreTrainedModel

from sightline.bundle.layout import HUB_PREFIX
from sightline.datasets.record import OnProblem, Problem, Record, stop_at
from sightline.datasets.regions import Found
from sightline.errors import MediaError, ModelError
from sightline.media import open_image
from sightline.models.towers import UNREADABLE, check_exists, check_whole, lacking

_COUNT = ".num_batches_tracked"  # a counter of batch normalisation that is only used in training


class Detections(NamedTuple):
    """The detections in an image: one region for each of the detector's queries.

    boxes: [n, 4], left, top, right and bottom relative to the image size. classes: [n, labels], the class distribution
    of the region, given that it contains an object. confidence: [n], the probability of the most likely class,
    where "no object" is one of the outcomes. features: [n, dim], the query vectors after the last layer.
    """

    boxes: Tensor
    classes: Tensor
    confidence: Tensor
    features: Tensor


class Detector:
    """Any DETR-type model of transformers (DETR, Deformable DETR, RT-DETR, YOLOS, …) with its processor."""

    def __init__(self, model: PreTrainedModel, processor: BaseImageProcessor) -> None:
        self.model = model.eval()
        self.processor = processor
        self._takes_mask = "pixel_mask" in inspect.signature(model.forward).parameters

    @classmethod
    def open(cls, source: str, device: str | None = None) -> "Detector":
        """Open a folder in the transformers layout, or `hf:NAME`; by default on the GPU, if there is one.

        Raises an error that names weights that are missing or have the wrong shape.
        """
        name = source.removeprefix(HUB_PREFIX)
        check_exists(name)
        try:
            processor = AutoImageProcessor.from_pretrained(name)
            model, report = AutoModelForObjectDetection.from_pretrained(
                name, dtype=torch.float32, output_loading_info=True, ignore_mismatched_sizes=True
            )
        except (*UNREADABLE, KeyError, ImportError) as error:
            raise ModelError(
                f"{source}: cannot load a detector from it: {error}",
                "Use the folder of a DETR-type model with its preprocessor_config.json, or hf:NAME.",
            ) from error
        check_whole(source, type(model).__name__, [key for key in lacking(report) if not key.endswith(_COUNT)])
        device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        return cls(model.to(device), processor)

    @torch.inference_mode()
    def detect(self, image: Image.Image) -> Detections:
        """Detect the regions of one image; taking one at a time avoids padding."""
        prepared = self.processor(images=image, return_tensors="pt").to(self.model.device)
        inputs = {"pixel_values": prepared["pixel_values"]}
        if self._takes_mask and "pixel_mask" in prepared:
            inputs["pixel_mask"] = prepared["pixel_mask"]
        out = self.model(**inputs)
        queries = out.logits.shape[1]
        classes, confidence = _classes(out.logits[0].float(), self.model.config.num_labels)
        features = out.last_hidden_state[0, -queries:].float()  # YOLOS has its patches before the queries
        return Detections(_corners(out.pred_boxes[0].float()), classes, confidence, features)

    def find(self, records: Iterable[Record], on_problem: OnProblem | None = None) -> Iterator[Found]:
        """Detect the regions of every image in a data set; records keep their captions, split and key.

        on_problem: called for each unreadable image, which is then skipped; by default the first one raises
            `DataError`.
        """
        for record in records:
            try:
                seen = self.detect(open_image(record.image))
            except MediaError as error:
                (on_problem or stop_at)(Problem(record.image.name, error.reason))
                continue
            features, boxes, confidence = (part.cpu().numpy() for part in (seen.features, seen.boxes, seen.confidence))
            yield Found(record.key, features, boxes, confidence, record.captions, record.split)


def _classes(logits: Tensor, labels: int) -> tuple[Tensor, Tensor]:
    """Compute class distributions [n, labels] and confidences [n] from logits, whose last column may be "nothing".

    Models without a class for "nothing" score each class independently.
    """
    each = logits.softmax(-1)[:, :labels] if logits.shape[1] > labels else logits.sigmoid()
    return each / each.sum(-1, keepdim=True).clamp(min=1e-12), each.amax(-1)


def _corners(boxes: Tensor) -> Tensor:
    """Convert boxes [n, 4] from centre, width and height to corners, clamped to the image."""
    middle, half = boxes[:, :2], boxes[:, 2:] / 2
    return torch.cat([middle - half, middle + half], 1).clamp(0, 1)
