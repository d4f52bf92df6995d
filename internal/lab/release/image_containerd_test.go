package release

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cache"
)

// TestContainerdPullsImages pulls and unpacks every image under its own name with the mirror's
// containerd, as a worker does.
func TestContainerdPullsImages(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	dir := filepath.Join(cache.DefaultDir(), "container-images", imagesRecipe(catalogueImages()))
	if !complete(dir) {
		t.Skip("the images are not built yet: run `k8s-lab artifacts`")
	}
	bin := unpack(t, filepath.Join(builtMirror(t), containerdProduct(ContainerdVersion).files()[0]), "bin")
	work, err := os.MkdirTemp("", "k8s-lab-") // short: it holds a socket
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(work) })

	mirror := "http://" + serve(t, dir)
	for _, registry := range []string{"registry.k8s.io", "docker.io"} {
		hosts := fmt.Sprintf("server = %q\n[host.%q]\n  capabilities = [\"pull\", \"resolve\"]\n", mirror, mirror)
		must(t, writeFile(filepath.Join(work, "hosts", registry, "hosts.toml"), []byte(hosts)))
	}
	socket := filepath.Join(work, "sock")
	must(t, writeFile(filepath.Join(work, "config.toml"), fmt.Appendf(nil, `version = 3
root = %q
state = %q
disabled_plugins = ["io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri", "io.containerd.nri.v1.nri"]
[grpc]
  address = %q
[ttrpc]
  address = %q
`, filepath.Join(work, "root"), filepath.Join(work, "state"), socket, socket+".ttrpc")))

	logFile, err := os.Create(filepath.Join(work, "log"))
	must(t, err)
	defer logFile.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	daemon := exec.CommandContext(ctx, filepath.Join(bin, "containerd"), "--config", filepath.Join(work, "config.toml"))
	daemon.Stdout, daemon.Stderr = logFile, logFile
	daemon.Cancel = func() error { return daemon.Process.Signal(os.Interrupt) }
	daemon.WaitDelay = 10 * time.Second
	must(t, daemon.Start())
	defer func() {
		cancel()
		_ = daemon.Wait()
	}()
	ctr := func(args ...string) (string, error) {
		out, err := exec.CommandContext(ctx, filepath.Join(bin, "ctr"), append([]string{"--address", socket}, args...)...).CombinedOutput()
		return string(out), err
	}
	for {
		out, err := ctr("version")
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			t.Fatalf("containerd does not answer: %s\n%s", out, read(t, logFile.Name()))
		}
		time.Sleep(50 * time.Millisecond)
	}
	for _, image := range []string{PauseImage, CoreDNSImage, OlderCoreDNSImage, MetricsServerImage, CloudControllersImage, LocalPathImage, "docker.io/" + ToolboxImage} {
		if out, err := ctr("images", "pull", "--local", "--hosts-dir", filepath.Join(work, "hosts"), "--snapshotter", "native", image); err != nil {
			t.Errorf("pulling %s: %v\n%s", image, err, out)
			continue
		}
		if out, err := ctr("images", "check", "--snapshotter", "native", "name=="+image); err != nil || !strings.Contains(out, "complete") || !strings.Contains(out, "true") {
			t.Errorf("%s is not unpacked: %v\n%s", image, err, out)
		}
	}
}
