"""Exceptions of Sightline; each says what is wrong and what to do about it."""


class SightlineError(Exception):
    """Base of every error that Sightline raises on purpose.

    `what` names the file or value and what is wrong with it; `way_out` says what to do about it and may be empty.
    """

    def __init__(self, what: str, way_out: str = "") -> None:
        super().__init__(what, way_out)
        self.what = what
        self.way_out = way_out

    def __str__(self) -> str:
        return f"{self.what}\n{self.way_out}" if self.way_out else self.what


class MediaError(SightlineError):
    """An image that cannot be opened: missing, empty, truncated, not an image, too large or of an unknown format."""

    def __init__(self, name: str, reason: str, way_out: str = "") -> None:
        super().__init__(f"{name}: {reason}", way_out)
        self.name = name
        self.reason = reason


class MissingDecoderError(MediaError):
    """An image of a format that needs a package which is not installed."""


class DataError(SightlineError):
    """A data set that is missing, empty, of an unknown format, or has a broken record."""


class BundleError(SightlineError):
    """A bundle that is missing, incomplete, altered or of a format this version cannot read."""


class UnknownOperatorError(BundleError):
    """A graph with an operator that the GPU backend does not support; ONNX Runtime may."""


class ModelError(SightlineError):
    """A model, checkpoint or configuration that does not fit together, or lacks the ability asked for."""


class EvaluationError(SightlineError):
    """Scores that cannot be evaluated: not finite, of the wrong shape, or with nothing to find."""


class RecipeError(SightlineError):
    """A training recipe that cannot be read, has an unknown key, or asks for what does not exist."""


class CollectionError(SightlineError):
    """A collection that is missing, damaged, in use, or made by another model or version."""


class StoreError(SightlineError):
    """A store of vectors that is missing, damaged, in use or of another shape, or vectors that do not fit into it."""


class DamagedStoreError(StoreError):
    """Vectors on this machine that are not what was written: a file was changed, cut off or deleted."""

    def __init__(self, what: str, way_out: str = "Encode the affected items again: sightline index") -> None:
        super().__init__(what, way_out)


class QueryError(SightlineError):
    """A query that cannot be answered: empty, contradictory, or with a filter that cannot be understood."""


class OptionError(QueryError):
    """An option with a value that cannot be used. `option` is its name in Python, `problem` says what is wrong."""

    def __init__(self, option: str, problem: str, way_out: str = "") -> None:
        super().__init__(f"{option} {problem}", way_out)
        self.option = option
        self.problem = problem


class ServeError(SightlineError):
    """A server that cannot start: an address that is taken or not this machine's, or one that would be unsafe."""
