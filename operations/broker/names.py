"""Names of queues that belong to no kind."""

#: What no worker can handle ends here, whole, until it is recorded.
DEAD_LETTER = "dead_letter"
#: For tasks that are not operations.
HOUSEKEEPING = "housekeeping"
