package virtual_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/exercise"
)

// put writes into etcd %d times, one after the other.
const put = `cd /etc/etcd/pki && curl -s --cacert ca.crt --cert server.crt --key server.key -d '{"key": "bGFi", "value": "eA=="}' 'https://127.0.0.1:2379/v3/kv/put?[1-%d]' | grep -o raft_term | wc -l`

// count prints how many writes to the log of etcd took longer than 512 ms, and how many there were.
const count = `curl -s --cacert /etc/etcd/pki/ca.crt --cert /etc/etcd/pki/server.crt --key /etc/etcd/pki/server.key https://127.0.0.1:2379/metrics |
awk '/^etcd_disk_wal_fsync_duration_seconds_bucket{le="0.512"}/ {quick = $2} /^etcd_disk_wal_fsync_duration_seconds_count/ {all = $2} END {print all - quick, all}'`

// testSlowDisk slows the disk of etcd as the exercises do, where systemd does it by cgroup v2. The plan warns.
func testSlowDisk(t *testing.T, c *harness.Cluster) {
	const machine = "controller-0"
	limit := limitScript(t)
	c.Sh(t, machine, "systemctl restart etcd")
	harness.Eventually(t, soon, "2500 quick writes", func() error {
		out, err := c.TrySh(t.Context(), machine, fmt.Sprintf(put, 2500))
		if err == nil && strings.TrimSpace(out) != "2500" {
			err = fmt.Errorf("etcd has answered %s times", out)
		}
		return err
	})
	t.Logf("slow writes and all, before: %s", c.Sh(t, machine, count))
	c.Sh(t, machine, "set -- 16384\n"+limit)
	if out := c.Sh(t, machine, "cat /sys/fs/cgroup/system.slice/etcd.service/io.max"); !strings.Contains(out, "wbps=16384 ") {
		t.Errorf("the limit of etcd is %q", out)
	}
	harness.Eventually(t, soon, "two of a hundred writes are slow", func() error {
		if _, err := c.TrySh(t.Context(), machine, fmt.Sprintf(put, 10)); err != nil {
			return err
		}
		out, err := c.TrySh(t.Context(), machine, count)
		if err != nil {
			return err
		}
		var slow, all int
		if _, err := fmt.Sscan(out, &slow, &all); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		if all < 2000 || 50*slow < all {
			return fmt.Errorf("%d of %d writes are slow", slow, all)
		}
		return nil
	})
	c.Sh(t, machine, "set --\n"+limit)
	if out := c.Sh(t, machine, "cat /sys/fs/cgroup/system.slice/etcd.service/io.max; ls /run/systemd/system.control"); strings.Contains(out, "wbps=16384") || strings.Contains(out, "etcd") {
		t.Errorf("there is still a limit: %s", out)
	}
	t.Logf("slow writes and all, after: %s", c.Sh(t, machine, count))
	harness.Eventually(t, soon, "the plan warns, and changes nothing", func() error {
		changes, text, err := c.WS.Plan(t.Context())
		if err == nil && (changes || !strings.Contains(harness.Flat(text), machine+": disk of etcd: more than 1% of the writes took longer than 512ms")) {
			err = fmt.Errorf("the plan says:\n%s", text)
		}
		return err
	})
	c.Sh(t, machine, "systemctl restart etcd")
}

// limitScript returns the script of the exercises that limits how much etcd writes. Its argument is in bytes a
// second, and without one there is no limit.
func limitScript(t *testing.T) string {
	t.Helper()
	file := filepath.Join(suite.Root, "examples", "labs", "etcd.md")
	page := harness.Must[exercise.Page](t)(exercise.Parse(file, string(harness.Must[[]byte](t)(os.ReadFile(file)))))
	for _, b := range page.Blocks {
		_, function, found := strings.Cut(b.Script, "limit() {")
		_, script, opens := strings.Cut(function, "<<'END'\n")
		if script, _, ends := strings.Cut(script, "\nEND\n"); found && opens && ends {
			return script
		}
	}
	t.Fatalf("%s has no function limit", file)
	return ""
}
