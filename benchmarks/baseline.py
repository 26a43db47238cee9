"""Baselines for the benchmarks: transformers models of the bundled model's shape, with random weights."""

from pathlib import Path
from typing import Any

import numpy as np

from sightline.bundle import Bundle

TEXT_TOWER = {"hidden_size": 384, "intermediate_size": 1536, "num_hidden_layers": 6, "num_attention_heads": 12}
"""The shape of the bundled model's text tower, which is that of MiniLM."""
IMAGE_TOWER = {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12}
IMAGE_TOWER |= {"image_size": 224, "patch_size": 16, "projection_dim": 512}
"""The shape of the bundled model's image tower, which is that of CLIP ViT-B/16."""
RCLIP_TOWER = IMAGE_TOWER | {"patch_size": 32}
"""The shape of rclip's image tower, CLIP ViT-B/32."""
BATCH = 8
_MEAN, _STD = np.array([0.481, 0.458, 0.408], np.float32), np.array([0.269, 0.261, 0.276], np.float32)


def tokenizer(bundle: Bundle) -> Any:
    """Return the bundle's tokenizer as a transformers tokenizer."""
    from transformers import PreTrainedTokenizerFast

    text = bundle.spec.text
    marks = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep")}
    file = str(bundle.folder / text.tokenizer)
    return PreTrainedTokenizerFast(tokenizer_file=file, model_max_length=text.max_length, **marks)


class ImageLoop:
    """A plain loop over photos: pixels from Pillow, and an image tower in float32 in torch."""

    def __init__(self, shape: dict[str, int]) -> None:
        from transformers import CLIPVisionConfig, CLIPVisionModel

        self.size, self.tower = shape["image_size"], CLIPVisionModel(CLIPVisionConfig(**shape)).eval()

    def encode(self, folder: Path) -> None:
        """Encode every photo in a folder."""
        import torch
        from PIL import Image

        paths = sorted(folder.glob("*.jpg"))
        for start in range(0, len(paths), BATCH):
            photos = [Image.open(path).convert("RGB") for path in paths[start : start + BATCH]]
            sized = [photo.resize((self.size, self.size), Image.Resampling.BICUBIC) for photo in photos]
            pixels = (np.stack([np.asarray(photo, dtype=np.float32) for photo in sized]) / 255 - _MEAN) / _STD
            with torch.inference_mode():
                self.tower(pixel_values=torch.from_numpy(pixels).permute(0, 3, 1, 2))
