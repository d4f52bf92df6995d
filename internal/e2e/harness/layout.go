package harness

import (
	"os"
	"path/filepath"
	"testing"
)

// LayOut makes the directory of the demo, as far as the commands of pages use it: the file env, kubectl and k8s-lab.
func (c *Cluster) LayOut(t *testing.T, dir string) {
	t.Helper()
	bin := filepath.Join(dir, "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, program := range map[string]string{"kubectl": c.suite.KubectlPath(), "k8s-lab": filepath.Join(c.suite.Bin, "k8s-lab")} {
		if err := os.Symlink(program, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	text := c.WS.ShellFile([]string{bin}, map[string]string{"KUBECONFIG": c.Kubeconfig, "K8S_LAB_STATE_DIR": c.suite.stateDir()})
	if err := os.WriteFile(filepath.Join(dir, "env"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
