from sightline.bundle.encoded import Encoded
from sightline.bundle.model import Ability, Model
from sightline.bundle.runtime import Bundle
from sightline.bundle.spec import BundleSpec
from sightline.bundle.tokenizer import Tokenizer

__all__ = ["Ability", "Bundle", "BundleSpec", "Encoded", "Model", "Tokenizer"]
