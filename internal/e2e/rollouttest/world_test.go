// Package rollouttest installs and maintains clusters on machines of the local EC2 with the Go
// library alone: what Terraform does through the provider, a program can do through infra.
package rollouttest

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/machine"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/network"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/builtin"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/kube"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/registry"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout/addon"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout/controlplane"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout/etcdcluster"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout/loadbalancer"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout/status"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout/workerpool"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/prepared"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/progress"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/workspace"
)

const (
	clusterName       = "library"
	kubernetesVersion = "1.36.4"
	etcdVersion       = "3.6.16"
)

// theLab is the local EC2 that all tests of the package share, and preparedImage the image on which roles
// find what they would install; K8S_E2E_DEBIAN leaves it out.
var (
	theLab        *lab.Lab
	preparedImage string
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if os.Getuid() != 0 {
		fmt.Println("skipped: needs root for the local EC2")
		return 0
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Minute)
	defer cancel()
	dir, err := os.MkdirTemp("/var/tmp", "k8s-rollout-")
	if err == nil {
		defer func() { _ = os.RemoveAll(dir) }()
		err = startLab(ctx, dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "starting the local EC2:", err)
		if theLab != nil {
			_ = theLab.Down(context.WithoutCancel(ctx))
		}
		return 1
	}
	code := m.Run()
	if err := theLab.Down(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "taking the local EC2 down:", err)
		return 1
	}
	return code
}

func startLab(ctx context.Context, dir string) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := workspace.Build(ctx, "../../..", dir, "./cmd/k8s-lab"); err != nil {
		return err
	}
	program := filepath.Join(dir, "k8s-lab")
	l, err := lab.New(filepath.Join(dir, "lab"), "", nil)
	if err != nil {
		return err
	}
	theLab = l
	opts := lab.UpOptions{Quotas: map[string]int{"vcpus": 32}, Daemon: []string{program, "--state-dir", filepath.Join(dir, "lab"), "daemon"}}
	if os.Getenv("K8S_E2E_DEBIAN") == "" {
		img, err := prepared.Ensure(ctx, prepared.Options{Program: program, For: filepath.Join(dir, "lab"), Progress: progress.New(os.Stderr)})
		if err != nil {
			return err
		}
		preparedImage, opts.Images = img.ID, []string{img.ID}
	}
	return l.Up(ctx, opts)
}

// world is a network in the lab, the machines in it, and the library.
type world struct {
	t       *testing.T
	fleet   *fleet.Fleet
	engine  *rollout.Engine
	aws     *aws.Client
	network network.Network
	catalog *artifact.Catalog
	store   pki.Store
	cluster component.Cluster
	vars    lab.Vars
	key     ed25519.PrivateKey // for SSH, as is its signer
	signer  ssh.Signer
	image   string // of the machines; empty means Debian's

	mu       sync.Mutex
	machines map[string]machine.Machine
	progress []string // messages of the engine, logged for a failed test
	began    time.Time
}

