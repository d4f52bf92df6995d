// Package status says how a running cluster is: its API servers, nodes, members of etcd, snapshots and
// certificates, as seen at one moment. It changes nothing. What may not enter: what is wanted of a
// cluster, Terraform and AWS.
package status

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/etcd"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/host"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/kube"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/parallel"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/snapshot"
)

// Query says what to ask for a [Cluster]. Only API is required; a part that is left out stays
// empty in the answer.
type Query struct {
	API         fleet.API
	Controllers []fleet.Target // machines of the API servers
	Etcd        []fleet.Target // machines of the etcd members
	Workers     []fleet.Target // machines of the workers, for their units and certificates
}

// Cluster is the state of a cluster as seen at one moment.
type Cluster struct {
	// Healthy is true when everything answered, every API server is ready, every etcd member
	// healthy, no alarm of etcd active, every node Ready, no unit fails, no certificate expired, and no
	// member has failed to take a snapshot.
	Healthy      bool                `json:"healthy"`
	Version      string              `json:"version"` // of the API server behind the endpoint, "v1.36.4"
	Nodes        []kube.Node         `json:"nodes"`
	APIServers   []APIServer         `json:"api_servers"`
	Leases       []kube.Lease        `json:"leases"`
	Etcd         []EtcdMember        `json:"etcd"`
	Alarms       []EtcdAlarm         `json:"alarms"`
	Certificates []fleet.Certificate `json:"certificates"`
	// Snapshot is the newest snapshot of etcd that the machines of the members know of, nil if none
	// of them keeps any or none knows.
	Snapshot *snapshot.Description `json:"snapshot"`
	// Problems say which units fail and why, and what could not be asked and why, one sentence each.
	Problems []string `json:"problems"`
}

// APIServer is one API server, asked directly and not through the load balancer.
type APIServer struct {
	Machine string `json:"machine"`
	Ready   bool   `json:"ready"`
	Version string `json:"version"`
	// Failing names the failing checks of /readyz.
	Failing []string `json:"failing"`
}

// EtcdMember is one etcd member, asked directly.
type EtcdMember struct {
	Machine string `json:"machine"`
	ID      string `json:"id"`      // hexadecimal, as etcdctl writes it; empty: it did not answer
	Healthy bool   `json:"healthy"` // it serves a linearizable read and has no alarm
	Leader  bool   `json:"leader"`
	Learner bool   `json:"learner"`
	Version string `json:"version"`
	// The sizes are those of [etcd.Status], in bytes.
	DBSize      int64 `json:"db_size"`
	DBSizeInUse int64 `json:"db_size_in_use"`
	DBQuota     int64 `json:"db_quota"` // 0: it does not report one
	// Disk is how fast the disk of the member is; zero if its metrics could not be read.
	Disk etcd.Disk `json:"disk"`
	// RoundTrip is that of [etcd.Metrics], to the farthest of the members that the member knows; zero if that is not known.
	RoundTrip time.Duration `json:"round_trip"`

	alarms []etcd.Alarm // of all members, as it knows them
}

// EtcdAlarm is an active alarm of etcd. Every member obeys it, whichever has caused it.
type EtcdAlarm struct {
	// Machine is the machine of the member that caused the alarm. It is empty if no machine that
	// was asked has this member, or its member does not answer.
	Machine string `json:"machine"`
	// Member is the id of the member, in hexadecimal. It is empty if etcd cannot tell which it is.
	Member string         `json:"member"`
	Type   etcd.AlarmType `json:"type"`
	// Quota is the quota of the member's database in bytes, 0 if it is not known.
	Quota int64 `json:"quota"`
}

// String returns the alarm in words: its member, its name, what it means and what ends it.
func (a EtcdAlarm) String() string {
	whose := a.Machine
	switch {
	case whose == "" && a.Member == "":
		whose = "etcd"
	case whose == "":
		whose = "etcd member " + a.Member
	}
	switch a.Type {
	case etcd.NoSpace:
		quota := ""
		if a.Quota > 0 {
			quota = fmt.Sprintf(" of %d bytes", a.Quota)
		}
		return fmt.Sprintf("%s: %s: the database has reached its quota%s, and etcd stores nothing more; the next apply of the etcd cluster compacts, defragments and disarms, and if the data still "+
			"fill the quota then, delete objects or raise it", whose, a.Type, quota)
	case etcd.Corrupt:
		return fmt.Sprintf("%s: %s: the data of the members differ, and etcd refuses every change; "+
			"no apply repairs that: %s", whose, a.Type, fleet.CorruptAdvice)
	}
	return fmt.Sprintf("%s: %s: etcd has raised an alarm that this version does not know", whose, a.Type)
}

