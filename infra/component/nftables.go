package component

import (
	"strings"

	"github.com/coreos/go-systemd/v22/unit"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
)

const (
	nftProgram   = "/usr/sbin/nft"
	nftablesUnit = "nftables.service" // the distribution's
)

// addRules adds the rules of one table, such as "inet k8s-etcd-firewall", and returns the unit that loads them,
// which starts before others. The start of the distribution's unit flushes every table, and so does its
// reload: when it restarts or reloads, this one does too.
func (m *Machine) addRules(name, description, table string, rules desired.File, before ...string) desired.Unit {
	option, load := unit.NewUnitOption, nftProgram+" -f "+rules.Path
	m.State.Files = append(m.State.Files, rules, unitFile(name, []*unit.UnitOption{
		option("Unit", "Description", description),
		option("Unit", "Documentation", "https://wiki.nftables.org/"),
		option("Unit", "After", nftablesUnit),
		option("Unit", "PartOf", nftablesUnit),
		option("Unit", "ReloadPropagatedFrom", nftablesUnit),
		option("Unit", "Before", strings.Join(before, " ")),
		option("Unit", "StartLimitIntervalSec", "0"),
		option("Service", "Type", "oneshot"),
		option("Service", "RemainAfterExit", "yes"),
		option("Service", "ExecStart", load),
		option("Service", "ExecReload", load),
		option("Service", "ExecStop", "-"+nftProgram+" delete table "+table),
		option("Service", "Restart", "on-failure"),
		option("Service", "RestartSec", "5"),
		option("Install", "WantedBy", "multi-user.target"),
	}))
	u := running(name)
	u.ReloadOn, u.Undoes = []string{rules.Path}, true
	return u
}
