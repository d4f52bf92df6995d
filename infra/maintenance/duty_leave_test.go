package maintenance

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/patience"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
)

// voters are the etcd members on the other controllers. All of them answer as one server.
type voters struct {
	etcdserverpb.UnimplementedClusterServer
	etcdserverpb.UnimplementedKVServer
	etcdserverpb.UnimplementedMaintenanceServer
	alarms  []string // as etcd reports them in a status
	leader  uint64   // 2, which is the member that answers, if 0
	mu      sync.Mutex
	members []*etcdserverpb.Member
	down    map[string]bool // by address
}

func (v *voters) MemberList(context.Context, *etcdserverpb.MemberListRequest) (*etcdserverpb.MemberListResponse, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return &etcdserverpb.MemberListResponse{Members: slices.Clone(v.members)}, nil
}

func (v *voters) MemberRemove(_ context.Context, r *etcdserverpb.MemberRemoveRequest) (*etcdserverpb.MemberRemoveResponse, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	before := len(v.members)
	v.members = slices.DeleteFunc(v.members, func(m *etcdserverpb.Member) bool { return m.ID == r.ID })
	if len(v.members) == before {
		return nil, rpctypes.ErrGRPCMemberNotFound
	}
	return &etcdserverpb.MemberRemoveResponse{}, nil
}

func (v *voters) Range(context.Context, *etcdserverpb.RangeRequest) (*etcdserverpb.RangeResponse, error) {
	return &etcdserverpb.RangeResponse{}, nil
}

func (v *voters) Status(context.Context, *etcdserverpb.StatusRequest) (*etcdserverpb.StatusResponse, error) {
	return &etcdserverpb.StatusResponse{Header: &etcdserverpb.ResponseHeader{MemberId: 2}, Leader: cmp.Or(v.leader, 2), Errors: v.alarms}, nil
}

func (v *voters) names() (out []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, m := range v.members {
		out = append(out, m.Name)
	}
	return out
}

