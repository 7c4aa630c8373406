"""By which files and variables a run and its ranks talk. Every rank reads this at its start, so it is light."""

from enum import StrEnum

# In the folder of a run: its presence asks the ranks to write a checkpoint and end.
STOP_FILE = "stop"
# Text: folder of the run that was prepared beside this one, to which its ranks hand their state over when they end.
HANDOVER_FILE = "hand_over"
# The plan and all ranks, for programs of users.
PLAN_FILE = "plan.json"
# Where the ranks were told to wait: its presence lets them begin.
GO_FILE = "go"
# Variable that tells a rank which file to wait for when it is prepared; it says so in READY_FOLDER.
WAIT_VARIABLE = "STOWPLAN_WAIT_FOR"
READY_FOLDER = "ready"
# Variable with how far it comes before it waits.
PREPARE_VARIABLE = "STOWPLAN_PREPARE"
# Variable with the folder of the run beside which it waits, from whose ranks it may get the state.
BESIDE_VARIABLE = "STOWPLAN_BESIDE"


class Preparation(StrEnum):
    """What a rank has done when it waits to be let go.

    libraries: it has loaded them, and touched no device. engine: it has also met the others and built model and
    optimiser; only the checkpoint is left to be loaded.
    """

    LIBRARIES = "libraries"
    ENGINE = "engine"
