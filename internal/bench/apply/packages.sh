# Installs the packages $@ on a machine that has just booted.
set -eu
export DEBIAN_FRONTEND=noninteractive
timeout 300 cloud-init status --wait >/dev/null || [ $? = 2 ] # 2: done, with a recoverable error
systemctl stop apt-daily.timer apt-daily-upgrade.timer apt-daily.service apt-daily-upgrade.service
tries=0
until apt-get -qq -o APT::Update::Error-Mode=any update; do
	tries=$((tries + 1))
	[ "$tries" -lt 30 ] || exit 1
	sleep 2
done
apt-get -qq -y -o DPkg::Lock::Timeout=120 --no-install-recommends install "$@" >/dev/null