// Of returns the state of a cluster. An unhealthy cluster is no error: Problems say what could
// not be asked.
func Of(ctx context.Context, f *fleet.Fleet, q Query) Cluster {
	ctx, cancel := fleet.Observing(remote.RememberUnreachable(ctx, fleet.RememberFor))
	defer cancel()
	b := builder{fleet: f, access: f.Access(q.API.PKI)}
	defer b.access.Close()
	asks := []func(){func() { b.cluster(ctx, q.API) }}
	for _, t := range q.Controllers {
		asks = append(asks, func() { b.apiServer(ctx, t) })
	}
	for _, t := range q.Etcd {
		asks = append(asks, func() { b.member(ctx, t) }, func() { b.snapshots(ctx, t) })
	}
	for _, t := range q.Controllers {
		asks = append(asks, func() { b.units(ctx, t, fleet.ControllerUnits) })
	}
	for _, t := range q.Etcd {
		asks = append(asks, func() { b.units(ctx, t, fleet.MemberUnits) })
	}
	for _, t := range q.Workers {
		asks = append(asks, func() { b.units(ctx, t, fleet.WorkerUnits) })
	}
	for _, t := range distinct(q.Controllers, q.Etcd, q.Workers) {
		asks = append(asks, func() { b.certificates(ctx, t) })
	}
	parallel.Do(ctx, asks...)
	return b.result()
}

// distinct returns every machine once, even if it has several roles.
func distinct(lists ...[]fleet.Target) []fleet.Target {
	var out []fleet.Target
	for _, t := range slices.Concat(lists...) {
		if !slices.ContainsFunc(out, func(o fleet.Target) bool { return o.Node.Name == t.Node.Name }) {
			out = append(out, t)
		}
	}
	return out
}

// builder collects the answers of parallel questions.
type builder struct {
	fleet  *fleet.Fleet
	access *fleet.Access

	mu     sync.Mutex
	status Cluster
}

func (b *builder) add(change func(*Cluster)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change(&b.status)
}

func (b *builder) problem(what string, err error) {
	b.add(func(s *Cluster) { s.Problems = append(s.Problems, what+": "+err.Error()) })
}

// cluster asks the API server for what does not depend on which server answers.
func (b *builder) cluster(ctx context.Context, a fleet.API) {
	version, err := fleet.AskAPI(ctx, b.access, a.Endpoint, func(ctx context.Context, c *kube.Client) (string, error) { return c.Version(ctx) })
	b.answer("API server "+a.Endpoint, err, func(s *Cluster) { s.Version = version })
	if err != nil {
		return
	}
	parallel.Do(ctx, func() {
		nodes, err := fleet.AskAPI(ctx, b.access, a.Endpoint, func(ctx context.Context, c *kube.Client) ([]kube.Node, error) { return c.Nodes(ctx) })
		b.answer("nodes", err, func(s *Cluster) { s.Nodes = nodes })
	}, func() {
		leases, err := fleet.AskAPI(ctx, b.access, a.Endpoint, func(ctx context.Context, c *kube.Client) ([]kube.Lease, error) { return c.Leases(ctx) })
		b.answer("leases", err, func(s *Cluster) { s.Leases = leases })
	})
}

// answer takes an answer, or why there is none.
func (b *builder) answer(what string, err error, change func(*Cluster)) {
	if err != nil {
		b.problem(what, err)
		return
	}
	b.add(change)
}

func (b *builder) apiServer(ctx context.Context, t fleet.Target) {
	answer := APIServer{Machine: t.Node.Name}
	c, err := b.access.APIServer(ctx, b.fleet.Machine(t))
	if err == nil {
		err = c.Ready(ctx)
	}
	var notReady *kube.NotReadyError
	switch {
	case err == nil:
		answer.Ready = true
		if answer.Version, err = c.Version(ctx); err != nil {
			b.problem("API server on "+t.Node.Name, err)
		}
	case errors.As(err, &notReady):
		answer.Failing = notReady.Failing
	default:
		b.problem("API server on "+t.Node.Name, err)
	}
	b.add(func(s *Cluster) { s.APIServers = append(s.APIServers, answer) })
}

