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
# reported and otherwise ignored: what follows shows whether it matters. A stage final that is held back is treated alike.
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
	[ -z "$held_back" ] || progress "cloud-init waits for $held_back, which is not ready: going on all the same"
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
# it when cloud-init has ended (cc_power_state_change), or it is scheduled. Processes of pods and of users do not count,
# nor does the process of all stages (cloud-init 24.3) while the last one is held back.
shutdown_near() {
	! pgrep -u 0 --ns $$ --nslist pid,mnt -af "$asks_to_shut_down" 2>/dev/null | grep -qvE '/cloud-init (status|query|schema'"${held_back:+|--all-stages}"')' || return 0
	at=$(sed -n 's/^USEC=//p' /run/systemd/shutdown/scheduled 2>/dev/null)
	[ -n "$at" ] && [ "$((at / 1000000 - $(date +%s)))" -lt 120 ]
}

# shuts_down succeeds if logind has accepted a shutdown. It waits for inhibitors first, such as that of unattended-upgrades,
# 5 s by default (logind.conf(5), InhibitDelayMaxSec); then systemd stops the units.
shuts_down() {
	[ "$(busctl --timeout=5 get-property org.freedesktop.login1 /org/freedesktop/login1 org.freedesktop.login1.Manager \
		PreparingForShutdown 2>/dev/null)" = 'b true' ]
}

# endless prints a unit that is starting, that says itself when it is ready, and for which systemd waits without a limit.
endless() {
	systemctl list-jobs --no-legend --plain 2>/dev/null | while read -r _ unit _ state; do
		[ "$state" = running ] || continue
		case $(systemctl show --no-pager -p Type,TimeoutStartUSec -- "$unit" 2>/dev/null | sort | tr '\n' ' ') in
		'TimeoutStartUSec=infinity Type=notify ')
			echo "$unit"
			break
			;;
		esac
	done
}

# is_held_back succeeds if stage final has not begun within a twentieth of the limit, and sets held_back to the unit that
# it waits for. On Debian and Ubuntu the stage starts after multi-user.target. A member of etcd that is never ready holds
# that back, and only an apply mends such a member. The stage writes the file here, once for an instance, when it turns to
# the scripts of user data. So it did that in an earlier boot.
is_held_back() {
	[ "$id" = cloud-final.service ] && [ -z "$cloud_unit" ] && [ -e "$root/var/lib/cloud/instance/sem/config_scripts_user" ] &&
		[ "$(($(date +%s) - start))" -ge "$(((limit + 19) / 20))" ] && held_back=$(endless) && [ -n "$held_back" ]
}

# look_at_cloud_init sets cloud_stage to the present or next stage of cloud-init, empty if
# no stage follows or there is no cloud-init; cloud_unit to its unit; cloud_failed to
# the units of failed stages; and held_back to a unit that holds back the last stage. Every stage is a unit;
# cloud-init 24.3 renamed the unit of the network stage.
look_at_cloud_init() {
	cloud_stage='' cloud_unit='' cloud_failed='' held_back='' id=''
	while IFS= read -r line; do
		case $line in
		Id=*) id=${line#Id=} ;;
		ActiveState=failed) cloud_failed="$cloud_failed $id" ;;
		ActiveState=activating) cloud_unit=${cloud_unit:-$id} ;;
		Job=[1-9]*) is_held_back || cloud_unit=${cloud_unit:-$id} ;;
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
