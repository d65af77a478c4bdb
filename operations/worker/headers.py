"""What the worker's main process adds to the headers that a task sees."""

#: Remote control has revoked the task.
REVOKED = "sekali_revoked"
#: The name of a task that is not known here; the task :data:`SET_ASIDE` runs in its place.
UNKNOWN_TASK = "sekali_unknown_task"
#: The task that puts aside the operation of a message whose own task is unknown.
SET_ASIDE = "operations.set_aside"
