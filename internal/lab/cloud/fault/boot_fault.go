package fault

import (
	_ "embed"
	"fmt"
	"path"
	"slices"
	"strconv"
)

// The scripts of the boot faults, for the machine's python3. Each says what it does.
var (
	//go:embed firstboot/hold-lock
	holdLock string
	//go:embed firstboot/half-install
	halfInstall string
)

const (
	unitDir   = "etc/systemd/system"
	scriptDir = "usr/lib/k8s-lab"
)

// FirstBoot returns the files, by path, that the faults in force add to the disk of an instance
// with a Name tag before its first boot. It counts as an effect of these faults.
func (in *Injector) FirstBoot(name string) map[string]string {
	in.mu.Lock()
	defer in.mu.Unlock()
	files := map[string]string{}
	for _, f := range slices.Clone(in.faults) {
		if f.Kind != Boot {
			continue
		}
		if ok, err := path.Match(f.Name, name); f.Name != "" && (err != nil || !ok) {
			continue
		}
		f.addFiles(files)
		in.strike(f)
	}
	return files
}

// addFiles adds the files that disturb the boot.
func (f *Fault) addFiles(files map[string]string) {
	seconds := strconv.FormatFloat(f.Seconds, 'f', -1, 64)
	switch f.BootFault {
	case ListsLocked:
		files[path.Join(scriptDir, "hold-lock")] = holdLock
		addEarlyUnit(files, string(f.BootFault), "notify", "hold-lock", "apt-get "+seconds+" /var/lib/apt/lists/lock")
	case DpkgLocked:
		files[path.Join(scriptDir, "hold-lock")] = holdLock
		addEarlyUnit(files, string(f.BootFault), "notify", "hold-lock", "unattended-upgr "+seconds+" /var/lib/dpkg/lock-frontend /var/lib/dpkg/lock")
	case HalfInstalled:
		files[path.Join(scriptDir, "half-install")] = halfInstall
		addEarlyUnit(files, string(f.BootFault), "oneshot", "half-install", f.Package)
	case CloudInitHangs:
		if f.Seconds == 0 {
			seconds = "infinity"
		}
		dropIn := path.Join(unitDir, "cloud-final.service.d/k8s-lab-fault.conf")
		files[dropIn] = fmt.Sprintf("[Service]\nTimeoutStartSec=infinity\nExecStartPre=/bin/sh -c 'rm -f /%s; exec sleep %s'\n", dropIn, seconds)
	}
}

// addEarlyUnit adds a unit that runs a script before cloud-init and before anybody can log in. The
// script gets the path of the drop-in that starts the unit, and removes it.
func addEarlyUnit(files map[string]string, name, kind, script, args string) {
	unit := "k8s-lab-" + name + ".service"
	dropIn := path.Join(unitDir, "sysinit.target.d", "k8s-lab-"+name+".conf")
	files[dropIn] = "[Unit]\nWants=" + unit + "\n"
	files[path.Join(unitDir, unit)] = fmt.Sprintf(`[Unit]
Description=The fault %s of the local EC2
DefaultDependencies=no
After=local-fs.target
Before=cloud-init-local.service cloud-init-main.service ssh.service ssh.socket apt-daily.service apt-daily-upgrade.service
Conflicts=shutdown.target
Before=shutdown.target

[Service]
Type=%s
ExecStart=/usr/bin/python3 /%s /%s %s
`, name, kind, path.Join(scriptDir, script), dropIn, args)
}