func newWorld(t *testing.T, image string) *world {
	t.Helper()
	w := &world{t: t, image: image, machines: map[string]machine.Machine{}, store: pki.NewMemoryStore(nil), began: time.Now()}
	env := map[string]string{}
	pairs, err := theLab.Env()
	w.must(err)
	for _, kv := range pairs {
		env[kv[0]] = kv[1]
	}
	w.vars, err = theLab.Vars()
	w.must(err)
	w.aws, err = aws.New(t.Context(), aws.Config{Region: env["AWS_REGION"], AccessKey: env["AWS_ACCESS_KEY_ID"], SecretKey: env["AWS_SECRET_ACCESS_KEY"],
		Endpoints: aws.Endpoints{EC2: env["AWS_ENDPOINT_URL"], ELB: env["AWS_ENDPOINT_URL"], SSM: env["AWS_ENDPOINT_URL"], STS: env["AWS_ENDPOINT_URL"]}})
	w.must(err)
	sums, err := os.Open(env["K8S_ARTIFACT_CHECKSUMS"])
	w.must(err)
	defer func() { _ = sums.Close() }()
	w.catalog, err = artifact.NewCatalog(env["K8S_ARTIFACT_MIRROR"], sums, nil)
	w.must(err)

	_, w.key, err = ed25519.GenerateKey(rand.Reader)
	w.must(err)
	w.signer, err = ssh.NewSignerFromKey(w.key)
	w.must(err)
	pool := remote.NewPool(remote.Config{Signers: []ssh.Signer{w.signer}})
	w.fleet = &fleet.Fleet{Pool: pool, Store: func(pki.Ref) (pki.Store, error) { return w.store, nil }, Progress: w.say}
	w.engine = &rollout.Engine{Fleet: w.fleet}

	ref, err := pki.Bootstrap(t.Context(), w.store, clusterName, time.Now(), rand.Reader, pki.Options{Store: pki.StoreSSM})
	w.must(err)
	w.cluster = component.Cluster{Name: clusterName, Domain: "cluster.local", PKI: ref, DNSIP: netip.MustParseAddr("10.32.0.10"),
		PodCIDR: netip.MustParsePrefix("10.200.0.0/16"), ServiceCIDR: netip.MustParsePrefix("10.32.0.0/24"), NodeCIDRs: []netip.Prefix{netip.MustParsePrefix("10.240.0.0/24")}}

	spec := network.Spec{Cluster: clusterName, VPCCIDR: netip.MustParsePrefix("10.240.0.0/16"), NodeCIDR: w.cluster.NodeCIDRs[0]}
	for _, c := range w.vars.AdminCIDRs {
		spec.AdminCIDRs = append(spec.AdminCIDRs, netip.MustParsePrefix(c))
	}
	w.network, err = network.Ensure(t.Context(), w.aws, spec)
	w.must(err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("what the engine said:\n%s", strings.Join(w.progress, "\n"))
		}
		_ = pool.Close()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		g, gctx := errgroup.WithContext(ctx)
		for _, m := range w.machines {
			g.Go(func() error {
				return machine.Delete(gctx, w.aws, m.ID, w.machineSpec(m.Name, m.Role, m.PrivateIP, netip.Prefix{}))
			})
		}
		if err := g.Wait(); err != nil {
			t.Errorf("deleting machines: %v", err)
		}
		spec.Known = w.network
		if err := network.Delete(ctx, w.aws, spec); err != nil {
			t.Errorf("deleting the network: %v", err)
		}
	})
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) say(machine, message string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.progress = append(w.progress, fmt.Sprintf("%6.2fs %s: %s", time.Since(w.began).Seconds(), machine, message))
}

func (w *world) machineSpec(name string, role aws.MachineRole, ip netip.Addr, pods netip.Prefix) machine.Spec {
	return machine.Spec{Cluster: clusterName, Name: name, Role: role, Image: w.image, PrivateIP: ip, PodCIDR: pods, PublicIP: true,
		SubnetID: w.network.Subnets[0].ID, VPCID: w.network.VPCID, NetworkSubnets: []string{w.network.Subnets[0].ID}, SecurityGroupIDs: w.network.MachineGroups(role),
		User: machine.DefaultUser, AuthorizedKeys: []string{strings.TrimSpace(string(ssh.MarshalAuthorizedKey(w.signer.PublicKey())))}}
}

// launch launches a machine and returns it as a target.
func (w *world) launch(ctx context.Context, name string, role aws.MachineRole, ip string, pods string) (fleet.Target, error) {
	var prefix netip.Prefix
	if pods != "" {
		prefix = netip.MustParsePrefix(pods)
	}
	l, err := machine.Launch(ctx, w.aws, w.machineSpec(name, role, netip.MustParseAddr(ip), prefix), rand.Reader)
	if err != nil {
		return fleet.Target{}, err
	}
	m, err := l.Bring(ctx, func(m machine.Machine, hostKeys []string) machine.Shell {
		return w.fleet.Pool.Machine(remote.Host{Name: name, Address: m.Address().String(), User: machine.DefaultUser, HostKeys: hostKeys})
	})
	w.mu.Lock()
	w.machines[name] = m
	w.mu.Unlock()
	return fleet.Target{
		Host: remote.Host{Name: name, Address: m.Address().String(), User: machine.DefaultUser, HostKeys: []string{m.HostKey}},
		Node: component.Node{Name: name, PrivateIP: m.PrivateIP, PublicIP: m.PublicIP, PodCIDR: prefix,
			Zone: m.AvailabilityZone, InstanceID: m.ID, InstanceType: m.InstanceType},
	}, err
}

// machineWanted is one machine for launchAll.
type machineWanted struct {
	name string
	role aws.MachineRole
	ip   string
	pods string
}

// launchAll launches machines in parallel and returns them in order.
func (w *world) launchAll(wanted ...machineWanted) []fleet.Target {
	w.t.Helper()
	out := make([]fleet.Target, len(wanted))
	g, ctx := errgroup.WithContext(w.t.Context())
	for i, m := range wanted {
		g.Go(func() (err error) {
			out[i], err = w.launch(ctx, m.name, m.role, m.ip, m.pods)
			return err
		})
	}
	w.must(g.Wait())
	return out
}

