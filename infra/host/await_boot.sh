# Functions that wait until a machine has booted. SSH answers before cloud-init has done what user data say.
# What is done meanwhile may be overwritten, or cut off by a reboot that they ask for.
# They answer in the frames of apply.sh.
# shellcheck disable=SC2154 # limit is given

progress() { frame "progress $*"; }

# die step target unit detail
die() {
	printf 'failed %s\n%s\n%s\n\n%s\000' "$@"
	exit 1
}

# await_boot waits for cloud-init, if installed, to end in this boot, and for a shutdown that is near: the
# connection ends with it. Stage config writes apt's sources, stage final may install packages. A failed stage is
# reported and otherwise ignored: what follows shows whether it matters.
await_boot() {
	frame begin # ends whatever a login shell may have printed
	trap 'exit 143' HUP INT TERM PIPE
	start=$(date +%s)
	said=
	while look_at_boot && [ -n "$awaited" ]; do
		[ "$awaited" = "$said" ] || progress "waiting for $awaited"
		said=$awaited
		[ $(($(date +%s) - start)) -lt "$limit" ] ||
			die cloud-init "$shutdown" "$cloud_unit" "the boot is not over after $(($(date +%s) - start)) s: still waiting for $awaited"
		sleep 0.5
	done
	[ -z "$said" ] || [ -z "$cloud_failed" ] || progress "cloud-init has ended with errors (${cloud_failed# }), going on all the same: $(
		timeout 10 cloud-init status --long 2>&1 </dev/null | while IFS= read -r line; do printf '%s ' "$line"; done)"
}

# asks_to_shut_down is how the processes look that shut a machine down. Python has options in some distributions.
asks_to_shut_down='^[^ ]*python[0-9.]*( -[^ ]+)* [^ ]*/cloud-init( |$)|^([^ ]*/)?shutdown '

# look_at_boot sets awaited to what the boot waits for, empty if it is over, and shutdown to that if it is no stage of
# cloud-init.
look_at_boot() {
	look_at_cloud_init
	shutdown=
	awaited=${cloud_stage:+cloud-init (stage $cloud_stage)}
	[ -z "$awaited" ] || return 0
	# In the order in which a shutdown goes on, so that it is not missed between two looks.
	if shutdown_near; then
		awaited='a shutdown'
	elif shuts_down; then
		awaited='the end of a shutdown'
	else
		case $(systemctl is-system-running 2>/dev/null) in
		stopping) awaited='the end of a shutdown' ;;
		unknown | '') awaited='an answer of systemd' ;; # which has perhaps ended
		esac
	fi
	shutdown=$awaited
}

# shutdown_near succeeds if the machine shuts down within two minutes: a process that cloud-init leaves behind asks for
# it when cloud-init has ended (cc_power_state_change), or it is scheduled. Processes of pods and of users do not count.
shutdown_near() {
	! pgrep -u 0 --ns $$ --nslist pid,mnt -af "$asks_to_shut_down" 2>/dev/null | grep -qvE '/cloud-init (status|query|schema)' || return 0
	at=$(sed -n 's/^USEC=//p' /run/systemd/shutdown/scheduled 2>/dev/null)
	[ -n "$at" ] && [ "$((at / 1000000 - $(date +%s)))" -lt 120 ]
}

# shuts_down succeeds if logind has accepted a shutdown. It waits for inhibitors first, such as that of unattended-upgrades,
# 5 s by default (logind.conf(5), InhibitDelayMaxSec); then systemd stops the units.
shuts_down() {
	[ "$(busctl --timeout=5 get-property org.freedesktop.login1 /org/freedesktop/login1 org.freedesktop.login1.Manager \
		PreparingForShutdown 2>/dev/null)" = 'b true' ]
}

# look_at_cloud_init sets cloud_stage to the present or next stage of cloud-init, empty if
# no stage follows or there is no cloud-init; cloud_unit to its unit; and cloud_failed to
# the units of failed stages. Every stage is a unit; cloud-init 24.3 renamed that of
# the network stage.
look_at_cloud_init() {
	cloud_stage='' cloud_unit='' cloud_failed='' id=''
	while IFS= read -r line; do
		case $line in
		Id=*) id=${line#Id=} ;;
		ActiveState=failed) cloud_failed="$cloud_failed $id" ;;
		ActiveState=activating | Job=[1-9]*) [ -n "$cloud_unit" ] || cloud_unit=$id ;;
		esac
	done <<-END
		$(systemctl show --no-pager -p Id,ActiveState,Job -- cloud-init-local.service cloud-init.service \
			cloud-init-network.service cloud-config.service cloud-final.service 2>/dev/null)
	END
	case $cloud_unit in
	'') ;;
	cloud-init-local.*) cloud_stage=local ;;
	cloud-init*) cloud_stage=network ;;
	*) cloud_stage=${cloud_unit#cloud-} cloud_stage=${cloud_stage%.service} ;;
	esac
}
