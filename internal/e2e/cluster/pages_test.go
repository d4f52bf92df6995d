package cluster_test

import (
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
)

// testFirstCluster runs the local commands of the guide "Your first cluster" in this cluster, and compares what they
// print with the page. Two commands are not run: "make demo" would make another cluster of the same example in the
// same way, so what it prints at its end is put together from this one; "make demo-down" is the step that destroys.
func (c *cluster) testFirstCluster(t *testing.T) {
	list := harness.Commands(t, filepath.Join(suite.Root, "docs", "guides", "first-cluster.md"), "## In the local EC2")
	clone := t.TempDir()
	c.LayOut(t, filepath.Join(clone, ".demo"))
	if n := len(list); n < 10 || list[0].Line != "make demo" || list[n-1].Line != "make demo-down" {
		t.Fatalf("the page has %d commands, and does not begin with make demo or end with make demo-down: %q", n, list)
	}
	demo := fmt.Sprintf("\nAPI endpoint  %s\n\n%s\n%s\n", c.Endpoint, c.Kubectl(t, "get", "nodes", "-o", "wide"),
		c.Kubectl(t, "get", "leases", "-n", "kube-system", "kube-controller-manager", "kube-scheduler"))
	if err := list[0].Check(demo); err != nil {
		t.Error(err)
	}
	var shell string // what the commands before have set in the shell
	for _, command := range list[1 : len(list)-1] {
		began := time.Now()
		if strings.HasPrefix(command.Line, ". ") {
			shell += command.Line + "\n"
			continue
		}
		run := func() error {
			cmd := exec.CommandContext(t.Context(), "bash", "-euc", shell+command.Line)
			cmd.Dir, cmd.Env = clone, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + clone, "TF_CLI_ARGS_plan=-no-color", "TF_CLI_ARGS_apply=-no-color"}
			cmd.Stdin = strings.NewReader("yes\n") // to terraform apply
			out, err := cmd.CombinedOutput()
			if err != nil {
				return fmt.Errorf("%s: %w\n%s", command.Line, err, out)
			}
			return command.Check(string(out))
		}
		if strings.HasPrefix(command.Line, "kubectl exec ") { // kube-proxy follows the pods
			harness.Eventually(t, 30*time.Second, command.Line, run)
		} else if err := run(); err != nil {
			t.Fatal(err)
		}
		t.Logf("%6.2f s  %s", time.Since(began).Seconds(), command.Line)
	}
	c.Kubectl(t, "delete", "deployment,service", "hello")
}

