package finding

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	digestA = "20126f2aae8406f6c0e5b2d4f8a3c1e7d9b5a3f1c7e9d2b4a6f8c0e1d3b5a7f9"
	digestB = "1c73427791ae06f6c0e5b2d4f8a3c1e7d9b5a3f1c7e9d2b4a6f8c0e1d3b5a7f9"
)

// TestWords checks the words of every kind and problem. Tests and guides quote them: a change here
// needs a change there.
func TestWords(t *testing.T) {
	told := map[Kind][]Problem{}
	for _, tt := range []struct {
		f    Finding
		want string
	}{
		{Finding{Kind: Package, Target: "haproxy", Problem: Missing}, "package haproxy: not installed"},
		{Finding{Kind: Module, Target: "overlay", Problem: Missing}, "kernel module overlay: not loaded"},
		{Finding{Kind: Sysctl, Target: "a.b", Problem: Missing, Wanted: "1"}, "sysctl a.b: unknown to the kernel, wanted 1"},
		{Finding{Kind: Sysctl, Target: "a.b", Problem: Value, Found: "0", Wanted: "1"}, "sysctl a.b: 0, wanted 1"},

		{Finding{Kind: Directory, Target: "/d", Problem: Missing}, "directory /d: missing"},
		{Finding{Kind: Directory, Target: "/d", Problem: Type, Found: "file"}, "directory /d: is a file, wanted a directory"},
		{Finding{Kind: Directory, Target: "/d", Problem: Mode, Found: "0777", Wanted: "0755"}, "directory /d: mode 0777, wanted 0755"},
		{Finding{Kind: Directory, Target: "/d", Problem: Owner, Found: "nobody", Wanted: "root"}, "directory /d: owner nobody, wanted root"},
		{Finding{Kind: Directory, Target: "/d", Problem: Group, Found: "nogroup", Wanted: "root"}, "directory /d: group nogroup, wanted root"},

		{Finding{Kind: File, Target: "/etc/x.d/y", Problem: NotWanted}, "file /etc/x.d/y: exists, not wanted"},
		{Finding{Kind: File, Target: "/etc/x.crt", Problem: Detached}, "file /etc/x.crt: its authorities are not trusted by the programs of the machine"},
		{Finding{Kind: File, Target: "/f", Problem: Missing}, "file /f: missing"},
		{Finding{Kind: File, Target: "/f", Problem: Type, Found: "symbolic link"}, "file /f: is a symbolic link, wanted a regular file"},
		{Finding{Kind: File, Target: "/f", Problem: Content, Found: digestA, Wanted: digestB},
			"file /f: content differs (sha256 found 20126f2aae84.., wanted 1c73427791ae..)"},
		{Finding{Kind: File, Target: "/f", Problem: Unhashed, Wanted: digestB}, "file /f: content differs, wanted 1c73427791ae.."},
		{Finding{Kind: File, Target: "/f", Problem: SecretContent}, "file /f: differs"},
		{Finding{Kind: File, Target: "/f", Problem: NotWanted}, "file /f: exists, not wanted"},
		{Finding{Kind: File, Target: "/f", Problem: Mode, Found: "0644", Wanted: "0600"}, "file /f: mode 0644, wanted 0600"},
		{Finding{Kind: File, Target: "/f", Problem: Owner, Found: "nobody", Wanted: "root"}, "file /f: owner nobody, wanted root"},
		{Finding{Kind: File, Target: "/f", Problem: Group, Found: "nogroup", Wanted: "root"}, "file /f: group nogroup, wanted root"},

		{Finding{Kind: Binary, Target: "/b", Problem: Missing, Wanted: "etcd 3.6.16"}, "binary /b: missing, wanted etcd 3.6.16"},
		{Finding{Kind: Binary, Target: "/b", Problem: Type, Found: "directory", Wanted: "etcd 3.6.16"}, "binary /b: is a directory, wanted etcd 3.6.16"},
		{Finding{Kind: Binary, Target: "/b", Problem: Content, Found: digestA, Wanted: digestB},
			"binary /b: content differs (sha256 found 20126f2aae84.., wanted 1c73427791ae..)"},
		{Finding{Kind: Binary, Target: "/b", Problem: Unhashed, Wanted: digestB}, "binary /b: content could not be read, wanted 1c73427791ae.."},
		{Finding{Kind: Binary, Target: "/b", Problem: Unhashed, Wanted: "etcd 3.6.16"}, "binary /b: content could not be read, wanted etcd 3.6.16"},
		{Finding{Kind: Binary, Target: "/b", Problem: Version, Found: digestA, Wanted: "etcd 3.6.16"}, "binary /b: content 20126f2aae84.., wanted etcd 3.6.16"},
		{Finding{Kind: Binary, Target: "/b", Problem: Truncated, Found: "5", Wanted: "etcd 3.6.16", Size: "21"},
			"binary /b: truncated to 5 bytes, wanted etcd 3.6.16 (21 bytes)"},
		{Finding{Kind: Binary, Target: "/b", Problem: Mode, Found: "0777", Wanted: "0755"}, "binary /b: mode 0777, wanted 0755"},
		{Finding{Kind: Binary, Target: "/b", Problem: NotExecutable, Found: "0644", Wanted: "0755"}, "binary /b: not executable: mode 0644, wanted 0755"},
		{Finding{Kind: Binary, Target: "/b", Problem: Owner, Found: "nobody", Wanted: "root"}, "binary /b: owner nobody, wanted root"},
		{Finding{Kind: Binary, Target: "/b", Problem: Group, Found: "nogroup", Wanted: "root"}, "binary /b: group nogroup, wanted root"},

		{Finding{Kind: DropIn, Target: "/u.d/x.conf", Problem: Overridden, Found: "a.service"}, "drop-in /u.d/x.conf: not wanted, changes a.service"},
		{Finding{Kind: DropIn, Target: "/a.service", Problem: Replaced, Found: "a.service"}, "drop-in /a.service: not wanted, takes the place of a.service"},

		{Finding{Kind: Unit, Target: "a.service", Problem: Unknown, Wanted: EnabledAndRunning}, "unit a.service: unknown to systemd, wanted enabled and running"},
		{Finding{Kind: Unit, Target: "a.service", Problem: NotInstalled, Wanted: Running}, "unit a.service: not installed, wanted running"},
		{Finding{Kind: Unit, Target: "a.service", Problem: Unloadable, Found: "bad-setting", Wanted: Enabled},
			"unit a.service: cannot be loaded (bad-setting), wanted enabled"},
		{Finding{Kind: Unit, Target: "a.service", Problem: Enablement, Found: Masked, Wanted: Enabled}, "unit a.service: masked, wanted enabled"},
		{Finding{Kind: Unit, Target: "a.service", Problem: Enablement, Found: UntilReboot, Wanted: Enabled},
			"unit a.service: enabled until the next boot only, wanted enabled"},
		{Finding{Kind: Unit, Target: "a.service", Problem: Enablement, Found: Enabled, Wanted: Disabled}, "unit a.service: enabled, wanted disabled"},
		{Finding{Kind: Unit, Target: "a.service", Problem: Activity, Found: Stopped, Wanted: Running}, "unit a.service: stopped, wanted running"},
		{Finding{Kind: Unit, Target: "a.service", Problem: Activity, Found: Running, Wanted: Stopped}, "unit a.service: running, wanted stopped"},
		{Finding{Kind: Unit, Target: "a.service", Problem: Activity, Found: Starting, Wanted: Running}, "unit a.service: starting, wanted running"},
		{Finding{Kind: Unit, Target: "a.service", Problem: Activity, Found: Stopping, Wanted: Running}, "unit a.service: stopping, wanted running"},
		{Finding{Kind: Unit, Target: "a.service", Problem: Activity, Found: Failed, Wanted: Running, Cause: "oom-kill"}, "unit a.service: failed (oom-kill), wanted running"},
		{Finding{Kind: Unit, Target: "a.service", Problem: Activity, Found: CrashLooping, Wanted: Running, Cause: "exit-code"},
			"unit a.service: failing again and again (exit-code), wanted running"},
		{Finding{Kind: Unit, Target: "a.service", Problem: Activity, Found: AwaitingStart, Wanted: Running}, "unit a.service: waiting for its next start, wanted running"},
		{Finding{Kind: Unit, Target: "a.service", Problem: Activity, Found: FailedAtStart, Wanted: Running, Cause: "exit-code"},
			"unit a.service: failed right after its start (exit-code), wanted running"},
		{Finding{Kind: Unit, Target: "a.service", Problem: Stale},
			"unit a.service: systemd has not loaded its files as they are on disk (needs daemon-reload)"},
		{Finding{Kind: Unit, Target: "a.service", Problem: RestartPending}, "unit a.service: restart still due since an earlier change"},
		{Finding{Kind: File, Target: "/a", Problem: ReloadPending, Wanted: "a.service"}, "file /a: not loaded yet by a.service"},
		{Finding{Kind: Unit, Target: "a.service", Problem: ReloadPending}, "unit a.service: reload still due since an earlier change"},
		{Finding{Kind: Unit, Target: "a.service", Problem: CheckFailed, Cause: "/run/x points to /y"}, "unit a.service: /run/x points to /y"},
		{Finding{Kind: Unit, Target: "a.service", Problem: NotWanted, Found: Running}, "unit a.service: running, wanted none"},

		{Finding{Kind: Certificate, Target: "/c.crt", Problem: Missing}, "certificate /c.crt: missing"},
		{Finding{Kind: Certificate, Target: "/c.crt", Problem: NotWritten}, "certificate /c.crt: not the pair that was written"},
		{Finding{Kind: Certificate, Target: "/c.crt", Problem: WrongKey}, "certificate /c.crt: the key on the machine is not the certificate's"},
		{Finding{Kind: Certificate, Target: "/c.crt", Problem: CommonName, Found: "by-hand", Wanted: "kubelet"},
			`certificate /c.crt: common name is "by-hand", wanted "kubelet"`},
		{Finding{Kind: Certificate, Target: "/c.crt", Problem: Organizations, Found: "a\nb"},
			`certificate /c.crt: organizations are ["a" "b"], wanted []`},
		{Finding{Kind: Certificate, Target: "/c.crt", Problem: DNSNames, Wanted: "a"}, `certificate /c.crt: DNS names are [], wanted ["a"]`},
		{Finding{Kind: Certificate, Target: "/c.crt", Problem: Addresses, Wanted: "::1"}, `certificate /c.crt: addresses are [], wanted ["::1"]`},
		{Finding{Kind: Certificate, Target: "/c.crt", Problem: Usage, Wanted: "server"}, "certificate /c.crt: not usable as a server certificate"},
		{Finding{Kind: Certificate, Target: "/c.crt", Problem: Issuer, Found: "a-ca", Wanted: "b-ca"}, "certificate /c.crt: issued by a-ca, wanted b-ca"},
		{Finding{Kind: Certificate, Target: "/c.crt", Problem: Signature, Wanted: "b-ca"}, "certificate /c.crt: not issued by b-ca"},
		{Finding{Kind: Certificate, Target: "/c.crt", Problem: Expired, Found: "2026-01-02"}, "certificate /c.crt: expired on 2026-01-02"},
		{Finding{Kind: Certificate, Target: "/c.crt", Problem: NotYetValid, Found: "2026-01-02"}, "certificate /c.crt: not valid before 2026-01-02"},
		{Finding{Kind: Certificate, Target: "/c.crt", Problem: Due, Found: "2026-03-02", Since: "2026-01-02"},
			"certificate /c.crt: expires on 2026-03-02 and is due for renewal since 2026-01-02"},
		{Finding{Kind: Certificate, Target: "/c.crt", Problem: Unreadable, Cause: "no certificate"}, "certificate /c.crt: no certificate"},
		{Finding{Kind: Certificate, Target: "/c.crt", Problem: NoAuthority, Cause: "no certificate"}, "certificate /c.crt: authority: no certificate"},

		{Finding{Kind: Port, Target: "6443", Problem: Taken, Found: "socat", Process: "7", Unit: "other.service"},
			"port 6443 is taken by socat (process 7 of other.service): end it, then apply again"},
		{Finding{Kind: FileSystem, Target: "/var", Device: "/dev/xvdb", Problem: Full, Found: "0", Size: "1024"},
			"the file system on /var (/dev/xvdb) is full: 0 of 1024 KiB are free; make room, then apply again"},
		{Finding{Kind: Leftover, Target: "worker", Problem: NotWanted}, "units and files of the worker: still there, because the machine could not be reached when it left; wanted none"},
		{Finding{Kind: Duty, Problem: NotDrained, Cause: "no answer"}, "its pods were not drained: no answer"},
		{Finding{Kind: Duty, Problem: NotStarted, Cause: "no answer"}, "its units could not be started again: no answer"},
		{Finding{Kind: Duty, Problem: NotOpened, Cause: "no answer"}, "its node could not be opened to pods again: no answer"},

		{Finding{Kind: Member, Problem: Missing}, "etcd member: missing from the cluster, wanted a voter"},
		{Finding{Kind: Member, Target: "8e9e", Problem: Learner}, "etcd member 8e9e: a learner, wanted a voter"},
		{Finding{Kind: Member, Target: "8e9e", Problem: NotWanted}, "etcd member 8e9e: in the cluster, wanted none"},
		{Finding{Kind: MemberData, Target: "/var/lib/etcd/member", Problem: Missing},
			"etcd member: data in /var/lib/etcd/member missing, wanted a copy of the cluster's"},
		{Finding{Kind: Members, Problem: Unjudged, Cause: "no answer"}, "cannot list the members of etcd: no answer"},
		{Finding{Kind: Alarm, Target: "NOSPACE", Problem: Full, Found: "2 GiB", Wanted: "2 GiB", Size: "400 MiB"},
			"etcd alarm NOSPACE: 2 GiB of quota 2 GiB, 400 MiB hold data, and nothing more is stored"},
		{Finding{Kind: Alarm, Target: "CORRUPT", Problem: Diverged},
			"etcd alarm CORRUPT: the data of the members differ, every change is refused, and only a person can tell which are right"},
		{Finding{Kind: Alarm, Target: "SLOW", Problem: Unknown}, "etcd alarm SLOW: raised, and unknown to this provider"},
		{Finding{Kind: Database, Problem: Fragmented, Found: "1.9 GiB", Wanted: "2 GiB", Size: "1.5 GiB"},
			"etcd database: 1.9 GiB of quota 2 GiB, 1.5 GiB free inside, wants defragmentation"},
		{Finding{Kind: Database, Problem: Loose, Found: "1.9 GiB", Wanted: "2 GiB", Size: "1.5 GiB", Away: "b, c"},
			"etcd database: 1.9 GiB of quota 2 GiB, 1.5 GiB free inside: its defragmentation waits until b, c can be reached"},
		{Finding{Kind: Database, Problem: NearlyFull, Found: "1.8 GiB", Wanted: "2 GiB"},
			"etcd database: 1.8 GiB of quota 2 GiB hold data: delete objects that nobody needs, or raise quota_mib"},
		{Finding{Kind: Database, Problem: TooLarge, Found: "5 GiB", Wanted: "8 GiB", Device: "/var/lib/etcd"},
			"etcd database: its quota of 8 GiB does not fit, the file system of /var/lib/etcd has 5 GiB for it: enlarge the volume, or lower quota_mib"},
		{Finding{Kind: EtcdDisk, Problem: Slow, Found: "1.024s", Wanted: "512ms"},
			"disk of etcd: more than 1% of the writes took longer than 512ms since the member started (1.024s): requests wait, and the leadership may change under load"},
		{Finding{Kind: Snapshot, Target: "s3://a/b/", Problem: Missing}, "no snapshot of etcd"},
		{Finding{Kind: Snapshot, Target: "s3://a/b/", Problem: NotTaken, Cause: "S3 answers 403"}, "the last run of etcd-backup failed: S3 answers 403"},
		{Finding{Kind: Snapshot, Target: "20260102T030405Z-7", Problem: TooOld, Found: "3h0m0s", Wanted: "2h18m0s"},
			"snapshot 20260102T030405Z-7 is the newest, 3h0m0s old, wanted at most 2h18m0s"},
		{Finding{Kind: Snapshot, Target: "s3://a/b/", Problem: Unjudged, Cause: "S3 answers 503"},
			"which snapshots of etcd are in s3://a/b/ could not be found out: S3 answers 503"},
		{Finding{Kind: Secrets, Target: "1", Problem: Plain, Wanted: "b"}, "1 secret is not encrypted, wanted b"},
		{Finding{Kind: Secrets, Target: "3", Problem: UnknownKey, Wanted: "b"}, "3 secrets are encrypted with an unknown key, wanted b"},
		{Finding{Kind: Secrets, Target: "3", Problem: OldKey, Found: "a", Wanted: "b"}, "3 secrets are still encrypted with a, wanted b"},
		{Finding{Kind: Secrets, Target: "2", Problem: NewKey, Found: "c", Wanted: "b"}, "2 secrets are already encrypted with c, wanted b"},
		{Finding{Kind: Secrets, Problem: Unjudged, Cause: "no answer"}, "which keys the secrets are encrypted with could not be found out: no answer"},

		{Finding{Kind: Node, Problem: Missing}, "node: not registered with the API server"},
		{Finding{Kind: NodeState, Target: "a", Problem: Missing}, "a: not registered"},
		{Finding{Kind: NodeState, Target: "a", Problem: Addresses, Wanted: "10.0.0.1"}, `a: internal address is "", wanted 10.0.0.1`},
		{Finding{Kind: NodeState, Target: "a", Problem: Version, Found: "v1.35.8", Wanted: "v1.36.4"}, "a: kubelet reports v1.35.8, wanted v1.36.4"},
		{Finding{Kind: NodeState, Target: "a", Problem: NotReported}, "a: its kubelet has not reported since the machine started"},
		{Finding{Kind: NodeState, Target: "a", Problem: NotReady, Cause: "no network"}, "a: not ready: no network"},
		{Finding{Kind: NodeState, Problem: Unjudged, Cause: "no answer"}, "no answer"},
		{Finding{Kind: Label, Target: "pool", Problem: Missing, Wanted: "blue"}, `node label pool: missing, wanted "blue"`},
		{Finding{Kind: Label, Target: "pool", Problem: Value, Found: "", Wanted: "blue"}, `node label pool: found "", wanted "blue"`},
		{Finding{Kind: Label, Target: "pool", Problem: NotWanted, Found: "red"}, `node label pool: found "red", wanted none`},
		{Finding{Kind: Taint, Target: "gpu:NoSchedule", Problem: Missing, Wanted: ""}, `node taint gpu:NoSchedule: missing, wanted ""`},
		{Finding{Kind: Taint, Target: "gpu:NoSchedule", Problem: Value, Found: "a", Wanted: "b"}, `node taint gpu:NoSchedule: found "a", wanted "b"`},
		{Finding{Kind: Taint, Target: "gpu:NoSchedule", Problem: NotWanted, Found: "a"}, `node taint gpu:NoSchedule: found "a", wanted none`},
		{Finding{Kind: NodeField, Target: "spec.podCIDR", Problem: Missing, Wanted: "10.200.0.0/24"}, "node spec.podCIDR: missing, wanted 10.200.0.0/24"},
		{Finding{Kind: NodeField, Target: "spec.providerID", Problem: Replaced, Found: "aws:///a/i-1", Wanted: "aws:///a/i-0"},
			"node spec.providerID: found aws:///a/i-1, wanted aws:///a/i-0: an apply makes its Node object anew"},
		{Finding{Kind: NodeField, Target: "spec.podCIDR", Problem: Value, Found: "10.200.1.0/24", Wanted: "10.200.0.0/24"}, "node spec.podCIDR: found 10.200.1.0/24, wanted 10.200.0.0/24"},
		{Finding{Kind: Schedule, Problem: Cordoned}, "node schedulable: still cordoned, by a roll-out that did not finish"},
		{Finding{Kind: Nodes, Problem: Unjudged, Cause: "no answer"}, "the nodes could not be compared: no answer"},

		{Finding{Kind: Object, Problem: Missing}, "missing"},
		{Finding{Kind: Object, Problem: NotWanted}, "exists, not wanted any more"},
		{Finding{Kind: Object, Problem: Unbound, Target: "Namespace team-a"}, "waits for Namespace team-a, which does not exist: the first apply after somebody has made it makes this object"},
		{Finding{Kind: Object, Problem: Detached, Target: "ClusterRole veiw"}, "gives nothing while ClusterRole veiw does not exist"},
		{Finding{Kind: Object, Problem: Refused, Cause: "spec.selector: field is immutable"}, "spec.selector: field is immutable"},
		{Finding{Kind: Field, Target: "spec.replicas", Problem: Value, Found: "1", Wanted: "2"}, "spec.replicas: found 1, wanted 2"},
		{Finding{Kind: Object, Problem: Replaced, Target: "spec.selector"}, "spec.selector cannot be changed: an apply deletes the object and creates it again"},
		{Finding{Kind: Field, Target: "spec.replicas", Problem: Value, Found: "1", Wanted: "2", Manager: "kubectl"}, "spec.replicas: found 1 (set by kubectl), wanted 2"},
		{Finding{Kind: Field, Target: "spec.replicas", Problem: Taken, Found: "1", Wanted: "2", Manager: "other"}, `spec.replicas: found 1, wanted 2: conflict with "other", which applies this field too`},
		{Finding{Kind: Field, Target: "data.x", Problem: Value, Wanted: Hidden}, "data.x: found nothing, wanted a value (hidden)"},
		{Finding{Kind: Field, Target: "data.x", Problem: Value, Found: strings.Repeat("é", 61), Wanted: strings.Repeat("é", 60)},
			"data.x: found " + strings.Repeat("é", 60) + "..., wanted " + strings.Repeat("é", 60)},
		{Finding{Kind: Field, Target: "spec.containers", Problem: Order, Found: "a, b", Wanted: "b, a"}, "spec.containers: order is a, b, wanted b, a"},
		{Finding{Kind: SystemObjects, Problem: Unjudged, Cause: "no answer"}, "the system RBAC objects could not be compared: no answer"},
		{Finding{Kind: Addon, Target: "coredns", Problem: Unjudged, Cause: "no answer"}, "addon coredns could not be compared: no answer"},

		{Finding{Kind: VPC, Problem: Missing}, "missing"},
		{Finding{Kind: Subnet, Problem: Missing}, "missing"},
		{Finding{Kind: Subnet, Problem: NoPublicIP}, "machines get no public address by default, wanted one"},
		{Finding{Kind: Subnet, Problem: NotWanted}, "exists, not wanted any more"},
		{Finding{Kind: Subnet, Problem: PublicIP}, "machines get a public address by default, wanted none"},
		{Finding{Kind: NATGateway, Problem: Missing}, "missing"},
		{Finding{Kind: NATGateway, Problem: Missing, Cause: "nat-1 failed: Gateway.NotAttached"}, "missing (nat-1 failed: Gateway.NotAttached)"},
		{Finding{Kind: NATGateway, Problem: NotWanted}, "exists, not wanted any more"},
		{Finding{Kind: RouteTable, Problem: NotWanted}, "exists, not wanted any more"},
		{Finding{Kind: AdoptedSubnet, Problem: Missing, Wanted: "vpc-1"}, "missing in vpc-1"},
		{Finding{Kind: InternetGateway, Problem: Missing}, "missing"},
		{Finding{Kind: InternetGateway, Problem: Detached}, "not attached to the VPC"},
		{Finding{Kind: RouteTable, Problem: Missing}, "missing"},
		{Finding{Kind: RouteTable, Target: "node-0", Problem: Detached}, "not associated with subnet node-0"},
		{Finding{Kind: SecurityGroup, Problem: Missing}, "missing"},
		{Finding{Kind: SecurityGroup, Problem: NotWanted}, "exists, not wanted any more"},
		{Finding{Kind: InstanceConnect, Problem: Missing}, "missing"},
		{Finding{Kind: InstanceConnect, Problem: NotWanted}, "exists, not wanted any more"},
		{Finding{Kind: InstanceConnect, Problem: Value, Found: "create-failed", Wanted: "create-complete", Cause: "why"}, "found create-failed, wanted create-complete (why)"},
		{Finding{Kind: Instance, Problem: Value, Found: "stopped", Wanted: "running"}, "instance: found stopped, wanted running"},
		{Finding{Kind: InstanceType, Problem: Value, Found: "t3.large", Wanted: "t3.medium"}, "instance type: found t3.large, wanted t3.medium"},
		{Finding{Kind: PlacementGroup, Problem: Missing, Wanted: "spread"}, "placement group: missing, wanted spread"},
		{Finding{Kind: PlacementGroup, Problem: NotWanted, Found: "other"}, "placement group: found other, wanted none"},
		{Finding{Kind: PlacementGroup, Problem: Value, Found: "other", Wanted: "spread"}, "placement group: found other, wanted spread"},
		{Finding{Kind: CPUCredits, Problem: Value, Found: "unlimited", Wanted: "standard"}, "CPU credits: found unlimited, wanted standard"},
		{Finding{Kind: SourceDestCheck, Problem: Value, Found: "on", Wanted: "off"}, "source/destination check: found on, wanted off"},
		{Finding{Kind: SecurityGroups, Problem: Value, Found: "sg-1, sg-2", Wanted: "sg-1"}, "security groups: found sg-1, sg-2, wanted sg-1"},
		{Finding{Kind: InstanceProfile, Problem: Missing, Wanted: "node"}, "instance profile: missing, wanted node"},
		{Finding{Kind: InstanceProfile, Problem: NotWanted, Found: "admin"}, "instance profile: found admin, wanted none"},
		{Finding{Kind: InstanceProfile, Problem: Value, Found: "admin", Wanted: "node"}, "instance profile: found admin, wanted node"},
		{Finding{Kind: MetadataService, Problem: Tokens, Found: "optional", Wanted: "required"}, "metadata service: tokens are optional, wanted required"},
		{Finding{Kind: MetadataService, Problem: HopLimit, Found: "2", Wanted: "1"}, "metadata service: hop limit is 2, wanted 1"},
		{Finding{Kind: MetadataService, Problem: ShownTags, Found: "enabled", Wanted: "disabled"}, "metadata service: instance tags are enabled, wanted disabled"},
		{Finding{Kind: MetadataService, Problem: IPv6, Found: "enabled", Wanted: "disabled"}, "metadata service: IPv6 is enabled, wanted disabled"},
		{Finding{Kind: MetadataService, Problem: Endpoint, Found: "disabled", Wanted: "enabled"}, "metadata service: endpoint is disabled, wanted enabled"},
		{Finding{Kind: RootVolume, Problem: Value, Found: "8", Wanted: "20"}, "root volume: found 8 GiB, wanted 20 GiB"},
		{Finding{Kind: RootVolumeType, Problem: Value, Found: "gp2", Wanted: "gp3"}, "root volume type: found gp2, wanted gp3"},
		{Finding{Kind: RootVolumeIOPS, Problem: Value, Found: "3000", Wanted: "6000"}, "root volume IOPS: found 3000, wanted 6000"},
		{Finding{Kind: RootVolumeThroughput, Problem: Value, Found: "125", Wanted: "250"}, "root volume throughput: found 125 MiB/s, wanted 250 MiB/s"},
		{Finding{Kind: RootFileSystem, Problem: TooSmall}, "root file system: does not fill its volume yet"},
		{Finding{Kind: DataVolume, Target: "vol-1", Problem: Missing}, "data volume vol-1: does not exist any more"},
		{Finding{Kind: DataVolume, Target: "vol-1", Problem: Detached}, "data volume vol-1: not attached"},
		{Finding{Kind: DataVolume, Target: "vol-1", Problem: Value, Found: "i-2", Wanted: "i-1"}, "data volume vol-1: attached to i-2, wanted i-1"},
		{Finding{Kind: DataVolume, Target: "vol-1", Problem: Ephemeral}, "data volume vol-1: would be deleted when the instance ends"},
		{Finding{Kind: DataVolume, Target: "vol-1", Problem: Unbound, Found: "etcd.service"}, "data volume vol-1: etcd.service would start without it"},
		{Finding{Kind: DataFileSystem, Problem: TooSmall}, "file system of the data volume: does not fill its volume yet"},
		{Finding{Kind: DataFileSystem, Problem: Missing, Wanted: "a-b"},
			"file system of the data volume: missing, wanted a-b: an apply changes nothing there: find out what has happened to the data"},
		{Finding{Kind: DataFileSystem, Problem: Value, Found: "c-d", Wanted: "a-b"},
			"file system of the data volume: found c-d, wanted a-b: an apply changes nothing there: find out what has happened to the data"},
		{Finding{Kind: MountPoint, Target: "/var/lib/etcd", Problem: Missing, Wanted: "vol-1"}, "mount point /var/lib/etcd: the data volume is not mounted, wanted vol-1"},
		{Finding{Kind: MountPoint, Target: "/var/lib/etcd", Problem: Value, Found: "tmpfs", Wanted: "vol-1"}, "mount point /var/lib/etcd: has tmpfs, wanted vol-1"},
		{Finding{Kind: MountPoint, Target: "/mnt/x", Problem: Elsewhere, Wanted: "/var/lib/etcd"}, "mount point /mnt/x: has the data volume too, which belongs to /var/lib/etcd"},
		{Finding{Kind: RetiredImage, Target: "ami-1", Problem: NotWanted}, "image ami-1: was replaced while it was in use, and nothing uses it any more"},
		{Finding{Kind: VolumeSize, Problem: Value, Found: "8", Wanted: "20"}, "size: found 8 GiB, wanted 20 GiB"},
		{Finding{Kind: VolumeType, Problem: Value, Found: "gp2", Wanted: "gp3"}, "type: found gp2, wanted gp3"},
		{Finding{Kind: VolumeIOPS, Problem: Value, Found: "3000", Wanted: "6000"}, "IOPS: found 3000, wanted 6000"},
		{Finding{Kind: VolumeThroughput, Problem: Value, Found: "125", Wanted: "250"}, "throughput: found 125 MiB/s, wanted 250 MiB/s"},
		{Finding{Kind: Route, Target: "10.200.0.0/24 in rtb-1", Problem: Missing, Wanted: "eni-1"}, "route 10.200.0.0/24 in rtb-1: missing, wanted eni-1"},
		{Finding{Kind: Route, Target: "10.200.0.0/24 in rtb-1", Problem: Value, Found: "eni-2", Wanted: "eni-1"},
			"route 10.200.0.0/24 in rtb-1: found eni-2, wanted eni-1"},
		{Finding{Kind: Route, Target: "0.0.0.0/0", Problem: Value, Found: "igw-2", Wanted: "igw-1", Cause: "blackhole"},
			"route 0.0.0.0/0: found igw-2 (blackhole), wanted igw-1"},
		{Finding{Kind: Route, Target: "10.200.0.0/24 in rtb-1", Problem: NotWanted}, "route 10.200.0.0/24 in rtb-1: not wanted"},
		{Finding{Kind: Rule, Target: "tcp 22 from 0.0.0.0/0", Problem: Missing}, "rule tcp 22 from 0.0.0.0/0: missing"},
		{Finding{Kind: Rule, Target: "tcp 22 from 0.0.0.0/0", Problem: NotWanted}, "rule tcp 22 from 0.0.0.0/0: not wanted"},
		{Finding{Kind: Tag, Target: "Name", Problem: Missing, Wanted: "demo"}, `tag Name: missing, wanted "demo"`},
		{Finding{Kind: Tag, Target: "Name", Problem: Value, Found: "by-hand", Wanted: "demo"}, `tag Name: found "by-hand", wanted "demo"`},
		{Finding{Kind: Address, Target: "203.0.113.7", Problem: NotWanted}, "Elastic IP 203.0.113.7: not used, not wanted any more"},
		{Finding{Kind: Address, Target: "198.51.100.7", Problem: Detached, Wanted: "i-1"}, "Elastic IP 198.51.100.7: not associated, wanted i-1"},
		{Finding{Kind: Address, Target: "198.51.100.7", Problem: Value, Found: "i-2", Wanted: "i-1"}, "Elastic IP 198.51.100.7: associated with i-2, wanted i-1"},
		{Finding{Kind: Balancer, Problem: Missing}, "missing; an apply makes another, and the endpoint changes"},
		{Finding{Kind: TargetGroup, Problem: Missing}, "target group: missing"},
		{Finding{Kind: BalancerTarget, Target: "i-1", Problem: Missing}, "target i-1: not registered"},
		{Finding{Kind: BalancerTarget, Target: "i-1", Problem: NotWanted}, "target i-1: registered, not wanted"},
		{Finding{Kind: Listener, Target: "6443", Problem: Missing}, "listener on port 6443: missing"},
		{Finding{Kind: Listener, Target: "80", Problem: NotWanted}, "listener on port 80: not wanted"},
		{Finding{Kind: Listener, Target: "6443", Problem: Elsewhere}, "listener on port 6443: forwards to another target group"},
		{Finding{Kind: HealthCheck, Problem: Value, Found: "TCP", Wanted: "HTTPS /readyz"}, `health check: found "TCP", wanted "HTTPS /readyz"`},
		{Finding{Kind: BalancerSubnets, Problem: Value, Found: "subnet-1", Wanted: "subnet-1, subnet-2"}, "subnets: found subnet-1, wanted subnet-1, subnet-2"},
		{Finding{Kind: BalancerAttribute, Target: "a.b", Problem: Value, Found: "false", Wanted: "true"}, "attribute a.b: found false, wanted true"},
		{Finding{Kind: ReleasedAddress, Target: "198.51.100.7", Problem: Missing, Found: "eipalloc-1"},
			"198.51.100.7 (eipalloc-1): released; an apply allocates another, and the endpoint changes"},
		{Finding{Kind: Key, Target: "etcd-ca.crt", Problem: Missing}, "etcd-ca.crt: missing"},
		{Finding{Kind: Key, Target: "etcd-ca.crt", Problem: NotRecord}, "etcd-ca.crt: not the one on record"},
		{Finding{Kind: Key, Target: "etcd-ca-2.crt", Problem: Generation}, "etcd-ca-2.crt: of a generation that is not wanted"},
		{Finding{Kind: KeyCopy, Target: "k8s/a.age", Problem: Missing}, "copy k8s/a.age: missing"},
		{Finding{Kind: Audience, Target: "a", Problem: Missing}, "audience a: missing"},
		{Finding{Kind: Audience, Target: "a", Problem: NotWanted}, "audience a: accepted, not wanted"},
		{Finding{Kind: IssuerDocument, Target: "openid/v1/jwks", Problem: Missing}, "openid/v1/jwks: missing"},
		{Finding{Kind: IssuerDocument, Target: "openid/v1/jwks", Problem: Refused, Found: "403"}, "openid/v1/jwks: not there, or not shown to everybody (HTTP status 403)"},
		{Finding{Kind: IssuerDocument, Target: "openid/v1/jwks", Problem: Unreadable}, "openid/v1/jwks: is no JSON of this kind"},
		{Finding{Kind: IssuerDocument, Target: "issuer", Problem: Value, Found: "https://b", Wanted: "https://a"}, `issuer: found "https://b", wanted "https://a"`},
		{Finding{Kind: IssuerKey, Target: "k", Problem: Missing}, "token key k: not shown"},
		{Finding{Kind: IssuerKey, Target: "k", Problem: NotWanted}, "token key k: shown, and not a key of the cluster"},
		{Finding{Kind: KeyCopy, Target: "k8s/a.age", Problem: Content, Found: digestA, Wanted: digestB}, "copy k8s/a.age: content differs (sha256 found 20126f2aae84.., wanted 1c73427791ae..)"},
	} {
		if got := tt.f.String(); got != tt.want {
			t.Errorf("%q, wanted %q", got, tt.want)
		}
		told[tt.f.Kind] = append(told[tt.f.Kind], tt.f.Problem)
	}
	for kind, w := range vocabulary {
		for problem := range w.how {
			if !slices.Contains(told[kind], problem) {
				t.Errorf("no test has the words of %s: %s", kind, problem)
			}
		}
	}
}

