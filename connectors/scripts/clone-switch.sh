# Switch the clone $1 to the commit $2, with its submodules, unless files of it were changed.
set -eu
export GIT_TERMINAL_PROMPT=0
cd -- "$1"
git diff --quiet HEAD
git cat-file -e "$2^{commit}" 2>/dev/null || git fetch -q --tags origin
git checkout -q --detach "$2"
git submodule -q update --init --recursive
