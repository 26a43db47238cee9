"""The commands that a page gives for its tables."""

from benchmarks.pages.markdown import commands


def test_seeds_of_the_same_command_are_one_and_folders_are_left_out() -> None:
    told = [
        "python -m replication.paper2 --set schedule.epochs=10 --work runs/p2 --out there --runs base,full --seeds 2",
        "python -m replication.paper2 --set schedule.epochs=10 --work runs/p2 --runs base,full --seeds 0,10",
        "python -m replication.paper2 --cost --out there",
        "python -m benchmarks.scan --gpu --json here.json",
    ]
    assert commands(told) == [
        "python -m replication.paper2 --set schedule.epochs=10 --runs base,full --seeds 0,2,10",
        "python -m replication.paper2 --cost",
        "python -m benchmarks.scan --gpu",
    ]


def test_a_change_to_a_recipe_remains_one_word() -> None:
    (made,) = commands(["python -m replication.candidates --set 'optimizer.frozen_layers={ image = 9 }'"])
    assert "'optimizer.frozen_layers={ image = 9 }'" in made


def test_a_command_without_seeds_is_told_beside_the_one_with() -> None:
    told = ["python -m replication.paper1 --variant half", "python -m replication.paper1 --variant half --seeds 1"]
    assert commands(told) == told


def test_runs_of_the_same_command_are_one() -> None:
    told = [f"python -m replication.paper2 --runs {run} --seeds {seed}" for run in ("b", "a") for seed in (0, 1)]
    other = "python -m replication.paper2 --runs c --seeds 0"
    assert commands([*told, other]) == ["python -m replication.paper2 --runs b,a --seeds 0,1", other]
