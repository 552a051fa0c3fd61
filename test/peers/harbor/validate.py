"""Asks Harbor's own models about the files that Closedbook writes for its tools.

    python validate.py DIRECTORY...     each with result.json and trajectory.json; exits 1 when one is refused
    python validate.py --tasks DIR...   whether Harbor reads these directories as tasks of its own
    python validate.py --schemas DIR    writes the JSON schemas of the two models, as the tests compare with
    python validate.py --trajectories FILE...   one line of JSON: what each is refused for, by name

Needs Python 3.12 or newer and `pip install harbor==0.26.0`; models.test.ts runs it with as little of that as it imports.
"""

import json
import sys
from importlib.metadata import version
from pathlib import Path

from harbor.models.trajectories import Trajectory
from harbor.models.trial.result import TrialResult
from harbor.utils.trajectory_validator import TrajectoryValidator

MODELS = {"trial-result": TrialResult, "trajectory": Trajectory}


def without_words(schema):
    """Titles, descriptions and defaults decide nothing."""
    if isinstance(schema, list):
        return [without_words(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    out = {}
    for key, value in schema.items():
        if key in ("properties", "$defs"):
            out[key] = {name: without_words(one) for name, one in value.items()}
        elif key not in ("title", "description", "default", "examples"):
            out[key] = without_words(value)
    return out


def write_schemas(folder: Path) -> None:
    for name, model in MODELS.items():
        schema = {"$comment": f"harbor {version('harbor')}", **without_words(model.model_json_schema())}
        (folder / f"{name}.schema.json").write_text(json.dumps(schema, separators=(",", ":"), sort_keys=True) + "\n")


def check(folder: Path) -> list[str]:
    problems = []
    result = TrialResult.model_validate_json((folder / "result.json").read_text())
    valid = json.loads((folder / "result.json").read_text())["reward_valid"]
    if result.reward_valid != valid:
        problems.append(f"reward_valid is {valid} to us and {result.reward_valid} to Harbor")
    trajectory = folder / "trajectory.json"
    if trajectory.exists():
        Trajectory.model_validate_json(trajectory.read_text())
        validator = TrajectoryValidator()
        if not validator.validate(trajectory):
            problems.extend(validator.get_errors())
    rewards = result.verifier_result.rewards if result.verifier_result else None
    print(f"{folder}: {result.task_name} {result.agent_info.name} rewards={rewards} valid={result.reward_valid}"
          f" trajectory={'yes' if trajectory.exists() else 'no'} {'; '.join(problems) or 'accepted'}")
    return problems


def trajectories(files: list[str]) -> dict[str, str | None]:
    """Through the model's JSON reader and the validator of Harbor's command line; null where both accept it."""
    refused = {}
    for file in map(Path, files):
        problem = None
        try:
            Trajectory.model_validate_json(file.read_bytes())
        except ValueError as error:
            problem = str(error)
        validator = TrajectoryValidator()
        if not validator.validate(file):
            problem = problem or "; ".join(validator.get_errors())
        refused[file.name] = problem
    return refused


if __name__ == "__main__":
    if sys.argv[1:2] == ["--schemas"]:
        write_schemas(Path(sys.argv[2]))
    elif sys.argv[1:2] == ["--trajectories"]:
        print(json.dumps(trajectories(sys.argv[2:])))
    elif sys.argv[1:2] == ["--tasks"]:
        from harbor.models.task.task import Task

        for name in sys.argv[2:]:
            task = Task(name)
            print(f"{name}: {task.name} instruction starts {task.instruction[:40]!r}")
    else:
        sys.exit(1 if [one for name in sys.argv[1:] for one in check(Path(name))] else 0)
