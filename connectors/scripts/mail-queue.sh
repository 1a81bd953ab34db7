# Print Exim's queue, and the headers that name the scripts which sent its messages.
# Argument: Exim's program.

"$1" -bp || exit
echo "$MARK"
spool=$("$1" -bP spool_directory) || exit
grep -rhoiaE '^[0-9]+[ *A-Z] +X-PHP-(Originating-)?Script: .*' --include='*-H' \
    "${spool#spool_directory = }/input" || [ $? = 1 ]
