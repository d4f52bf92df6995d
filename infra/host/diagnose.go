package host

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/foreign"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/patience"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
)

//go:embed diagnose.sh
var causeFunctions string

// Causes searches the output of a unit or command for causes that the machine can explain, and asks
// it: which process holds a port, how full the file systems are. It is meant for errors, so it
// returns nothing instead of failing, and it asks even if ctx has just ended.
func Causes(ctx context.Context, r Runner, said string) []finding.Finding {
	var ports []string
	for _, match := range portTaken.FindAllStringSubmatch(said, -1) {
		if port := match[1] + match[2]; !slices.Contains(ports, port) {
			ports = append(ports, port)
		}
	}
	var script strings.Builder
	for _, port := range ports {
		fmt.Fprintf(&script, "holders %s\n", port)
	}
	if diskFull.MatchString(said) {
		script.WriteString("full\n")
	}
	if script.Len() == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience.Of(ctx, 10*time.Second))
	defer cancel()
	out, err := r.Run(ctx, remote.Command{Sudo: true, Script: "LC_ALL=C\nexport LC_ALL\n" + causeFunctions + script.String()})
	if err != nil {
		return nil
	}
	return parseCauses(r.Name(), foreign.Text(string(out.Stdout)))
}

// parseCauses reads the lines of diagnose.sh, with a tab between two fields.
func parseCauses(machine, answer string) []finding.Finding {
	var out []finding.Finding
	for line := range strings.Lines(answer) {
		f := finding.Finding{Subject: machine}
		switch fields := strings.Split(strings.TrimSuffix(line, "\n"), "\t"); {
		case len(fields) == 5 && fields[0] == "port":
			f.Kind, f.Problem, f.Target = finding.Port, finding.Taken, fields[1]
			f.Found, f.Process, f.Unit = fields[2], fields[3], fields[4]
		case len(fields) == 5 && fields[0] == "full":
			f.Kind, f.Problem, f.Target = finding.FileSystem, finding.Full, fields[1]
			f.Device, f.Found, f.Size = fields[2], fields[3], fields[4]
		default:
			continue
		}
		out = append(out, f)
	}
	return out
}