// testWhatIsWhere compares the tables of the guide "What is where" with the machines: every file and program, every
// port on which something listens, and the leases.
func (c *cluster) testWhatIsWhere(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join(suite.Root, "docs", "guides", "what-is-where.md"))
	if err != nil {
		t.Fatal(err)
	}
	const everywhere = "/etc/systemd/system/print-host-key.service" // by k8s_machine, in front of the tables
	if intro, _, _ := strings.Cut(string(raw), "\n## "); !strings.Contains(intro, "`"+everywhere+"`") {
		t.Errorf("the page does not have %s", everywhere)
	}
	for machine, heading := range map[string]string{"controller-0": "## Controllers", "worker-0": "## Workers", "lb-0": "## The load balancer"} {
		_, part, _ := strings.Cut(string(raw), "\n"+heading+"\n")
		part, _, _ = strings.Cut(part, "\n## ")
		wanted := map[string]string{everywhere: "644"} // path -> mode; empty if the page has none
		for _, row := range rows(part, "### Files") {
			wanted[row[0]] = strings.TrimPrefix(row[1], "0")
		}
		for _, row := range rows(part, "### Certificates and keys") {
			key, mode, _ := strings.Cut(row[1], " ")
			wanted[row[0]], wanted[path.Dir(row[0])+"/"+key] = "644", strings.TrimPrefix(mode, "0")
		}
		for _, row := range rows(part, "### Programs") {
			if strings.HasPrefix(row[0], "/") {
				wanted[row[0]] = ""
			}
		}
		found := c.Sh(t, machine, `find /etc/etcd /etc/kubernetes /etc/containerd /etc/cni /etc/haproxy/*.cfg /etc/haproxy/*.crt /usr/local/bin /usr/local/sbin /opt/cni/bin \
			/etc/modules-load.d/k8s-* /etc/sysctl.d/90-k8s-* /etc/tmpfiles.d/kube* -type f -printf '%m %p\n' 2>/dev/null
			find /etc/systemd/system -maxdepth 1 -type f -printf '%m %p\n'`)
		for line := range strings.Lines(found) {
			mode, file, _ := strings.Cut(strings.TrimSpace(line), " ")
			if strings.HasPrefix(file, "/etc/containerd/certs.d/") || strings.HasPrefix(path.Base(file), "k8s-lab-") {
				continue // the lab's registry, and a unit with which its machines boot
			}
			want, onPage := wanted[file]
			if !onPage {
				t.Errorf("%s has %s, and the page does not", machine, file)
			} else if want != "" && want != mode {
				t.Errorf("%s: %s has the mode %s, and on the page %s", machine, file, mode, want)
			}
			delete(wanted, file)
		}
		for file := range wanted {
			t.Errorf("the page has %s, and %s does not", file, machine)
		}
		c.testPorts(t, machine, rows(part, "### Ports"))
	}
	leases := strings.Fields(c.Kubectl(t, "get", "leases", "--all-namespaces", "-o", `jsonpath={range .items[*]}{.metadata.namespace}/{.metadata.name}{"\n"}{end}`))
	for i, l := range leases {
		for _, many := range []string{"kube-system/apiserver-", "kube-node-lease/worker-"} {
			if strings.HasPrefix(l, many) {
				leases[i] = many + "…"
			}
		}
	}
	slices.Sort(leases)
	var onPage []string
	for _, row := range rows(string(raw), "## Leases") {
		onPage = append(onPage, row[0]+"/"+row[1])
	}
	slices.Sort(onPage)
	if got := slices.Compact(leases); !slices.Equal(got, onPage) {
		t.Errorf("leases: %q, on the page %q", got, onPage)
	}
}

// testPorts compares the ports on which the cluster's programs listen.
func (c *cluster) testPorts(t *testing.T, machine string, table [][]string) {
	own := c.privateIP(t, machine)
	var wanted, found []string
	for _, row := range table {
		for address := range strings.SplitSeq(row[0], " and ") {
			wanted = append(wanted, fmt.Sprintf("%.15s %s %s", row[2], address, row[1]))
		}
	}
	// LISTEN 0 4096 127.0.0.1:10248 0.0.0.0:* users:(("kubelet",pid=1,fd=2))
	for line := range strings.Lines(c.Sh(t, machine, "ss -H -l -n -t -p")) {
		f := strings.Fields(line)
		if len(f) < 6 {
			t.Fatalf("ss says %q", line)
		}
		_, program, _ := strings.Cut(f[5], `(("`)
		program, _, _ = strings.Cut(program, `"`)
		i := strings.LastIndex(f[3], ":")
		address, port := strings.Trim(f[3][:i], "[]"), f[3][i+1:]
		switch address {
		case "*", "0.0.0.0", "::":
			address = "all"
		case own:
			address = "own"
		}
		if program == "systemd-resolve" {
			continue // Debian's own
		}
		if program == "containerd" {
			port = "any"
		}
		found = append(found, program+" "+address+" "+port)
	}
	slices.Sort(wanted)
	slices.Sort(found)
	if found = slices.Compact(found); !slices.Equal(found, wanted) {
		t.Errorf("ports of %s:\n%s\non the page:\n%s", machine, strings.Join(found, "\n"), strings.Join(wanted, "\n"))
	}
}

// rows returns the cells of the first table below a heading, without its head and without marks of code.
func rows(text, heading string) (out [][]string) {
	_, rest, _ := strings.Cut("\n"+text, "\n"+heading+"\n")
	for line := range strings.Lines(rest) {
		if !strings.HasPrefix(line, "|") {
			if len(out) > 0 || strings.HasPrefix(line, "#") {
				break
			}
			continue
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		for i, cell := range cells {
			cells[i] = strings.TrimSpace(strings.ReplaceAll(cell, "`", ""))
		}
		out = append(out, cells)
	}
	return out[min(2, len(out)):]
}
