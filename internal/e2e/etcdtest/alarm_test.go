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
// of both members has the alarm, also without a quorum, until it is disarmed. Health does not see
// it.
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
	if err := clients[0].Health(ctx); err != nil {
		t.Errorf("a full member serves reads: %v", err)
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
		if err := c.WaitHealthy(ctx, nil); err != nil {
			t.Fatal(err)
		}
	}
	eventually(want) // an alarm is kept over a restart

	if _, err := kv.AlarmDisarm(ctx, &clientv3.AlarmMember{}); err != nil {
		t.Fatal(err)
	}
	eventually()
}
