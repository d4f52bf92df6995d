# Stops etcd and puts its data aside, into "replaced" of the data directory: data directory, mark of
# the restore, name, unit. What was put aside before is deleted. The functions of restores come first.
# shellcheck disable=SC2034 # the functions read these
dir=$1 unit=$4
lock
end_unit "$unit"
put_aside
