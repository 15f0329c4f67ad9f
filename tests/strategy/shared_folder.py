"""Runs the scenarios of saving_programs.py, each in a folder that all workers see."""

import json
import os

from tests import workers

_PROGRAM = os.path.join(os.path.dirname(__file__), "saving_programs.py")


class Group:
    """The results of scenarios in one group of processes, by name."""

    def __init__(self, folder, size, scenarios, **environment):
        arguments = {
            name: json.dumps({"folder": str(folder), "name": name, **rest})
            for name, rest in scenarios.items()
        }
        self._names = {name: f"run={each}" for name, each in arguments.items()}
        self._group = workers.run(_PROGRAM, list(self._names.values()), size, **environment)

    def __getitem__(self, name):
        return self._group[self._names[name]]
