"""The commands that a page gives for its tables."""

from reporting.markdown import commands


def test_seeds_of_the_same_command_are_one_and_folders_are_left_out() -> None:
    told = [
        "python benchmarks/paper2.py --set schedule.epochs=10 --work runs/p2 --out there --runs base,full --seeds 2",
        "python benchmarks/paper2.py --set schedule.epochs=10 --work runs/p2 --runs base,full --seeds 0,10",
        "python benchmarks/paper2.py --cost --out there",
        "python benchmarks/scan.py --gpu --json here.json",
    ]
    assert commands(told) == [
        "python benchmarks/paper2.py --set schedule.epochs=10 --runs base,full --seeds 0,2,10",
        "python benchmarks/paper2.py --cost",
        "python benchmarks/scan.py --gpu",
    ]


def test_a_change_to_a_recipe_remains_one_word() -> None:
    (made,) = commands(["python benchmarks/candidates.py --set 'optimizer.frozen_layers={ image = 9 }'"])
    assert "'optimizer.frozen_layers={ image = 9 }'" in made


def test_a_command_without_seeds_is_told_beside_the_one_with() -> None:
    told = ["python benchmarks/paper1.py --variant half", "python benchmarks/paper1.py --variant half --seeds 1"]
    assert commands(told) == told


def test_runs_of_the_same_command_are_one() -> None:
    told = [f"python benchmarks/paper2.py --runs {run} --seeds {seed}" for run in ("b", "a") for seed in (0, 1)]
    other = "python benchmarks/paper2.py --runs c --seeds 0"
    assert commands([*told, other]) == ["python benchmarks/paper2.py --runs b,a --seeds 0,1", other]
