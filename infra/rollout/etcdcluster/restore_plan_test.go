package etcdcluster

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/host"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/snapshot"
)

// TestPlanRestore says what a restore has still to do, and when it is refused.
func TestPlanRestore(t *testing.T) {
	s3, one := Restore{Bucket: "b", Prefix: "p/"}, Restore{Member: "a"}
	named := Restore{Bucket: "b", Prefix: "p/", Snapshot: "20260102T030405Z-7"}
	force := func(r Restore) Restore { r.ReplaceData = true; return r }
	empty := func(names ...string) (out []restoreMember) {
		for _, n := range names {
			out = append(out, restoreMember{name: n, reachable: true})
		}
		return out
	}
	with := func(list []restoreMember, change func(*restoreMember), names ...string) []restoreMember {
		list = slices.Clone(list)
		for i := range list {
			if slices.Contains(names, list[i].name) {
				change(&list[i])
			}
		}
		return list
	}
	data := func(m *restoreMember) { m.data = true }
	restored := func(m *restoreMember) { m.data, m.restored = true, true }
	gone := func(m *restoreMember) { m.reachable = false }
	three := empty("a", "b", "c")
	const all = "make restored data a,b,c; use restored data a,b,c; install a,b,c"
	for name, tt := range map[string]struct {
		facts restoreFacts
		want  string // the stages
		err   string
	}{
		"a new cluster":                         {restoreFacts{restore: s3, members: three}, all, ""},
		"all data are lost":                     {restoreFacts{restore: s3, formed: true, members: three}, all, ""},
		"a machine is away":                     {restoreFacts{restore: s3, members: with(three, gone, "b")}, "", "b cannot be reached"},
		"interrupted while data were made":      {restoreFacts{restore: s3, members: with(three, restored, "b")}, "make restored data a,c; use restored data a,c; install a,b,c", ""},
		"interrupted before the start":          {restoreFacts{restore: s3, members: with(three, restored, "a", "b", "c")}, "install a,b,c", ""},
		"interrupted after the start":           {restoreFacts{restore: s3, answers: true, begun: true, members: with(three, restored, "a", "b", "c")}, "", ""},
		"the cluster works":                     {restoreFacts{restore: s3, formed: true, answers: true, members: with(three, data, "a", "b", "c")}, "", "everything written since the snapshot would be lost"},
		"the cluster works, and that is meant":  {restoreFacts{restore: force(named), formed: true, answers: true, members: with(three, data, "a", "b", "c")}, all, ""},
		"of a cluster that works, the newest":   {restoreFacts{restore: force(s3), formed: true, answers: true, members: with(three, data, "a", "b", "c")}, "", "restore_from.snapshot"},
		"done, and the record is lost":          {restoreFacts{restore: force(named), answers: true, begun: true, done: true, members: with(three, restored, "a", "b", "c")}, "", ""},
		"one has its data, and the others work": {restoreFacts{restore: force(named), formed: true, answers: true, members: with(with(three, data, "b", "c"), restored, "a")}, "make restored data b,c; use restored data b,c; install a,b,c", ""},
		"two work, and one has older data":      {restoreFacts{restore: force(named), answers: true, begun: true, members: with(with(three, data, "c"), restored, "a", "b")}, "make restored data c; use restored data c; install c", ""},
		"the same, and that is not allowed":     {restoreFacts{restore: s3, answers: true, begun: true, members: with(with(three, data, "c"), restored, "a", "b")}, "", "on c that this restore has not made"},
		"restored, and one was replaced":        {restoreFacts{restore: s3, answers: true, begun: true, members: with(with(three, restored, "a", "b"), gone, "c")}, "", ""},
		"from a member, others are put aside":   {restoreFacts{restore: force(one), formed: true, members: with(empty("a", "b", "c", "d", "e"), data, "a", "b")}, "make restored data a; use restored data a,b; install a", ""},
		"it is down, and has a quorum":          {restoreFacts{restore: s3, formed: true, members: with(three, data, "a", "b")}, "", "enough for a quorum"},
		"one member has data":                   {restoreFacts{restore: s3, formed: true, members: with(three, data, "b")}, "", `restore_from = { member = "b" }`},
		"one member has data, to be replaced":   {restoreFacts{restore: force(s3), formed: true, members: with(three, data, "b")}, all, ""},
		"from the member":                       {restoreFacts{restore: one, formed: true, members: with(three, data, "a")}, "make restored data a; use restored data a; install a", ""},
		"from a member without data":            {restoreFacts{restore: one, formed: true, members: with(three, data, "b")}, "", "it has no data of a member"},
		"from none of the members":              {restoreFacts{restore: Restore{Member: "z"}, members: three}, "", "it is none of the members"},
		"from a member of a cluster that works": {restoreFacts{restore: force(one), formed: true, answers: true, members: with(three, data, "a", "b", "c")}, "", "the cluster answers and has all its data"},
		"from a member, and another has data":   {restoreFacts{restore: one, formed: true, members: with(empty("a", "b", "c", "d", "e"), data, "a", "b")}, "", "compare the machines"},
		"one leaves":                            {restoreFacts{restore: s3, formed: true, members: three, leaving: []string{"d"}}, "", "does not list d any more, whose data would be deleted"},
		"one leaves, and that is meant":         {restoreFacts{restore: force(named), formed: true, members: with(three, data, "a"), leaving: []string{"d"}}, "make restored data a,b,c; use restored data a,b,c,d; install a,b,c", ""},
		"one leaves, with data of a member":     {restoreFacts{restore: force(one), formed: true, members: with(three, data, "a", "b"), leaving: []string{"d"}}, "make restored data a; use restored data a,b,d; install a", ""},
		"one that it has made leaves":           {restoreFacts{restore: force(named), formed: true, answers: true, begun: true, members: with(three, restored, "a", "b", "c"), leaving: []string{"d"}, joined: []string{"d"}}, "", "hosts does not list d any more, which the restored cluster has"},
		"one that leaves came back meanwhile":   {restoreFacts{restore: force(named), formed: true, answers: true, begun: true, members: with(three, restored, "a", "b", "c"), leaving: []string{"d"}}, "set aside d", ""},
	} {
		plan, err := planRestore(tt.facts)
		var batches []string
		for _, batch := range plan {
			batches = append(batches, batch[0].Action.Name+" "+strings.Join(batch.Machines(), ","))
		}
		if got := strings.Join(batches, "; "); got != tt.want {
			t.Errorf("%s: %q, wanted %q", name, got, tt.want)
		}
		if (err != nil) != (tt.err != "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: %v, wanted %q", name, err, tt.err)
		}
	}
}

