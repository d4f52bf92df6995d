# Stops the process of a unit (SIGSTOP), if it runs, and ends once it has stopped: unit,
# transient unit, seconds. The process continues when the transient unit ends: when
# that is stopped, or after the seconds even if the caller has died. systemd-run
# returns when ExecStartPre has ended, and systemd runs ExecStopPost however the unit ends.
#
# --kill-who is --kill-whom since systemd 252, which still knows the old name.
systemctl is-active --quiet "$1" || exit 0
systemctl=$(command -v systemctl)
systemd-run --quiet --collect --unit="$2" \
	--property=ExecStartPre="$systemctl kill --kill-who=main --signal=STOP $1" \
	--property=ExecStopPost="$systemctl kill --kill-who=main --signal=CONT $1" \
	sleep "$3"