// TestComplete checks that every kind has words and that every problem belongs to a kind.
func TestComplete(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "kind.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	problems := map[Problem]bool{}
	for _, w := range vocabulary {
		for p := range maps.Keys(w.how) {
			problems[p] = true
		}
	}
	seen := 0
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || spec.Type == nil {
			return true
		}
		value, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		if err != nil {
			t.Fatal(err)
		}
		seen++
		switch name := spec.Names[0].Name; spec.Type.(*ast.Ident).Name {
		case "Kind":
			if len(vocabulary[Kind(value)].how) == 0 {
				t.Errorf("%s has no words", name)
			}
		case "Problem":
			if !problems[Problem(value)] {
				t.Errorf("%s is no problem of any kind", name)
			}
		}
		return true
	})
	if seen < len(vocabulary) {
		t.Errorf("found %d constants for %d kinds", seen, len(vocabulary))
	}
}

// TestList checks that findings keep their order, and that several findings about one certificate,
// or about the metadata service, share one head.
func TestList(t *testing.T) {
	tokens := Finding{Subject: "b", Kind: MetadataService, Problem: Tokens, Found: "optional", Wanted: "required"}
	hops := Finding{Subject: "b", Kind: MetadataService, Problem: HopLimit, Found: "2", Wanted: "1"}
	name := Finding{Subject: "a", Kind: Certificate, Target: "/a.crt", Problem: CommonName, Found: "x", Wanted: "y"}
	expired := Finding{Subject: "a", Kind: Certificate, Target: "/a.crt", Problem: Expired, Found: "2026-01-02"}
	other := Finding{Subject: "a", Kind: Certificate, Target: "/b.crt", Problem: Expired, Found: "2026-01-02"}
	lost := Finding{Subject: "a", Kind: File, Target: "/f", Problem: Missing}
	mode := Finding{Subject: "a", Kind: File, Target: "/f", Problem: Mode, Found: "0644", Wanted: "0600"}
	edited := Finding{Subject: "a", Kind: File, Target: "/g", Problem: Content, Found: "1", Wanted: "2", Detail: "found:  x\u202e\nwanted: y"}
	got := BySubject([]Finding{tokens, lost, mode, edited, name, expired, other, hops})
	want := map[string]string{
		"a": "file /f: missing\nfile /f: mode 0644, wanted 0600\nfile /g: content differs\n  found:  x\\u202e\n  wanted: y\n" +
			`certificate /a.crt: common name is "x", wanted "y", expired on 2026-01-02` + "\ncertificate /b.crt: expired on 2026-01-02",
		"b": "metadata service: tokens are optional, wanted required, hop limit is 2, wanted 1",
	}
	if !maps.Equal(got, want) {
		t.Errorf("%q, wanted %q", got, want)
	}
	if got, want := Words([]Finding{edited, lost}), "file /g: content differs (sha256 found 1, wanted 2); file /f: missing"; got != want {
		t.Errorf("in one line: %q", got)
	}
	if got := Words(nil); got != "" {
		t.Errorf("nothing found: %q", got)
	}
	if all := About("c", []Finding{lost, mode}); all[0].Subject != "c" || all[1].Subject != "c" || lost.Subject != "a" {
		t.Errorf("about another: %+v", all)
	}
}

// TestValuesAreData checks that braces in values mean nothing, and that findings without words are
// shown.
func TestValuesAreData(t *testing.T) {
	for f, want := range map[Finding]string{
		{Kind: Sysctl, Target: "{found}", Problem: Value, Found: "{wanted}", Wanted: "{cause}", Cause: "x"}: "sysctl {found}: {wanted}, wanted {cause}",
		{Kind: Sysctl, Target: "a.b", Problem: Expired}:                                                     "sysctl a.b: expired",
		{Kind: "moon", Problem: Full}:                                                                       "moon: full",
	} {
		if got := f.String(); got != want {
			t.Errorf("%q, wanted %q", got, want)
		}
	}
}
