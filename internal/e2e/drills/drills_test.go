package drills_test

import (
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/snapshot"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
)

// TestDrills tests one cluster. After each drill an apply converges and the next plan is empty. A
// drill that fails does not stop the others while the cluster is healthy.
func TestDrills(t *testing.T) {
	w := newWorld(t, suite, "drills")
	if !t.Run("install", w.testInstall) {
		t.FailNow()
	}
	// A quorum survives all of these: nothing may be lost.
	for _, drill := range []struct {
		name string
		act  func(*testing.T)
	}{
		{"kill -9 of etcd's leader", w.killLeader},
		{"kill -9 of an API server", w.killServer},
		{"etcd's leader paused for 20 s", w.pauseLeader},
		{"etcd's leader cut off by its security group", w.cutOffLeader},
		{"a full disk", w.fillDisk},
		{"one controller's volume lost", w.loseVolume},
		{"replacement of a member", w.replaceMember},
		{"rotation of etcd's authority", w.rotate},
		{"upgrade of Kubernetes", w.upgrade},
	} {
		t.Run(drill.name, func(t *testing.T) {
			w.healthy(t)
			result := w.record(t, drill.name, drill.act)
			if !result.Whole() {
				t.Error("a quorum survived, so nothing may be lost")
			}
			if result.Operations < 500 {
				t.Errorf("only %d operations: they prove nothing", result.Operations)
			}
		})
	}
	t.Run("snapshots", w.testSnapshots)
	// No quorum survives these.
	t.Run("two controllers lost", w.testTwoLost)
	t.Run("all controllers and the load balancer lost", w.testAllLost)
	t.Run("the region gone, but for copies of the buckets", w.testEverythingGone)
}

func (w *world) testInstall(t *testing.T) {
	w.Apply(t)
	w.Learn(t)
	w.healthy(t)
}

// killLeader kills the process of the member that leads. systemd starts it again.
func (w *world) killLeader(t *testing.T) {
	w.lab.Console(t, w.leader(t, ""), "systemctl kill --signal=KILL etcd")
	time.Sleep(10 * time.Second)
}

// killServer kills the process of an API server.
func (w *world) killServer(t *testing.T) {
	w.lab.Console(t, controllers[0], "systemctl kill --signal=KILL kube-apiserver")
	time.Sleep(10 * time.Second)
}

// pauseLeader stops the process of the member that leads. Its connections stay open, and nobody
// answers on them. When it goes on, it still takes itself for the leader for a moment.
func (w *world) pauseLeader(t *testing.T) {
	was := w.leader(t, "")
	w.lab.Console(t, was, "systemctl kill --signal=STOP etcd")
	stopped := time.Now()
	now := w.leader(t, was)
	time.Sleep(time.Until(stopped.Add(20 * time.Second)))
	w.lab.Console(t, was, "systemctl kill --signal=CONT etcd")
	t.Logf("%s led, then %s", was, now)
}

// cutOffLeader gives the leader's network interface a security group that lets in clients of the API
// server and SSH, but not the other members. As in EC2, a changed group does not end connections that
// are open, so these are ended on the machine. The apply gives back the group, as a repair of drift.
func (w *world) cutOffLeader(t *testing.T) {
	was := w.leader(t, "")
	found := harness.Must[*ec2.DescribeInstancesOutput](t)(w.ec2.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{Filters: running(was)}))
	if len(found.Reservations) != 1 {
		t.Fatalf("instances of %s: %d", was, len(found.Reservations))
	}
	instance := found.Reservations[0].Instances[0]
	group := harness.Must[*ec2.CreateSecurityGroupOutput](t)(w.ec2.CreateSecurityGroup(t.Context(), &ec2.CreateSecurityGroupInput{
		GroupName: aws.String("cut-off"), Description: aws.String("without etcd"), VpcId: instance.VpcId,
	})).GroupId
	everywhere := []types.IpRange{{CidrIp: aws.String("0.0.0.0/0")}}
	harness.Must[*ec2.AuthorizeSecurityGroupIngressOutput](t)(w.ec2.AuthorizeSecurityGroupIngress(t.Context(), &ec2.AuthorizeSecurityGroupIngressInput{
		GroupId: group, IpPermissions: []types.IpPermission{
			{IpProtocol: aws.String("tcp"), FromPort: aws.Int32(22), ToPort: aws.Int32(22), IpRanges: everywhere},
			{IpProtocol: aws.String("tcp"), FromPort: aws.Int32(6443), ToPort: aws.Int32(6443), IpRanges: everywhere},
		}}))
	harness.Must[*ec2.ModifyNetworkInterfaceAttributeOutput](t)(w.ec2.ModifyNetworkInterfaceAttribute(t.Context(), &ec2.ModifyNetworkInterfaceAttributeInput{
		NetworkInterfaceId: instance.NetworkInterfaces[0].NetworkInterfaceId, Groups: []string{*group}}))
	w.lab.Console(t, was, "ss --kill --tcp '( dport = 2380 or sport = 2380 or dport = 2379 or sport = 2379 )' >/dev/null")
	now := w.leader(t, was)
	if now == was {
		t.Errorf("%s still leads", was)
	}
	time.Sleep(20 * time.Second)
	if out, err := w.lab.TryConsole(t.Context(), was, harness.Etcdctl+"--command-timeout=3s endpoint health"); err == nil {
		t.Errorf("%s is still part of the quorum: %s", was, out)
	}
	changes, text, err := w.WS.Plan(t.Context())
	if err != nil || !changes {
		t.Errorf("nobody notices: %v\n%s", err, text)
	} else {
		harness.Says(t, text, "security groups: found "+*group)
	}
	w.Apply(t)
	harness.Must[*ec2.DeleteSecurityGroupOutput](t)(w.ec2.DeleteSecurityGroup(t.Context(), &ec2.DeleteSecurityGroupInput{GroupId: group}))
	t.Logf("%s led, then %s", was, now)
}