// TestCheckSnapshot refuses snapshots that the cluster could not use.
func TestCheckSnapshot(t *testing.T) {
	good := snapshot.Description{Cluster: "demo", EtcdVersion: "3.6.16", EncryptionKeys: []snapshot.EncryptionKey{{Name: "encryption.key", SHA256: "aaaaaaaaaaaaaaaa"}}}
	keys := map[string]string{"encryption.key": "aaaaaaaaaaaaaaaa"}
	for want, tt := range map[string]struct {
		cluster, version string
		keys             map[string]string
	}{
		"":                                    {"demo", "3.6.16", keys},
		"snapshot of cluster demo":            {"other", "3.6.16", keys},
		"of etcd 3.6.16":                      {"demo", "3.5.21", keys},
		"the cluster does not have":           {"demo", "3.6.16", map[string]string{}},
		"the key store has bbbbbbbbbbbb":      {"demo", "3.6.16", map[string]string{"encryption.key": "bbbbbbbbbbbbbbbb"}},
		"3.6.16 is not a release and not one": {"demo", "x", keys},
	} {
		err := checkSnapshot(good, tt.cluster, tt.version, tt.keys)
		if tt.version == "x" {
			if err == nil {
				t.Error("an invalid release is accepted")
			}
			continue
		}
		if (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v, wanted %q", err, want)
		}
	}
	if err := checkSnapshot(good, "demo", "3.7.3", keys); err != nil {
		t.Errorf("a later etcd: %v", err)
	}
}