// shell runs a script on a machine, as root.
func (w *world) shell(t fleet.Target, script string) string {
	w.t.Helper()
	out, err := w.fleet.Pool.Machine(t.Host).Run(w.t.Context(), remote.Command{Script: script, Sudo: true})
	if err != nil {
		w.t.Fatalf("%s: %q: %v", t.Node.Name, script, err)
	}
	return strings.TrimSpace(string(out.Stdout))
}

// stage runs a step and logs how long it takes.
func (w *world) stage(name string, f func() error) {
	w.t.Helper()
	start := time.Now()
	if err := f(); err != nil {
		w.t.Fatalf("%s: %v", name, err)
	}
	w.t.Logf("%-22s %6.2f s", name, time.Since(start).Seconds())
}

// deployment is the wanted state of a cluster and the records of what was applied.
type deployment struct {
	*world
	etcd         etcdcluster.Cluster
	control      controlplane.ControlPlane
	workers      workerpool.Pool
	lb           loadbalancer.LoadBalancer
	dns          addon.Addon
	dnsInventory []kube.ObjectRef

	etcdRecord, controlRecord, workerRecord, lbRecord rollout.Record
}

// artifacts returns artifacts all of whose checksums must be known.
func (w *world) artifacts(a []artifact.Artifact, err error) []artifact.Artifact {
	w.t.Helper()
	w.must(err)
	return a
}

func (w *world) deploy(lb fleet.Target, controllers, workers []fleet.Target) *deployment {
	w.t.Helper()
	d := &deployment{world: w}
	d.lb = loadbalancer.LoadBalancer{Spec: component.LoadBalancerSpec{Cluster: w.cluster}, Targets: []fleet.Target{lb}}
	d.etcd = etcdcluster.Cluster{Spec: component.EtcdSpec{Cluster: w.cluster, Version: etcdVersion, Artifacts: w.artifacts(w.catalog.EtcdSet(etcdVersion))}}
	d.control = controlplane.ControlPlane{Spec: component.ControlPlaneSpec{Cluster: w.cluster, Version: kubernetesVersion,
		EndpointNames: []string{lb.Node.PublicIP.String(), lb.Node.PrivateIP.String()},
		Artifacts:     w.artifacts(w.catalog.ControlPlaneSet(kubernetesVersion))}}
	mirrors := registry.Registries{}
	for name, r := range w.vars.Elsewhere.Registries {
		mirrors[name] = []registry.Mirror{{URL: r.Mirrors[0].URL}}
	}
	d.workers = workerpool.Pool{Endpoint: "https://" + net.JoinHostPort(lb.Node.PublicIP.String(), "6443"),
		Spec: component.WorkerSpec{Cluster: w.cluster, Version: kubernetesVersion,
			ControlPlaneEndpoint: "https://" + net.JoinHostPort(lb.Node.PrivateIP.String(), "6443"),
			Containerd:           component.ContainerdSpec{Registries: mirrors}, Artifacts: w.artifacts(w.catalog.WorkerSet(kubernetesVersion, "", "", "", true))}}
	d.workers.Spec.Kubelet.Config, d.workers.Spec.KubeProxy.Config = maps.Clone(w.vars.Elsewhere.KubeletConfig), maps.Clone(w.vars.Elsewhere.KubeProxyConfig)
	d.workers.Spec.Containerd.Config = maps.Clone(w.vars.Elsewhere.ContainerdConfig)
	objects, err := builtin.Addon{Name: "coredns"}.Objects(w.cluster)
	w.must(err)
	d.dns = addon.Addon{Name: "coredns", API: fleet.API{Endpoint: d.workers.Endpoint, PKI: w.cluster.PKI}, Objects: objects, Wait: true}
	d.setControllers(controllers)
	d.workers.Targets = workers
	return d
}

// setControllers changes the set of controllers in every role.
func (d *deployment) setControllers(targets []fleet.Target) {
	d.etcd.Targets, d.control.Targets = targets, targets
	var nodes []component.Node
	for _, t := range targets {
		nodes = append(nodes, t.Node)
	}
	d.control.Spec.EtcdEndpoints = component.EtcdEndpoints(nodes)
	d.lb.Spec.Backends = nodes
}

