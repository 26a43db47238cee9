"""The distillation loss: a student learns its teacher's similarities between texts and images (paper 3, shrinking)."""

from typing import Literal, get_args

import torch
from torch import Tensor

from sightline.errors import ModelError
from sightline.losses.base import Loss, Pairs, Scores, check_scores
from sightline.models.retriever import Retriever

Over = Literal["all", "positives"]


class Distill(Loss):
    """Moves the student's distributions over the batch towards the teacher's.

        L = ½ mean_c KL(p(c) ‖ q(c)) + ½ mean_i KL(p(i) ‖ q(i))        over = "all"
        L = - Σ_c p(c)_j log q(c)_j,    j the image of c               over = "positives"
        p(a) = softmax(t(a, ·) / τt),    q(a) = softmax(s(a, ·) / τs)

    t are the teacher's scores and s the student's. c runs over texts, each compared with all images of the batch, and i
    over images, each compared with all texts. t may be any scores: a teacher may compare by embedding, by late
    interaction or by matching, and the student by embedding or late interaction.

    on: how the student compares texts and images.
    teacher_temperature, student_temperature: τt and τs. Paper 3 gives 12 and 12 for shrinking to fragments, and 2 and
        12 for shrinking to embeddings. These work only as factors, that is, inverted; choose the best on validation
        data. At temperatures far above the scores, distributions are nearly uniform, and the loss requires
        s = t · τs / τt up to a constant (Hinton et al. 2015, section 2.1): 12 and 12 require two sums of cosines to be
        equal, but 2 and 12 require one cosine to be six times such a sum, which is impossible, so the loss never
        converges.
    over: "all", the whole distributions in both directions, as is usual in distillation; or "positives", equation 6 as
        printed, which has only the text's own image: a contrastive loss from text to image, weighted by the teacher's
        confidence and summed over texts.

    The paper trains a student with this loss alone. A recipe may add other losses with their own weights.

    Reads the embeddings, or the fragments, of both sides, and the teacher's scores. A text or image without a positive
    or without a negative in the batch is ignored.

    Distributed: each process sums over its own anchors; for "all", the sum is divided by the number of valid anchors in
    the whole batch.

    >>> from sightline.models import EncodedTensors
    >>> sides = EncodedTensors(torch.eye(2), torch.eye(2)[:, None], torch.ones(2, 1, dtype=torch.bool), None)
    >>> ids, teacher_scores = torch.tensor([7, 8]), 2 * torch.eye(2)
    >>> pairs = Pairs(sides, sides, ids, ids, teacher_scores=teacher_scores)
    >>> Distill(teacher_temperature=2.0, student_temperature=1.0)(pairs, None, torch.Generator())  # the same odds
    tensor(0.)
    >>> round(Distill(teacher_temperature=1.0, student_temperature=1.0)(pairs, None, torch.Generator()).item(), 4)
    0.0671
    """

    needs_teacher = True

    def __init__(
        self,
        on: Scores = "embedding",
        teacher_temperature: float = 1 / 2,
        student_temperature: float = 1 / 12,
        over: Over = "all",
    ) -> None:
        super().__init__()
        self.needs = check_scores("distill", on)
        if over not in get_args(Over):
            raise ModelError(f"distill.over cannot be {over!r}", f"Choose one of {', '.join(get_args(Over))}.")
        for side, temperature in (("teacher", teacher_temperature), ("student", student_temperature)):
            if temperature <= 0:
                raise ModelError(f"distill.{side}_temperature cannot be {temperature}", "Use a number above 0.")
        self.on = on
        self.teacher_temperature = teacher_temperature
        self.student_temperature = student_temperature
        self.over = over

    def forward(self, pairs: Pairs, model: Retriever, generator: torch.Generator) -> Tensor:
        """Return this process's contribution to the loss."""
        if pairs.teacher_scores is None:
            raise ModelError("distill needs a teacher", "Add a [teacher] table to the recipe.")
        student = pairs.scores(self.on) / self.student_temperature
        teacher = pairs.teacher_scores.detach().to(student) / self.teacher_temperature
        positive, negative = pairs.positive, pairs.negative
        of_texts, texts = _direction(teacher, student, positive, negative, pairs.own_texts, self.over)
        if self.over == "positives":
            return of_texts
        of_images, images = _direction(teacher.T, student.T, positive.T, negative.T, pairs.own_images, self.over)
        return 0.5 * (of_texts / texts + of_images / images)


def _direction(
    teacher: Tensor, student: Tensor, positive: Tensor, negative: Tensor, own: slice, over: Over
) -> tuple[Tensor, Tensor]:
    """Compute one direction [anchors, items]: the sum over own anchors, and the number of valid anchors, at least 1."""
    counts = positive.any(1) & negative.any(1)
    hidden = ~(positive | negative)[own]
    lowest = torch.finfo(student.dtype).min
    expected, found = (side[own].masked_fill(hidden, lowest).log_softmax(1) for side in (teacher, student))
    if over == "all":
        terms = (expected.exp() * (expected - found)).sum(1)
    else:  # the mean, if labels give a text several images
        terms = (-expected.exp() * found * positive[own]).sum(1) / positive[own].sum(1).clamp(min=1)
    return (terms * counts[own]).sum(), counts.sum().clamp(min=1)
