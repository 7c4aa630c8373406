"""By which files a run and its ranks talk. Every rank reads this at its start: nothing is imported here."""

# In the folder of a run: its presence asks the ranks to write a checkpoint and end.
STOP_FILE = "stop"
# The plan and all ranks, for programs of users.
PLAN_FILE = "plan.json"
# Where the ranks were told to wait: its presence lets them begin.
GO_FILE = "go"
# Variable that tells a rank which file to wait for after it has loaded its libraries; it says so in READY_FOLDER.
WAIT_VARIABLE = "STOWPLAN_WAIT_FOR"
READY_FOLDER = "ready"
