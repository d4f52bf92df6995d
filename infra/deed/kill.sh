# Ends units at once, if they run: unit... The stop job keeps them from restarting.
systemctl stop --no-block -- "$@" 2>/dev/null
systemctl kill -s KILL -- "$@" 2>/dev/null && exit 0
failed=$?
systemctl is-active --quiet -- "$@"
case $? in 3 | 4) exit 0 ;; esac # none of them runs, or is known
exit $failed
