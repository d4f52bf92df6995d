package etcdtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/etcd"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/local"
)

// TestAlarm fills the database of one of two members until etcd refuses to store more. The status
// of both members has the alarm, also without a quorum, until it is disarmed. The member serves reads
// and is not healthy, and no wait waits for that. Then its values are deleted, and it is compacted,
// defragmented and disarmed.
func TestAlarm(t *testing.T) {
	p, program := local.NewPKI(t), local.EtcdProgram(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	const quota = 4 << 20
	a, b := local.NewMember(t, p, program, "a"), local.NewMember(t, p, program, "b")
	a.Flags = []string{fmt.Sprintf("--quota-backend-bytes=%d", quota)}
	a.Start(t, false, a, b)
	other := b.Start(t, false, a, b)
	clients := []*etcd.Client{a.Client(t, p), b.Client(t, p)}
	for _, c := range clients {
		if err := c.WaitHealthy(ctx, nil); err != nil {
			t.Fatal(err)
		}
	}
	status := func(c *etcd.Client) etcd.Status {
		t.Helper()
		s, err := c.Status(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	before := status(clients[0])
	if before.Quota != quota || before.DBSize <= 0 || before.DBSizeInUse <= 0 || before.DBSizeInUse > before.DBSize || len(before.Alarms) > 0 {
		t.Errorf("before: %+v, wanted a quota of %d, sizes and no alarm", before, quota)
	}
	if s := status(clients[1]); s.Quota <= quota { // the default, 2 GiB
		t.Errorf("the member without the flag has a quota of %d", s.Quota)
	}

	kv := raw(t, p, a)
	value := strings.Repeat("x", 256<<10)
	var err error
	for i := 0; i < 100 && err == nil; i++ {
		_, err = kv.Put(ctx, fmt.Sprintf("/fill/%d", i), value)
	}
	if !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Fatalf("filling ended with %v, wanted %v", err, rpctypes.ErrNoSpace)
	}
	want := etcd.Alarm{Member: before.ID, Type: etcd.NoSpace}
	alarmed := func(c *etcd.Client, alarms ...etcd.Alarm) error {
		if s := status(c); fmt.Sprint(s.Alarms) != fmt.Sprint(alarms) {
			return fmt.Errorf("alarms of %s: %v, wanted %v", c.Endpoint(), s.Alarms, alarms)
		}
		return nil
	}
	eventually := func(alarms ...etcd.Alarm) { // a follower applies later than the leader
		t.Helper()
		var err error
		for range 50 {
			if err = errors.Join(alarmed(clients[0], alarms...), alarmed(clients[1], alarms...)); err == nil {
				return
			}
			time.Sleep(100 * time.Millisecond)
		}
		t.Fatal(err)
	}
	eventually(want)
	listed, err := kv.AlarmList(ctx)
	if err != nil || len(listed.Alarms) != 1 || etcd.ID(listed.Alarms[0].MemberID) != want.Member || listed.Alarms[0].Alarm.String() != string(want.Type) {
		t.Errorf("etcd lists %v, %v; wanted %v", listed, err, want)
	}
	if full := status(clients[0]); full.DBSizeInUse <= before.DBSizeInUse || full.DBSize <= before.DBSize {
		t.Errorf("the sizes did not grow: %+v, then %+v", before, full)
	}
	var raised *etcd.AlarmError
	if err := clients[0].Health(ctx); !errors.As(err, &raised) || raised.Alarm != want {
		t.Errorf("a full member is healthy: %v", err)
	}
	if err := clients[0].WaitHealthy(ctx, nil); !errors.As(err, &raised) {
		t.Errorf("waiting for a full member ended with %v", err)
	}
	for _, err := range []error{clients[0].Serves(ctx), clients[1].Health(ctx)} {
		if err != nil {
			t.Errorf("a full member serves reads, and the other one is healthy: %v", err)
		}
	}

	other.Stop()
	if err := alarmed(clients[0], want); err != nil {
		t.Errorf("without a quorum: %v", err)
	}
	short, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if _, err := kv.AlarmList(short); err == nil {
		t.Error("AlarmList needs no quorum: Status can use it")
	}
	b.Start(t, false, a, b)
	for _, c := range clients {
		if err := c.WaitServes(ctx, nil); err != nil {
			t.Fatal(err)
		}
	}
	eventually(want) // an alarm is kept over a restart

	if _, err := kv.Delete(ctx, "/fill/", clientv3.WithPrefix()); err != nil {
		t.Fatalf("a full member deletes: %v", err)
	}
	full := status(clients[0]).Space(0)
	if !full.Full() {
		t.Errorf("not full: %s", full)
	}
	for range 2 { // the second compaction finds nothing
		if err := clients[0].Compact(ctx); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range clients {
		if err := c.WaitCompacted(ctx); err != nil {
			t.Fatal(err)
		}
		if loose := status(c); loose.DBSize < full.Size/2 { // idle members count their free pages later
			t.Errorf("%s after a compaction: %s", c.Endpoint(), loose.Space(0))
		}
		if err := c.Defragment(ctx); err != nil {
			t.Fatal(err)
		}
		if tidy := status(c); tidy.DBSize > full.Size/4 {
			t.Errorf("%s after a defragmentation: %s, before: %s", c.Endpoint(), tidy.Space(0), full)
		}
	}
	eventually(want) // a defragmentation disarms nothing
	for range 2 {
		if err := clients[1].DisarmNoSpace(ctx); err != nil {
			t.Fatal(err)
		}
	}
	eventually()
	for _, c := range clients {
		if err := c.Health(ctx); err != nil {
			t.Error(err)
		}
		if m, err := c.Metrics(ctx); err != nil || m.Disk.Commit <= 0 {
			t.Errorf("metrics: %+v, %v", m, err)
		}
	}
	if _, err := kv.Put(ctx, "/fill/again", value); err != nil {
		t.Errorf("after the repair: %v", err)
	}
}