func running(machine string) []types.Filter {
	return []types.Filter{
		{Name: aws.String("tag:k8s-from-scratch/kind"), Values: []string{"machine"}},
		{Name: aws.String("tag:k8s-from-scratch/name"), Values: []string{machine}},
		{Name: aws.String("instance-state-name"), Values: []string{"running"}},
	}
}

// The data of a member are moved to a small file system, filled up, and moved back. The disks of the
// local EC2's machines have no limit of their own.
const (
	toSmall = `set -e
systemctl stop etcd
cp -a /var/lib/etcd /var/lib/etcd.copy
mount -t tmpfs -o size=512m,mode=700 none /var/lib/etcd
cp -a /var/lib/etcd.copy/. /var/lib/etcd/
rm -r /var/lib/etcd.copy
systemctl start etcd`
	fill  = `dd if=/dev/zero of=/var/lib/etcd/filling bs=1M 2>&1 | tail -1; df -h /var/lib/etcd | tail -1`
	empty = `rm /var/lib/etcd/filling`
	// grow makes the database of every member larger than what its file already has on the disk.
	grow = `head -c 900000 /dev/urandom | base64 -w0 | head -c 1000000 >/tmp/large
for i in $(seq 20); do ` + harness.Etcdctl + `put /drill/$i </tmp/large >/dev/null; done
rm /tmp/large
` + harness.Etcdctl + `del --prefix /drill/ >/dev/null`
	back = `set -e
systemctl stop etcd
cp -a /var/lib/etcd /var/lib/etcd.back
umount /var/lib/etcd
rm -r /var/lib/etcd/*
cp -a /var/lib/etcd.back/. /var/lib/etcd/
rm -r /var/lib/etcd.back
systemctl start etcd`
)

// other returns a controller that is not this one.
func other(than string) string {
	if than == controllers[0] {
		return controllers[1]
	}
	return controllers[0]
}

// fillDisk fills the disk of the member that leads, until it cannot store anything more and ends.
// The others go on. When there is room again, it comes back by itself.
func (w *world) fillDisk(t *testing.T) {
	was := w.leader(t, "")
	w.lab.Console(t, was, toSmall)
	w.healthy(t)
	// It leads again, so that the others lose their leader.
	id := w.Members(t)[was]
	leads := w.leader(t, "")
	if leads != was {
		w.lab.Console(t, leads, harness.Etcdctl+"move-leader "+id)
	}
	t.Logf("%s", w.lab.Console(t, was, fill))
	if _, err := w.lab.TryConsole(t.Context(), other(was), grow); err != nil {
		t.Log(err) // a write is lost in the election
	}
	harness.Eventually(t, 3*time.Minute, "etcd without room ends", func() error {
		_, err := w.lab.TryConsole(t.Context(), was, "journalctl --unit etcd --since -3min --no-pager | grep -m1 'no space left on device'")
		return err
	})
	now := w.leader(t, was)
	time.Sleep(10 * time.Second)
	changes, text, err := w.WS.Plan(t.Context())
	if err != nil || !changes {
		t.Errorf("nobody notices: %v\n%s", err, text)
	}
	// The plan names the unit. Why it fails is in its journal.
	harness.Says(t, text, was+`" = "unit etcd.service: failing again and again`)
	w.lab.Console(t, was, empty)
	w.healthy(t)
	w.lab.Console(t, was, back)
	t.Logf("%s led, then %s", was, now)
}

// terminate terminates a machine outside Terraform, so its volume is gone, too.
func (w *world) terminate(t *testing.T, machines ...string) {
	t.Helper()
	for _, machine := range machines {
		found := harness.Must[*ec2.DescribeInstancesOutput](t)(w.ec2.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{Filters: running(machine)}))
		if len(found.Reservations) != 1 {
			t.Fatalf("instances of %s: %d", machine, len(found.Reservations))
		}
		harness.Must[*ec2.TerminateInstancesOutput](t)(w.ec2.TerminateInstances(t.Context(), &ec2.TerminateInstancesInput{
			InstanceIds: []string{*found.Reservations[0].Instances[0].InstanceId}}))
	}
}

// loseVolume terminates the machine of the member that leads. The apply puts a new one in its place.
func (w *world) loseVolume(t *testing.T) {
	w.terminate(t, w.leader(t, ""))
	time.Sleep(10 * time.Second)
}

func (w *world) replaceMember(t *testing.T) { w.Apply(t, "-replace=k8s_machine.controller[1]") }

func (w *world) rotate(t *testing.T) { w.set(t, map[string]any{"etcd_ca": []int{1, 2}}) }

func (w *world) upgrade(t *testing.T) {
	w.set(t, map[string]any{"kubernetes_version": harness.NextKubernetesVersion})
}

// testSnapshots checks that the members have kept snapshots through all of this.
func (w *world) testSnapshots(t *testing.T) {
	out := harness.Must[*s3.ListObjectsV2Output](t)(w.lab.S3().ListObjectsV2(t.Context(), &s3.ListObjectsV2Input{Bucket: aws.String(harness.SnapshotBucket)}))
	var keys []string
	for _, o := range out.Contents {
		keys = append(keys, aws.ToString(o.Key))
	}
	if names := snapshot.Described("k8s/demo/etcd/", keys); len(names) < 3 {
		t.Errorf("the bucket has %q", names)
	}
}
