# Clone the repository $1 as the directory $2, which is missing or empty. $3: the commit that is to
# be there, with its submodules, or - for that of the branch. Any others: options of git.
# A clone is never there in part.
set -eu
export GIT_TERMINAL_PROMPT=0
repository=$1 place=$2 commit=$3
shift 3
mkdir -p -- "$(dirname -- "$place")"
work=$(mktemp -d -- "$place.XXXXXX")
trap 'rm -rf -- "$work"' EXIT
git clone -q "$@" -- "$repository" "$work/new"
if [ "$commit" != - ]; then
    git -C "$work/new" checkout -q --detach "$commit"
    git -C "$work/new" submodule -q update --init --recursive
fi
mv -T -- "$work/new" "$place"
