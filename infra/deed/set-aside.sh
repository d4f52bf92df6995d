# Stops etcd and puts its data aside, into "replaced-<time>" of the data directory: data directory, mark of
# the restore, name, unit. The functions of restores come first.
# shellcheck disable=SC2034 # the functions read these
dir=$1 unit=$4
lock
end_unit "$unit"
put_aside