// join serves the other two of three members, and lets the controller reach them.
func (c *controller) join(t *testing.T, d *Duty) *voters {
	t.Helper()
	root, err := pki.NewAuthority("etcd-ca", time.Hour, time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := pki.LoadAuthority(root)
	if err != nil {
		t.Fatal(err)
	}
	addresses := []netip.Addr{netip.MustParseAddr("10.240.0.10"), netip.MustParseAddr("10.240.0.11"), netip.MustParseAddr("10.240.0.12")}
	pair, err := ca.Issue(pki.Request{CommonName: "etcd", IPs: append(slices.Clone(addresses), netip.MustParseAddr("127.0.0.1")), Server: true, Client: true}, time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := tls.X509KeyPair(pair.CertPEM, pair.KeyPEM)
	if err != nil {
		t.Fatal(err)
	}
	v := &voters{down: map[string]bool{"10.240.0.10:2379": true, "127.0.0.1:2379": true}}
	var others []fleet.Target
	for i, a := range addresses {
		name := "controller-" + string(rune('0'+i))
		v.members = append(v.members, &etcdserverpb.Member{ID: uint64(i + 1), Name: name, ClientURLs: []string{"https://" + a.String() + ":2379"}}) //nolint:gosec // small
		others = append(others, fleet.Target{Node: component.Node{Name: name, PrivateIP: a}})
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.Creds(credentials.NewServerTLSFromCert(&cert)))
	etcdserverpb.RegisterClusterServer(server, v)
	etcdserverpb.RegisterKVServer(server, v)
	etcdserverpb.RegisterMaintenanceServer(server, v)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	c.Dial = func(address string) (net.Conn, error) {
		v.mu.Lock()
		defer v.mu.Unlock()
		if v.down[address] {
			return nil, errors.New("connection refused")
		}
		return (&net.Dialer{}).DialContext(context.Background(), "tcp", listener.Addr().String())
	}
	d.files = map[string][]byte{component.EtcdCAPath: root.CertPEM, component.EtcdServerCert: pair.CertPEM, component.EtcdServerKey: pair.KeyPEM}
	d.SetControllers(func(context.Context) ([]fleet.Target, error) { return others, nil })
	return v
}

// killed is a controller whose API server and etcd member were stopped by a process that was then
// killed. The duty belongs to the next process.
func killed(t *testing.T) (*controller, *Duty, *voters) {
	t.Helper()
	c := newController(t, component.EtcdUnit, component.APIServerUnit)
	dying := c.duty(t)
	if err := errors.Join(dying.noteStop(t.Context()), dying.stop(t.Context(), component.APIServerUnit), dying.stop(t.Context(), component.EtcdUnit)); err != nil {
		t.Fatal(err)
	}
	d := c.duty(t)
	return c, d, c.join(t, d)
}

func nobody(string) bool { return false }

// TestLeaveContinued: the member that a killed process has stopped is removed by the next one.
func TestLeaveContinued(t *testing.T) {
	t.Parallel()
	c, d, v := killed(t)
	for range 2 { // the second process was killed too, after the removal
		if err := d.Leave(patience.With(t.Context(), 5), nobody, false); err != nil {
			t.Fatal(err)
		}
		if got := v.names(); !slices.Equal(got, []string{"controller-1", "controller-2"}) {
			t.Fatalf("members: %v; it did %q", got, c.deeds())
		}
	}
	if c.runs(component.EtcdUnit) {
		t.Error("its etcd runs")
	}
}

// TestLeaveContinuedRefused: the member stays, and everything runs again, if another member is down
// or none answers. So the next attempt can ask the machine's own member.
func TestLeaveContinuedRefused(t *testing.T) {
	t.Parallel()
	for name, down := range map[string][]string{
		"one is down":  {"10.240.0.12:2379"},
		"none answers": {"10.240.0.11:2379", "10.240.0.12:2379"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, d, v := killed(t)
			v.mu.Lock()
			for _, address := range down {
				v.down[address] = true
			}
			v.mu.Unlock()
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // the guard waits for one that is down
			defer cancel()
			err := d.Leave(ctx, nobody, false)
			if err == nil || len(v.names()) != 3 {
				t.Errorf("%v, members %v", err, v.names())
			}
			if !c.runs(component.EtcdUnit) || !c.runs(component.APIServerUnit) || c.note() != nil {
				t.Errorf("it did %q, noted %v", c.deeds(), c.note())
			}
		})
	}
}

// TestLeaveContinuedLast: no member is asked when the others leave too, as when a cluster is
// destroyed.
func TestLeaveContinuedLast(t *testing.T) {
	t.Parallel()
	_, d, v := killed(t)
	if err := d.Leave(t.Context(), func(string) bool { return true }, false); err != nil || len(v.names()) != 3 {
		t.Errorf("%v, members %v", err, v.names())
	}
}

// TestSuspendContinued: a stop that goes on does not ask the other members; the start follows.
func TestSuspendContinued(t *testing.T) {
	t.Parallel()
	_, d, v := killed(t)
	if err := d.Suspend(t.Context(), nobody); err != nil || len(v.names()) != 3 {
		t.Errorf("%v, members %v", err, v.names())
	}
}

// TestLastMember: the machine with the last member of etcd is not terminated if another one follows
// without its data. It may be terminated for good, and so may a machine whose member is no voter.
func TestLastMember(t *testing.T) {
	t.Parallel()
	all := func(string) bool { return true }
	for _, tt := range []struct {
		name        string
		members     int
		leaving     func(string) bool
		interrupted bool // its member was stopped before
		learner     bool
		replaced    bool
		refused     bool
	}{
		{"alone, replaced", 1, nobody, false, false, true, true},
		{"alone, destroyed", 1, nobody, false, false, false, false},
		{"alone and no voter, replaced", 1, nobody, false, true, true, false},
		{"all replaced", 3, all, false, false, true, true},
		{"all destroyed", 3, all, false, false, false, false},
		{"all replaced, after an interruption", 3, all, true, false, true, true},
		{"one of three, replaced, after an interruption", 3, nobody, true, false, true, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := newController(t, component.EtcdUnit)
			d := c.duty(t)
			if tt.interrupted {
				if err := errors.Join(d.noteStop(t.Context()), d.stop(t.Context(), component.EtcdUnit)); err != nil {
					t.Fatal(err)
				}
				d = c.duty(t)
			}
			v := c.join(t, d)
			v.members, v.members[0].IsLearner = v.members[:tt.members], tt.learner
			if !tt.interrupted {
				v.down = nil
			}
			err := d.Leave(patience.With(t.Context(), 5), tt.leaving, tt.replaced)
			const want = "refusing to terminate controller-0: it has the last member of etcd, and its data would end with it; apply k8s_etcd_cluster first"
			if (err != nil) != tt.refused || tt.refused && !strings.Contains(err.Error(), want) {
				t.Errorf("ended with %v", err)
			}
			if got := c.runs(component.EtcdUnit); tt.refused && !got {
				t.Errorf("its etcd does not run: it did %q", c.deeds())
			}
		})
	}
}