// TestCheckRestoreRoom: the object and the data made from it are on the disk at the same time.
func TestCheckRestoreRoom(t *testing.T) {
	d := snapshot.Description{Name: "20260102T030405Z-7", Size: 1 << 30}
	for _, tt := range []struct {
		room host.FileRoom
		want string
	}{
		{host.FileRoom{Free: 2<<30 + 128<<20}, ""},
		{host.FileRoom{Free: 1<<30 + 128<<20, Used: 1 << 30}, ""}, // the download of an attempt that was killed
		{host.FileRoom{Free: 2 << 30}, "refusing to restore snapshot 20260102T030405Z-7 on a: the file system of /var/lib/etcd has 2147483648 bytes free, and 2281701376 are needed: twice the snapshot's 1073741824, and something for the log; " +
			"nothing has been changed: enlarge the volume, or make room (/var/lib/etcd/replaced-* have the data from before earlier restores, /var/lib/etcd/restore what an interrupted one has made), and apply again"},
	} {
		got := ""
		if err := checkRestoreRoom("a", tt.room, d); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%+v: %q, wanted %q", tt.room, got, tt.want)
		}
	}
}

// TestAnotherRestore says what is the same restore, which is done once.
func TestAnotherRestore(t *testing.T) {
	s3 := Restore{Bucket: "b", Region: "eu-west-1"}
	for name, tt := range map[string]struct {
		before, now Restore
		want        bool
	}{
		"none":                {Restore{}, Restore{}, false},
		"the first":           {Restore{}, s3, true},
		"the same":            {s3, s3, false},
		"taken away":          {s3, Restore{}, false},
		"the default prefix":  {s3, Restore{Bucket: "b", Prefix: "k8s/demo/etcd/"}, false},
		"another bucket":      {s3, Restore{Bucket: "c"}, true},
		"another snapshot":    {s3, Restore{Bucket: "b", Snapshot: "20260102T030405Z-7"}, true},
		"another trigger":     {s3, Restore{Bucket: "b", Trigger: "again"}, true},
		"another endpoint":    {s3, Restore{Bucket: "b", Endpoint: "http://a"}, false},
		"data may be lost":    {s3, Restore{Bucket: "b", ReplaceData: true}, false},
		"a member instead":    {s3, Restore{Member: "a"}, true},
		"nodes that are kept": {s3, Restore{Bucket: "b", Nodes: []string{"a"}}, false},
	} {
		if got := tt.now.Another(tt.before, "demo"); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestStaleKeys says what of a restored cluster is deleted.
func TestStaleKeys(t *testing.T) {
	for want, keep := range map[string][]string{
		"/registry/leases/kube-system/[] /registry/masterleases/[]":                                                                                   nil,
		"/registry/leases/kube-system/[] /registry/masterleases/[] /registry/minions/[] /registry/leases/kube-node-lease/[] /registry/csinodes/[]":    {},
		"/registry/leases/kube-system/[] /registry/masterleases/[] /registry/minions/[a] /registry/leases/kube-node-lease/[a] /registry/csinodes/[a]": {"a"},
	} {
		var got []string
		for _, s := range staleKeys(keep) {
			got = append(got, s.prefix+fmt.Sprint(s.keep))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%v: %q", keep, got)
		}
	}
	if r := (Restore{}); r.keptNodes(true) != nil || r.keptNodes(false) == nil {
		t.Error("in place all nodes are kept, on a new cluster none")
	}
}

// TestMayReplace: the permission to replace data ends with the restore that it was given for.
func TestMayReplace(t *testing.T) {
	r := Restore{Bucket: "b", Snapshot: "s", ReplaceData: true}.complete("demo")
	other := Restore{Bucket: "b", Snapshot: "s", Trigger: "again", ReplaceData: true}.complete("demo")
	for _, tt := range []struct {
		name string
		done *rollout.Restored
		r    Restore
		want bool
	}{
		{"not restored yet", nil, r, true},
		{"members still join", &rollout.Restored{Mark: r.mark()}, r, true},
		{"done", &rollout.Restored{Mark: r.mark(), Ended: true}, r, false},
		{"another one", &rollout.Restored{Mark: r.mark(), Ended: true}, other, true},
		{"not allowed", nil, Restore{Bucket: "b"}.complete("demo"), false},
		{"none wanted", nil, Restore{ReplaceData: true}.complete("demo"), false},
	} {
		if got := mayReplace(tt.done, tt.r); got != tt.want {
			t.Errorf("%s: %t", tt.name, got)
		}
	}
}
