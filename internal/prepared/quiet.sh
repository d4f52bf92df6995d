# Switches off what upgrades a machine by itself: upgrades are those of the image, and what else these timers do
# has nothing to do. Then it points apt at the archive again, as Debian's image does.
set -eu
systemctl --quiet disable --now apt-daily.timer apt-daily-upgrade.timer unattended-upgrades.service \
	man-db.timer dpkg-db-backup.timer 2>/dev/null || :
printf 'http://deb.debian.org/debian\n' >/etc/apt/mirrors/debian.list
printf 'http://deb.debian.org/debian-security\n' >/etc/apt/mirrors/debian-security.list
