from sightline.media import RegionConfig
from sightline.models.dual_config import DualStreamConfig
from sightline.models.dual_stream import DualStream
from sightline.models.relations import RelationConfig
from sightline.models.retriever import EncodedTensors, Regions, Retriever, TextInput, Tokens, TowerFeatures
from sightline.models.single_stream import SingleStream, SingleStreamConfig
from sightline.models.towers import TowerConfig

__all__ = [
    "DualStream",
    "DualStreamConfig",
    "EncodedTensors",
    "RegionConfig",
    "Regions",
    "RelationConfig",
    "Retriever",
    "SingleStream",
    "SingleStreamConfig",
    "TextInput",
    "Tokens",
    "TowerConfig",
    "TowerFeatures",
]
