package apply

import (
	"archive/tar"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/release"
)

var (
	//go:embed files
	unitFiles embed.FS
	//go:embed packages.sh
	packagesScript string
	//go:embed node.sh
	nodeScript string
)

// machineFile is a file for a machine: content, or the file from on this computer.
type machineFile struct {
	path    string // without the leading slash
	mode    int64
	content []byte
	from    string
}

// stagingDir holds programs until node.sh has moved them.
const stagingDir = "opt/bench"

// prepare makes the machines, and installs everything on them that kubeadm's users install before
// they call it: packages, HAProxy, containerd, kubelet, kubeadm, and all images.
func (b *bench) prepare(ctx context.Context, l *lab) (cluster, []node, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, prepareLimit, fmt.Errorf("not prepared within %s", prepareLimit))
	defer cancel()
	stop := b.report.Quiet("preparing the machines for kubeadm")
	defer stop()
	ws, err := l.workspace(ctx, filepath.Join(b.root, "internal", "bench", "apply", "machines"))
	if err != nil {
		return cluster{}, nil, err
	}
	if _, err := ws.Apply(ctx); err != nil {
		return cluster{}, nil, err
	}
	var output map[string]node
	var address string
	if err := errors.Join(ws.Output(ctx, "nodes", &output), ws.Output(ctx, "lb", &address)); err != nil {
		return cluster{}, nil, err
	}
	nodes := nodesOf(output)
	c := cluster{Endpoint: address + ":6443", Token: randomHex(3) + "." + randomHex(8), CertificateKey: randomHex(32), Vars: l.vars}
	g, each := errgroup.WithContext(ctx)
	g.Go(func() error { return l.prepareBalancer(each, nodes) })
	for _, n := range nodes {
		g.Go(func() error { return l.prepareNode(each, c, n) })
	}
	return c, nodes, g.Wait()
}

func (l *lab) prepareBalancer(ctx context.Context, nodes []node) error {
	if err := l.script(ctx, "lb-0", packagesScript, "haproxy"); err != nil {
		return err
	}
	return errors.Join(
		l.put(ctx, "lb-0", []machineFile{{path: "etc/haproxy/haproxy.cfg", mode: 0o644, content: []byte(haproxyConfig(nodes))}}),
		l.script(ctx, "lb-0", "systemctl restart haproxy.service"),
	)
}

func (l *lab) prepareNode(ctx context.Context, c cluster, n node) error {
	files, err := l.b.nodeFiles(c, n)
	if err != nil {
		return err
	}
	if err := l.put(ctx, n.Name, files); err != nil {
		return err
	}
	if err := l.script(ctx, n.Name, packagesScript, "nftables"); err != nil {
		return err
	}
	if err := l.script(ctx, n.Name, nodeScript, "/"+stagingDir); err != nil {
		return err
	}
	images, err := os.Open(l.b.files.Images)
	if err != nil {
		return err
	}
	defer images.Close() //nolint:errcheck // read only
	_, err = l.on(ctx, n.Name, images, "ctr", "-n", "k8s.io", "images", "import", "-")
	return err
}

// nodeFiles are the files of a node before kubeadm.
func (b *bench) nodeFiles(c cluster, n node) ([]machineFile, error) {
	containerd, err := c.containerdConfig()
	if err != nil {
		return nil, err
	}
	cni, err := cniConfig(n)
	if err != nil {
		return nil, err
	}
	files := []machineFile{
		{path: "etc/containerd/config.toml", mode: 0o644, content: containerd},
		{path: "etc/cni/net.d/10-bridge.conflist", mode: 0o644, content: cni},
	}
	for name, to := range map[string]string{
		"containerd.service": "etc/systemd/system/containerd.service",
		"kubelet.service":    "etc/systemd/system/kubelet.service",
		"10-kubeadm.conf":    "etc/systemd/system/kubelet.service.d/10-kubeadm.conf",
	} {
		content, err := unitFiles.ReadFile("files/" + name)
		if err != nil {
			return nil, err
		}
		files = append(files, machineFile{path: to, mode: 0o644, content: content})
	}
	for name, from := range map[string]string{
		"kubeadm": b.files.Kubeadm, "kubelet": b.files.Kubelet, "kubectl": b.files.Kubectl, "runc": b.files.Runc,
		"containerd.tar.gz": b.files.Containerd, "cni.tgz": b.files.CNI,
	} {
		files = append(files, machineFile{path: stagingDir + "/" + name, mode: 0o755, from: from})
	}
	return files, nil
}

// script runs a shell script on a machine. The shell reads all of it before it runs anything, so
// that no program in it reads the script.
func (l *lab) script(ctx context.Context, machine, script string, args ...string) error {
	whole := "{\n" + script + "\n} </dev/null\n"
	_, err := l.on(ctx, machine, strings.NewReader(whole), append([]string{"sh", "-s", "--"}, args...)...)
	return err
}

// put writes files on a machine, and the directories above them.
func (l *lab) put(ctx context.Context, machine string, files []machineFile) error {
	r, w := io.Pipe()
	go func() { _ = w.CloseWithError(writeTar(w, files)) }()
	_, err := l.on(ctx, machine, r, "tar", "-x", "-m", "--no-same-owner", "-C", "/", "-f", "-")
	_ = r.Close() // ends the writer if the machine has not read everything
	return err
}

func writeTar(w io.Writer, files []machineFile) error {
	tw := tar.NewWriter(w)
	for _, f := range files {
		if err := writeTarFile(tw, f); err != nil {
			return fmt.Errorf("%s: %w", f.path, err)
		}
	}
	return tw.Close()
}

func writeTarFile(tw *tar.Writer, f machineFile) error {
	header := &tar.Header{Typeflag: tar.TypeReg, Name: f.path, Mode: f.mode, Size: int64(len(f.content)), ModTime: time.Now()}
	if f.from == "" {
		err := tw.WriteHeader(header)
		if err == nil {
			_, err = tw.Write(f.content)
		}
		return err
	}
	return release.WriteTarFile(tw, header, f.from)
}
