package rollouttest

import (
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/crypto/ssh"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/workspace"
)

// testProgram runs the program of the guide "The library" on a machine that has no role any more, and asks the API
// server that it has installed with the kubeconfig that it has written.
func (d *deployment) testProgram() {
	ctx, dir, target := d.t.Context(), d.t.TempDir(), d.control.Targets[0]
	d.must(workspace.Build(ctx, "../../..", dir, "./examples/library"))
	key, err := ssh.MarshalPrivateKey(d.key, "")
	d.must(err)
	keyFile := filepath.Join(dir, "key")
	d.must(os.WriteFile(keyFile, pem.EncodeToMemory(key), 0o600))
	env := map[string]string{}
	pairs, err := theLab.Env()
	d.must(err)
	for _, kv := range pairs {
		env[kv[0]] = kv[1]
	}
	sums, err := os.ReadFile(env["K8S_ARTIFACT_CHECKSUMS"])
	d.must(err)

	cmd := exec.CommandContext(ctx, filepath.Join(dir, "library"))
	cmd.Dir = dir
	cmd.Env = []string{"ADDRESS=" + target.Host.Address, "PRIVATE_IP=" + target.Node.PrivateIP.String(), "HOST_KEY=" + target.Host.HostKeys[0],
		"SSH_KEY_FILE=" + keyFile, "MIRROR=" + env["K8S_ARTIFACT_MIRROR"], "CHECKSUMS=" + string(sums)}
	out, err := cmd.CombinedOutput()
	if err != nil {
		d.t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{"etcdcluster.Cluster differs in 0 ways", "controlplane.ControlPlane differs in 0 ways"} {
		if !strings.Contains(string(out), want) {
			d.t.Errorf("%q is missing in\n%s", want, out)
		}
	}
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(dir, "kubeconfig"))
	d.must(err)
	client, err := kubernetes.NewForConfig(config)
	d.must(err)
	if v, err := client.Discovery().ServerVersion(); err != nil || v.GitVersion != "v"+kubernetesVersion {
		d.t.Errorf("the API server says %v, %v", v, err)
	}
}
