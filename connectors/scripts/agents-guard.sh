# End a script if the line in its argument 4 would block browsers or Pingdom. Its argument 3 is add
# or remove. BROWSERS has their user agents, parted by "|", which no line contains.

name=${4#*\"}
name=${name%\"*}
if [ "$3" = add ] && printf "%s\n" "$BROWSERS" | grep -qiE -e "$name"; then
    echo "browsers or Pingdom match this" >&2
    exit 1
fi
