from sightline.media import RegionConfig
from sightline.models.dual_config import DualStreamConfig
from sightline.models.dual_stream import DualStream
from sightline.models.relations import RelationConfig
from sightline.models.retriever import Encoded, Regions, Retriever, Seen, TextInput, Tokens
from sightline.models.single_stream import SingleStream, SingleStreamConfig
from sightline.models.towers import TowerConfig

__all__ = [
    "DualStream",
    "DualStreamConfig",
    "Encoded",
    "RegionConfig",
    "Regions",
    "RelationConfig",
    "Retriever",
    "Seen",
    "SingleStream",
    "SingleStreamConfig",
    "TextInput",
    "Tokens",
    "TowerConfig",
]
