package plans

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/bench/hosts"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/account"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/workspace"
)

//go:embed main.tf
var configuration string

// options say what to measure with.
type options struct {
	Provider   string // its program
	CLI        string // terraform or tofu
	Mirror     string // directory of the artifact mirror
	Kubernetes bool   // whether there is a control plane
	Profile    string // directory for profiles of the provider; empty for none
	Log        io.Writer
}

// cluster is a cluster of machines that cost little, and the working directory of its Terraform.
type cluster struct {
	options
	site  *site
	ws    *workspace.Workspace
	usage string // file to which the provider's processes add what they used
	sums  string // file with the checksums of downloads
}

// newCluster makes everything around a cluster, and no machine yet. It ends with ctx.
func newCluster(ctx context.Context, dir string, o options) (*cluster, error) {
	c := &cluster{options: o, usage: filepath.Join(dir, "usage")}
	if err := os.Mkdir(filepath.Join(dir, "work"), 0o755); err != nil {
		return nil, err
	}
	var api string
	var err error
	if c.site, api, err = serveSite(ctx, dir); err != nil {
		return nil, err
	}
	m, err := newMirror(o.Mirror)
	if err != nil {
		return nil, err
	}
	files := httptest.NewServer(m)
	context.AfterFunc(ctx, files.Close)
	if err := balance(ctx); err != nil {
		return nil, err
	}
	return c, c.prepare(dir, api, files.URL, m.sums)
}

// serveSite serves an account's API, and SSH of its machines, until ctx ends. The machines are in the directory fleet of dir.
func serveSite(ctx context.Context, dir string, change ...func(*cloud.Config)) (s *site, url string, err error) {
	fleet := filepath.Join(dir, "fleet")
	if err := os.Mkdir(fleet, 0o755); err != nil {
		return nil, "", err
	}
	ssh, err := (&net.ListenConfig{}).Listen(ctx, "tcp4", "0.0.0.0:22")
	if err != nil {
		return nil, "", err
	}
	api := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.ServeHTTP(w, r) }))
	url = "http://" + api.Listener.Addr().String()
	if s, err = newSite(ctx, fleet, url, change...); err != nil {
		return nil, "", errors.Join(err, ssh.Close())
	}
	api.Start()
	context.AfterFunc(ctx, func() {
		api.Close()
		s.cloud.Close()
	})
	server := hosts.Server{Fleet: s.fleet, Find: s.find}
	go server.Serve(ctx, ssh)
	return s, url, nil
}

// prepare makes the working directory.
func (c *cluster) prepare(dir, api, mirror, sums string) error {
	key, checksums := filepath.Join(dir, "key"), filepath.Join(dir, "SHA256SUMS")
	c.sums = checksums
	if err := errors.Join(workspace.SSHKey(key), os.WriteFile(checksums, []byte(sums), 0o600)); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	c.ws, err = workspace.New(workspace.Options{Dir: filepath.Join(dir, "work"), CLI: c.CLI, Provider: self, Log: c.Log, Env: append(environment(dir, api, key),
		"K8S_ARTIFACT_MIRROR="+mirror, "K8S_ARTIFACT_CHECKSUMS="+checksums, usageVariable+"="+c.usage, providerVariable+"="+c.Provider)})
	if err != nil {
		return err
	}
	for _, v := range []string{"GOGC", "GOMEMLIMIT", "GODEBUG"} { // for experiments
		if value := os.Getenv(v); value != "" {
			c.ws.Env = append(c.ws.Env, v+"="+value)
		}
	}
	return c.ws.WriteFile("main.tf", configuration)
}

// environment is that of a Terraform whose account is the site's.
func environment(home, api, sshKey string) []string {
	return []string{
		"HOME=" + home, "AWS_ENDPOINT_URL=" + api, "AWS_REGION=us-east-1", "AWS_EC2_METADATA_DISABLED=true",
		"AWS_ACCESS_KEY_ID=" + account.AccessKey, "AWS_SECRET_ACCESS_KEY=" + account.SecretKey, "K8S_SSH_PRIVATE_KEY_FILE=" + sshKey,
	}
}

// balance stands in for HAProxy: what comes to its port goes to the API server.
func balance(ctx context.Context) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp4", "0.0.0.0:6444")
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				server, err := (&net.Dialer{}).DialContext(ctx, "tcp", apiServer)
				if err != nil {
					_ = conn.Close()
					return
				}
				hosts.Join(conn, server)
			}()
		}
	}()
	return nil
}

// grow brings the cluster to a number of workers.
func (c *cluster) grow(ctx context.Context, workers int) error {
	if c.Kubernetes {
		looking, done := context.WithCancel(ctx)
		defer done()
		go c.keepNodes(looking)
	}
	if err := c.ws.WriteFile("terraform.tfvars", fmt.Sprintf("workers = %d\nkubernetes = %t\n", workers, c.Kubernetes)); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(c.ws.Dir, ".terraform")); err != nil {
		if err := c.ws.Init(ctx); err != nil {
			return err
		}
	}
	_, err := c.ws.Apply(ctx)
	return err
}

// keepNodes stands in for kubelets once there are keys.
func (c *cluster) keepNodes(ctx context.Context) {
	for ctx.Err() == nil {
		n, err := connect(ctx, c.site.client)
		if err == nil {
			n.run(ctx, c.site.all)
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// all returns all machines, by name.
func (s *site) all() []*hosts.Host {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*hosts.Host
	for _, h := range s.hosts {
		all = append(all, h)
	}
	slices.SortFunc(all, func(a, b *hosts.Host) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// damage changes a file on a machine, and returns how to undo that.
func (c *cluster) damage(machine, file string) (undo func() error, err error) {
	h := c.site.named(machine)
	if h == nil {
		return nil, fmt.Errorf("there is no machine %s", machine)
	}
	path := filepath.Join(h.Root, file)
	before, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	write := func(content []byte) error { return os.WriteFile(path, content, 0o600) } // the mode stays
	return func() error { return write(before) }, write(append(slices.Clone(before), "# damaged\n"...))
}
