"""The tables of a recipe other than data: schedule, optimizer, validation, teacher, blend. Each checks its values."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from sightline.errors import RecipeError
from sightline.fusion_names import FusionRule


@dataclass(frozen=True, slots=True)
class ScheduleRecipe:
    """How long to train, and which losses each step uses.

    run: "together" (the weighted sum of all losses), "pattern" (one loss per step, cycling through the names in
    `pattern`) or "random" (one loss per step, drawn in proportion to its weight).
    steps, epochs: the length of the run; set one of these two.
    pattern: the names of losses to cycle through, for run = "pattern".
    warmup: the fraction of all steps during which the learning rate rises from zero.
    decay: how the learning rate falls after that: "linear" or "cosine", to zero at the end; "constant", not at all; or
    "drops", to a tenth at each of `drops`.
    drops: the fractions of all steps at which the learning rate drops.
    """

    epochs: float = 0
    steps: int = 0
    run: Literal["together", "pattern", "random"] = "together"
    pattern: tuple[str, ...] = ()
    warmup: float = 0.0
    decay: Literal["linear", "cosine", "constant", "drops"] = "linear"
    drops: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        at_least(0, "schedule.epochs", self.epochs)
        at_least(0, "schedule.steps", self.steps)
        if (self.epochs > 0) == (self.steps > 0):
            raise RecipeError("set either schedule.epochs or schedule.steps", "For example --set schedule.steps=1000")
        if not 0 <= self.warmup <= 1:
            raise RecipeError(f"schedule.warmup cannot be {self.warmup}", "Use a fraction of all steps, from 0 to 1.")
        if self.decay == "drops" and not self.drops:
            raise RecipeError('schedule: decay = "drops" needs a list of drops', "Set schedule.drops.")
        if self.drops and self.decay != "drops":
            raise RecipeError(
                f'schedule.drops is set, but decay is "{self.decay}"', 'Set decay = "drops", or leave out drops.'
            )
        for share in self.drops:
            check_share("schedule.drops", share)
        if self.run == "pattern" and not self.pattern:
            raise RecipeError('schedule: run = "pattern" needs a pattern of losses', "Set schedule.pattern.")
        if self.pattern and self.run != "pattern":
            raise RecipeError(
                f'schedule.pattern is set, but run is "{self.run}"', 'Set run = "pattern", or leave out pattern.'
            )


@dataclass(frozen=True, slots=True)
class OptimizerRecipe:
    """The optimiser, AdamW.

    lr: the learning rate of everything not named in `rates`.
    rates: learning rates by part: image, text, matcher and transformer (the encoders that the model has), heads (the
    rest of the model, or a single head by name, such as image_embedding) and losses (the parameters of losses, such as
    a learned temperature). A part with rate 0 is frozen.
    frozen_layers: per encoder, how many of its first layers are frozen, together with the embeddings below them.
    layer_decay: per encoder, the ratio of each layer's rate to that of the layer above it, such as 0.75.
    dropout: per encoder, its dropout probability; encoders not named here keep their own.
    weight_decay, betas: as in `torch.optim.AdamW`.
    clip: the maximum gradient norm; 0 disables clipping.
    chunk: how many items to encode at once, with gradient caching, so that a large batch fits a small GPU; 0 encodes
    the whole batch at once. The gradients are the same.
    compile: compile the layers of the encoders with `torch.compile`, which needs a C++ compiler. The first steps take
    up to a minute longer; later ones may be faster.
    """

    lr: float = 5e-5
    rates: Mapping[str, float] = field(default_factory=dict)
    frozen_layers: Mapping[str, int] = field(default_factory=dict)
    layer_decay: Mapping[str, float] = field(default_factory=dict)
    dropout: Mapping[str, float] = field(default_factory=dict)
    weight_decay: float = 0.05
    betas: tuple[float, float] = (0.9, 0.999)
    clip: float = 1.0
    chunk: int = 0
    compile: bool = False

    def __post_init__(self) -> None:
        for name in ("lr", "weight_decay", "clip", "chunk"):
            at_least(0, f"optimizer.{name}", getattr(self, name))
        if not all(0 <= beta < 1 for beta in self.betas):
            raise RecipeError(f"optimizer.betas cannot be {list(self.betas)}", "Use numbers of at least 0 and below 1.")
        for part, rate in self.rates.items():
            at_least(0, f"optimizer.rates.{part}", rate)
        for part, count in self.frozen_layers.items():
            at_least(1, f"optimizer.frozen_layers.{part}", count)
        for part, factor in self.layer_decay.items():
            if not 0 < factor <= 1:
                raise RecipeError(
                    f"optimizer.layer_decay.{part} cannot be {factor}", "Use a factor above 0 and at most 1."
                )
        for part, share in self.dropout.items():
            if not 0 <= share < 1:
                raise RecipeError(
                    f"optimizer.dropout.{part} cannot be {share}", "Use a fraction of at least 0 and below 1."
                )


@dataclass(frozen=True, slots=True)
class ValidationRecipe:
    """When and how to validate; the checkpoint with the best `metric` is kept.

    every: steps between validations; 0 validates only at the end.
    metric: "rSum" (all six recalls) or "R@1" (text to image).
    late: how many of the top candidates to rescore by late interaction; 0 for none. To measure late interaction alone,
    use at least the number of images and captions.
    rerank: how many of the top candidates to rescore with the matcher; 0 for none. If `late` and `rerank` are both 0,
    the embeddings are measured. A run that does not train the embeddings is measured by what it trains: it rescores 20
    candidates, or all of them if the embeddings do not exist or change during the run, which can take long.
    fusion, weight: how the matcher's score is combined with the cosine, as in `sightline eval`.
    patience: end the run after this many validations in a row without a better result; 0 never ends it early.
    """

    every: int = 0
    metric: Literal["rSum", "R@1"] = "rSum"
    late: int = 0
    rerank: int = 0
    fusion: FusionRule = "ce"
    weight: float = 0.5
    patience: int = 0

    def __post_init__(self) -> None:
        at_least(0, "validation.every", self.every)
        at_least(0, "validation.patience", self.patience)
        if self.patience and not self.every:
            raise RecipeError("validation.patience needs more than one validation", "Set validation.every.")
        at_least(0, "validation.late", self.late)
        at_least(0, "validation.rerank", self.rerank)


@dataclass(frozen=True, slots=True)
class CheckpointRecipe:
    """When to save the state of a run, besides at its end and when it is interrupted.

    every: steps between two saves, or minutes as in "10m".
    """

    every: int | str = 500

    def __post_init__(self) -> None:
        SaveInterval.parse(self.every, "checkpoint.every")


LogTarget = Literal["tensorboard", "wandb"]


@dataclass(frozen=True, slots=True)
class LogRecipe:
    """Where to send curves, besides log.jsonl.

    to: "tensorboard" (event files in the run's folder `tensorboard`), "wandb" (Weights & Biases), or both. Each needs
    its package.
    project: the Weights & Biases project.
    """

    to: tuple[LogTarget, ...] = ()
    project: str = "sightline"


@dataclass(frozen=True, slots=True)
class SaveInterval:
    """The interval between two saved states: a number of steps, or a number of seconds."""

    steps: int = 0
    seconds: float = 0.0

    @classmethod
    def parse(cls, text: int | str, key: str) -> "SaveInterval":
        """Read a number of steps, or a number of minutes with "m" after it.

        >>> SaveInterval.parse("10m", "checkpoint.every")
        SaveInterval(steps=0, seconds=600.0)
        """
        found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*m(?:in(?:utes?)?)?|(\d+)", str(text).strip())
        minutes, steps = found.groups() if found else ("", "")
        if not float(minutes or steps or 0):
            raise RecipeError(
                f"{key} cannot be {text!r}", 'Use a number of steps, such as 500, or minutes, such as "10m".'
            )
        return cls(int(steps or 0), 60 * float(minutes or 0))


TeacherBy = Literal["embedding", "fragments", "match"]


@dataclass(frozen=True, slots=True)
class TeacherRecipe:
    """The teacher for losses that need one (distill).

    model: a checkpoint folder.
    by: how it compares texts and images: by "embedding", "fragments" (late interaction) or "match", which matches
    every text of a batch with every image, and so needs small batches.
    chunk: about how many pairs "match" scores at once.
    """

    model: str
    by: TeacherBy = "fragments"
    chunk: int = 4096

    def __post_init__(self) -> None:
        at_least(1, "teacher.chunk", self.chunk)


@dataclass(frozen=True, slots=True)
class AverageRecipe:
    """Weight averaging, over the last part of training and with the initial weights; the average is validated.

    begin: the fraction of all steps after which averaging begins.
    kind: "uniform" weights all steps equally, "exponential" weights recent steps more, by `decay` per step (EMA), and
    "last" uses the current weights, for `with_start` alone.
    decay: the factor by which the weight of a step falls with each later step, for kind = "exponential".
    with_start: the share of the initial weights in the mean (WiSE-FT, Wortsman et al. 2022), at least 0 and below 1. A
    larger share keeps more of what the initial model could do. Only for a run that starts from trained weights.
    """

    begin: float = 0.5
    kind: Literal["uniform", "exponential", "last"] = "uniform"
    decay: float = 0.999
    with_start: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.begin < 1:
            raise RecipeError(
                f"average.begin cannot be {self.begin}", "Use a fraction of all steps, at least 0 and below 1."
            )
        if not 0 < self.decay < 1:
            raise RecipeError(f"average.decay cannot be {self.decay}", "Use a number between 0 and 1, such as 0.999.")
        if not 0 <= self.with_start < 1:
            raise RecipeError(
                f"average.with_start cannot be {self.with_start}", "Use a fraction of at least 0 and below 1."
            )


@dataclass(frozen=True, slots=True)
class LoraRecipe:
    """Low-rank adapters (LoRA, Hu et al. 2021): encoders stay frozen, and small added matrices are trained.

    Needs peft: `pip install 'sightline-search[lora]'`. In checkpoints, the adapters are merged into the weights.

    rank: the rank of the matrices.
    alpha: the adapters' updates are scaled by alpha / rank.
    dropout: the dropout probability of the adapters' inputs.
    encoders: which encoders get adapters; by default all. Other encoders are trained as usual, unless their rate is 0.
    layers: a regular expression for the names of the linear layers that get adapters; by default those of attention.
    """

    rank: int = 8
    alpha: int = 16
    dropout: float = 0.0
    encoders: tuple[str, ...] = ()
    layers: str = r".*(q_proj|k_proj|v_proj|out_proj|query|key|value|attention\.output\.dense)"

    def __post_init__(self) -> None:
        at_least(1, "lora.rank", self.rank)
        at_least(0, "lora.alpha", self.alpha)
        if not 0 <= self.dropout < 1:
            raise RecipeError(f"lora.dropout cannot be {self.dropout}", "Use a fraction of at least 0 and below 1.")


@dataclass(frozen=True, slots=True)
class BlendRecipe:
    """Before training, interpolate the weights of an encoder with those of another model.

    part: the encoder, such as "image".
    source: the folder or hub name of the other model.
    share: the share of the encoder's own weights; the rest, 1 - share, is taken from `source`.
    """

    part: str
    source: str
    share: float


def at_least(least: int, key: str, value: float) -> None:
    """Reject a number below `least`."""
    if not least <= value < float("inf"):
        raise RecipeError(f"{key} cannot be {value}", f"Use a number of at least {least}.")


def check_share(key: str, value: object) -> None:
    """Reject a value that is not a fraction of all steps."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise RecipeError(f"{key} cannot be {value!r}", "Use a fraction of all steps, from 0 to 1.")
