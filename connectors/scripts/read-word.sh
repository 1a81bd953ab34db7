# Read the secret word: without it nothing is started. It is never exported, and neither is any other
# variable of the scripts that follow: those which the login exports are unset first.
# shellcheck disable=SC2034

unset kt_word kt_seconds kt_note kt_place kt_run kt_step kt_fence kt_in kt_print kt_end \
    kt_dir kt_seen kt_stat kt_boot kt_after kt_days
read -r kt_word || exit 125