func (b *builder) member(ctx context.Context, t fleet.Target) {
	answer := EtcdMember{Machine: t.Node.Name}
	c, err := b.access.Member(ctx, b.fleet.Machine(t))
	if err == nil {
		var status etcd.Status
		if status, err = c.Status(ctx); err == nil {
			answer.ID, answer.Version, answer.alarms = status.ID.String(), status.Version, status.Alarms
			answer.DBSize, answer.DBSizeInUse, answer.DBQuota = status.DBSize, status.DBSizeInUse, status.Quota
			answer.Leader, answer.Learner = status.Leader == status.ID, status.Learner
			metrics, _ := c.Metrics(ctx)
			members, _ := c.MembersKnown(ctx)
			answer.Disk, answer.RoundTrip = metrics.Disk, metrics.RoundTrip(members)
			err = c.Health(ctx)
			answer.Healthy = err == nil
			if alarm := (*etcd.AlarmError)(nil); errors.As(err, &alarm) {
				err = nil // it is among the alarms
			}
		}
	}
	if err != nil {
		b.problem("etcd on "+t.Node.Name, err)
	}
	b.add(func(s *Cluster) { s.Etcd = append(s.Etcd, answer) })
}

// snapshots asks a machine what it knows of snapshots.
func (b *builder) snapshots(ctx context.Context, t fleet.Target) {
	k := b.fleet.Machine(t).AskSnapshots(ctx)
	if k.Err != nil && !fleet.Unreachable(k.Err) {
		b.problem("snapshots on "+t.Node.Name, k.Err)
	}
	if k.Failed != "" {
		b.problem("snapshots on "+t.Node.Name, errors.New("the last run of etcd-backup failed: "+k.Failed))
	}
	b.add(func(s *Cluster) { s.Snapshot = snapshot.Newer(s.Snapshot, k.Newest) })
}

// units tells of the units of a machine that fail, with their last errors. That a machine cannot be reached
// is told of elsewhere.
func (b *builder) units(ctx context.Context, t fleet.Target, names []string) {
	failing, err := host.FailingUnits(ctx, b.fleet.Machine(t).Remote, names...)
	if err != nil && !fleet.Unreachable(err) {
		b.problem("units on "+t.Node.Name, err)
	}
	for _, f := range failing {
		b.problem(t.Node.Name, errors.New(f.String()))
	}
}

// certificateFiles are the certificates that this project puts on machines.
var certificateFiles = []string{"/etc/kubernetes/pki/*.crt", "/etc/etcd/pki/*.crt"}

func (b *builder) certificates(ctx context.Context, t fleet.Target) {
	files, err := host.Read(ctx, b.fleet.Machine(t).Remote, certificateFiles, nil)
	if err != nil {
		b.problem("certificates on "+t.Node.Name, err)
		return
	}
	var found []fleet.Certificate
	for path, content := range files {
		found = append(found, fleet.Certificates(t.Node.Name, path, content)...)
	}
	b.add(func(s *Cluster) { s.Certificates = append(s.Certificates, found...) })
}

// alarms returns the alarms that any of the members knows, by machine. A member with an alarm is not
// healthy.
func alarms(members []EtcdMember) []EtcdAlarm {
	var known [][]etcd.Alarm
	for _, m := range members {
		known = append(known, m.alarms)
	}
	var out []EtcdAlarm
	for _, a := range etcd.Alarms(known...) {
		alarm := EtcdAlarm{Type: a.Type}
		if a.Member != 0 {
			alarm.Member = a.Member.String()
		}
		for i := range members {
			if m := &members[i]; m.ID != "" && m.ID == alarm.Member {
				alarm.Machine, alarm.Quota, m.Healthy = m.Machine, m.DBQuota, false
			}
		}
		out = append(out, alarm)
	}
	slices.SortStableFunc(out, func(x, y EtcdAlarm) int { return strings.Compare(x.Machine, y.Machine) })
	return out
}

// result sorts the answers and decides whether the cluster is healthy.
func (b *builder) result() Cluster {
	s := b.status
	slices.SortFunc(s.APIServers, func(x, y APIServer) int { return strings.Compare(x.Machine, y.Machine) })
	slices.SortFunc(s.Etcd, func(x, y EtcdMember) int { return strings.Compare(x.Machine, y.Machine) })
	slices.SortFunc(s.Certificates, func(x, y fleet.Certificate) int {
		return cmp.Or(strings.Compare(x.Machine, y.Machine), strings.Compare(x.Path, y.Path))
	})
	slices.Sort(s.Problems)
	s.Alarms = alarms(s.Etcd)
	now := b.fleet.Now()
	s.Healthy = len(s.Problems) == 0 && len(s.Alarms) == 0 &&
		!slices.ContainsFunc(s.APIServers, func(a APIServer) bool { return !a.Ready }) &&
		!slices.ContainsFunc(s.Etcd, func(m EtcdMember) bool { return !m.Healthy }) &&
		!slices.ContainsFunc(s.Nodes, func(n kube.Node) bool { return !n.Ready }) &&
		!slices.ContainsFunc(s.Certificates, func(c fleet.Certificate) bool { return now.After(c.NotAfter) })
	return s
}
