# Print whether the configuration of a service passes its test. Arguments: those of the function.

. ./service-tests.sh
tests "$@" || :
