# Ends units at once: unit... The stop job keeps them from restarting.
systemctl stop --no-block -- "$@" 2>/dev/null
systemctl kill -s KILL -- "$@" 2>/dev/null