// drift observes everything and returns the findings as "role machine: words".
func (d *deployment) drift() []string {
	d.t.Helper()
	var out []string
	for _, o := range []struct {
		name   string
		role   rollout.Role
		record rollout.Record
	}{
		{"lb", d.lb, d.lbRecord},
		{"etcd", d.etcd, d.etcdRecord},
		{"control", d.control, d.controlRecord},
		{"workers", d.workers, d.workerRecord},
	} {
		r, err := d.engine.Observe(d.t.Context(), o.role, o.record)
		d.must(err)
		for machine, words := range finding.BySubject(r.Findings) {
			out = append(out, o.name+" "+machine+": "+words)
		}
		for machine, err := range r.Unreachable {
			out = append(out, o.name+" "+machine+" unreachable: "+err.Error())
		}
		for _, f := range r.Unjudged {
			out = append(out, o.name+" warning: "+f.String())
		}
	}
	return out
}

func (d *deployment) noDrift(when string) {
	d.t.Helper()
	if drift := d.drift(); len(drift) > 0 {
		d.t.Errorf("%s there is drift:\n%s", when, strings.Join(drift, "\n"))
	}
}

// apply applies all roles in order. prior may be nil. remove removes a role from machines all of
// which can be reached.
func (d *deployment) remove(ctx context.Context, role rollout.Role, rec rollout.Record) error {
	after, err := d.engine.Remove(ctx, role, rec)
	if err == nil && len(after.Left) > 0 {
		err = fmt.Errorf("not removed from %v", slices.Sorted(maps.Keys(after.Left)))
	}
	return err
}

func (d *deployment) apply(ctx context.Context, prior *deployment) error {
	var (
		etcd, control, workers, lb rollout.Role
		err                        error
	)
	if prior != nil {
		etcd, control, workers, lb = prior.etcd, prior.control, prior.workers, prior.lb
	}
	if d.lbRecord, err = d.engine.Apply(ctx, d.lb, lb, d.lbRecord); err != nil {
		return fmt.Errorf("load balancer: %w", err)
	}
	if d.etcdRecord, err = d.engine.Apply(ctx, d.etcd, etcd, d.etcdRecord); err != nil {
		return fmt.Errorf("etcd: %w", err)
	}
	if d.controlRecord, err = d.engine.Apply(ctx, d.control, control, d.controlRecord); err != nil {
		return fmt.Errorf("control plane: %w", err)
	}
	if d.workerRecord, err = d.engine.Apply(ctx, d.workers, workers, d.workerRecord); err != nil {
		return fmt.Errorf("workers: %w", err)
	}
	return nil
}

// starts returns the running units of all machines.
func (d *deployment) starts() map[string]harness.Unit {
	d.t.Helper()
	out := map[string]harness.Unit{}
	for _, t := range append(append([]fleet.Target{d.lb.Targets[0]}, d.control.Targets...), d.workers.Targets...) {
		maps.Copy(out, harness.ParseUnits(t.Node.Name, d.shell(t, harness.UnitsScript)))
	}
	return out
}

var errNoStatus = errors.New("unhealthy")

func (d *deployment) status() (status.Cluster, error) {
	s := status.Of(d.t.Context(), d.fleet, status.Query{API: d.dns.API, Controllers: d.control.Targets, Etcd: d.etcd.Targets, Workers: d.workers.Targets})
	if !s.Healthy {
		return s, fmt.Errorf("%w: %+v", errNoStatus, s)
	}
	return s, nil
}

// api connects to the cluster's public endpoint.
func (d *deployment) api() *kube.Client {
	d.t.Helper()
	key, err := d.store.Get(d.t.Context(), pki.KeyKubernetesCA)
	d.must(err)
	ca, err := pki.LoadAuthority(pki.KeyPair{CertPEM: []byte(d.cluster.PKI.KubernetesCA), KeyPEM: key})
	d.must(err)
	pair, err := ca.Issue(pki.Request{CommonName: "test", Organizations: []string{"system:masters"}, Client: true, Validity: time.Hour}, time.Now(), rand.Reader)
	d.must(err)
	c, err := kube.New(kube.Access{Endpoint: d.dns.API.Endpoint, CA: []byte(d.cluster.PKI.KubernetesCA), Cert: pair.CertPEM, Key: pair.KeyPEM})
	d.must(err)
	d.t.Cleanup(c.Close)
	return c
}

func configMap(ref kube.ObjectRef) []*unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetAPIVersion(ref.APIVersion)
	o.SetKind(ref.Kind)
	o.SetNamespace(ref.Namespace)
	o.SetName(ref.Name)
	return []*unstructured.Unstructured{o}
}

// eventually waits for a condition that becomes true shortly after the library has returned.
func (d *deployment) eventually(what string, condition func() error) {
	d.t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		err := condition()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			d.t.Fatalf("%s: %v", what, err)
		}
		time.Sleep(200 * time.Millisecond)
	}
}
