"""Sightline's exceptions; each says what is wrong and how to fix it."""


class SightlineError(Exception):
    """Base class of every error that Sightline raises on purpose.

    `what` names the file or value and what is wrong with it; `way_out` says how to fix it and may be empty.
    """

    def __init__(self, what: str, way_out: str = "") -> None:
        super().__init__(what, way_out)
        self.what = what
        self.way_out = way_out

    def __str__(self) -> str:
        return f"{self.what}\n{self.way_out}" if self.way_out else self.what


class MediaError(SightlineError):
    """An image that cannot be opened: missing, empty, truncated, not an image, too large or in an unknown format."""

    def __init__(self, name: str, reason: str, way_out: str = "") -> None:
        super().__init__(f"{name}: {reason}", way_out)
        self.name = name
        self.reason = reason


class MissingDecoderError(MediaError):
    """An image in a format that needs a package that is not installed."""


class DataError(SightlineError):
    """A data set that is missing, empty or in an unknown format, or that has a broken record."""


class BundleError(SightlineError):
    """A bundle that is missing, incomplete, modified or in a format that this version cannot read."""


class UnknownOperatorError(BundleError):
    """A graph with an operator that the GPU backend does not support; ONNX Runtime may."""


class ModelError(SightlineError):
    """A model, checkpoint or configuration that is inconsistent or lacks a required capability."""


class EvaluationError(SightlineError):
    """Scores that cannot be evaluated: not finite, of the wrong shape, or with nothing to find."""


class RecipeError(SightlineError):
    """A training recipe that cannot be read, has an unknown key, or refers to something that does not exist."""


class CollectionError(SightlineError):
    """A collection that is missing, damaged, in use, or from another model or version."""


class CollectionInUseError(CollectionError):
    """A collection that another process is writing to."""


class StoreError(SightlineError):
    """A vector store that is missing, damaged, in use or of the wrong shape, or vectors that do not fit the store."""


class DamagedStoreError(StoreError):
    """A local vector file that was modified, truncated or deleted after it was written."""

    def __init__(self, what: str, way_out: str = "Encode the affected items again: sightline index") -> None:
        super().__init__(what, way_out)


class UnreachableServerError(StoreError):
    """A server that does not answer, or is not ready."""


class QueryError(SightlineError):
    """A query that cannot be answered: empty, contradictory, or with an invalid filter."""


class OptionError(QueryError):
    """An option with an invalid value. `option` is its name in Python, `problem` says what is wrong."""

    def __init__(self, option: str, problem: str, way_out: str = "") -> None:
        super().__init__(f"{option} {problem}", way_out)
        self.option = option
        self.problem = problem


class ServeError(SightlineError):
    """A server that cannot start, because its address is in use, not on this machine, or unsafe."""
