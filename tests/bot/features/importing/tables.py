"""Its rows in the tables of tests."""

COMMANDS = {
    "import ansible": "files",
    "import awx": "files",
    "import rundeck": "files",
    "import semaphore": "files",
}
