package main

import (
	"crypto/sha256"
	"fmt"
	"time"
)

// limit is how long a part may take.
const limit = 90 * time.Minute

// part is one run of `make soak PART=name`.
type part struct {
	name, shows string
	steps       []step
	// load keeps every processor busy while the part runs.
	load bool
	// reads are files and directories that matter to the part although no program that is built for it
	// executes them, and its tests do not open them: what other programs read.
	reads []string
	// chance says that each run of the part does different things. All functions of the packages
	// that it executes count, and not only those that the last run happened to execute.
	chance bool
	// table says that the guide has a table of the part's figures, under a heading with this anchor.
	table string
}

// tested returns the directories of the packages whose tests the part runs.
func (p part) tested() (dirs []string) {
	for _, s := range p.steps {
		dirs = append(dirs, s.dirs()...)
	}
	return dirs
}

// digest changes when the part runs something else.
func (p part) digest() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %t %q %t", p.steps, p.load, p.reads, p.chance))
	return short(sum[:])
}

// step is one run of `go test`.
type step struct {
	packages []string // below internal/e2e
	only     string   // -run of go test; empty runs all
	env      []string
}

// parts lists all parts. A line here adds a part; its figures are the lines "figures: ..." that its
// tests log.
var parts = []part{
	{name: "kills-1", shows: "fifty kills of provider and CLI: nothing is lost, the next apply converges", chance: true, steps: kills("50")},
	{name: "kills-2", shows: "fifty more, at other moments", chance: true, steps: kills("50")},
	{name: "kills-deeds", shows: "kills at every kind of deed on machines: the next apply converges", chance: true,
		steps: []step{{packages: []string{"interrupt"}, only: "^TestKilledAtDeeds$", env: []string{"K8S_INTERRUPT_DEEDS=1", "K8S_E2E_DEBIAN=13"}}}},
	{name: "kills-calls", shows: "kills at every call to AWS, two creates in every order: the next apply converges", chance: true, steps: []step{
		{packages: []string{"../provider"}, only: "^(TestKilledAtEveryCall|TestInTurns|TestPolicies)$", env: []string{"K8S_KILLS=all"}},
		{packages: []string{"awstest"}, only: "^TestKilled"},
	}},
	{name: "handovers", shows: "fifty hand-overs of etcd's leadership under traffic, and fifty by etcdctl for comparison",
		steps: []step{{packages: []string{"rolls"}, only: "TestRolls/^(install|etcd:_hand-overs)$", env: []string{"K8S_HANDOVERS=50"}}}},
	{name: "power", shows: "one machine stopped, a cluster paused and resumed, kills in between; fifty power cuts of a machine's disk at random moments of applies: the next apply converges",
		chance: true, steps: []step{
			{packages: []string{"expired"}, env: []string{"K8S_POWER=1"}},
			{packages: []string{"../../infra/host"}, only: "^TestPowerCut$", env: []string{"K8S_POWER_CUTS=50"}},
		}},
	fuzzed(1), fuzzed(2),
	{name: "rotation", shows: "the Kubernetes CA rotated by itself, and then all other keys; the part `clusters` rotates them together",
		steps: []step{{packages: []string{"rotation"}, env: []string{"K8S_ROTATION_APART=1"}}}},
	{name: "clusters", shows: "snapshots and restores; every authority and key rotated together under traffic; interrupted applies and installations; certificates that have expired, and a pause: what has a cluster of its own and no room in `make test`",
		steps: []step{{packages: []string{"rotation", "backup", "interrupt", "expired"}}}},
	{name: "changes", shows: "a cluster that changes while clients use it: etcd's release, rolls that fail and go on, settings, files, registries and encryption keys behind their gates, a reboot of every machine; sixteen common failures, and an apply that repairs each",
		steps: []step{{packages: []string{"rolls", "failures"}, env: []string{"K8S_E2E_LONG=1"}}}},
	{name: "replacements", shows: "an upgrade of Kubernetes under traffic, two subnets, a lost controller, workers that come, go and move; machines changed, replaced and imported under traffic, and etcd on data volumes",
		steps: []step{{packages: []string{"lifecycle", "instances"}}}},
	{name: "rollouts", shows: "all of the library's roll-outs without Terraform",
		steps: []step{{packages: []string{"rollouttest"}, env: []string{"K8S_ROLLOUTS=all"}}}},
	{name: "upgrades", shows: "Kubernetes 1.35 to 1.36 to 1.37, and etcd 3.6 to 3.7, under traffic", steps: []step{
		{packages: []string{"lifecycle"}, only: "TestLifecycle/^(install|two_subnets|upgrade_.*|destroy)$", env: []string{"K8S_UPGRADES=1.35.8,1.36.4,1.37.1"}},
		{packages: []string{"rolls"}, only: "TestRolls/^(install|etcd:_upgrade|destroy)$", env: []string{"K8S_ETCD_UPGRADE=3.6.16,3.7.3", "K8S_E2E_KUBERNETES=1.37.1"}},
		{packages: []string{"flags"}, env: []string{"K8S_FLAGS_OF=all"}}, // the programs of all these releases are in the cache now
	}},
	{name: "space", shows: "etcd full of data: the apply is refused, a larger quota rolls through members with an alarm; `make test` has the alarm that deleting repairs",
		steps: []step{{packages: []string{"drift"}, only: "TestDrift/^(quota_.*|fragmented_etcd|full_etcd|etcd_full_.*)$", env: []string{"K8S_ETCD_FULL=1"}}}},
	{name: "images", shows: "the main job on Debian 12 and on Debian 13", steps: []step{onDebian("12"), onDebian("13")}},
	{name: "variants", shows: "images that differ from Debian's as those of others do: a group admin, a larger volume, an sshd that forwards nothing, nothing is executed in /tmp, no ed25519, a first boot that is slow and reboots",
		reads: []string{"examples/ha-cluster"},
		steps: []step{{packages: []string{"variants"}, env: []string{"K8S_VARIANTS=1"}}}},
	{name: "release", shows: "the archives of a release, built, checked, and installed with Terraform and OpenTofu",
		reads: []string{"GNUmakefile", ".goreleaser.yml", "main.go", "scripts/lib.sh", "scripts/release.sh", "terraform-registry-manifest.json"},
		steps: []step{{packages: []string{"install"}, only: "^TestRelease$", env: []string{"K8S_RELEASE=1"}}}},
	{name: "drills", shows: "kill -9, a pause, a partition, a full disk, lost machines, rotation and upgrade, each under a recorder: acknowledged writes lost, and whether the history is linearizable",
		table: "the-drills",
		steps: []step{{packages: []string{"drills"}, env: []string{"K8S_DRILLS=1"}}}},
	{name: "topologies", shows: "the other examples: three availability zones, one of which is cut off; a private cluster, one without a bastion, and one behind a proxy; an endpoint that moves to load balancers of AWS and back under a recorder; controllers that are nodes; a newer image for every machine under a recorder; etcd that moves between machines of its own and the controllers under a recorder; Spot workers that EC2 reboots, recommends to replace and interrupts, and a Node that goes without an apply; load balancers of Services, and an Ingress controller behind one, whose pods end under requests, in a cluster that is paused and resumed; roles of AWS for pods of a running cluster, whose issuer changes under requests; a class of three students, of whom one has a cluster made anew, one begins a lesson once more, breaks their cluster and is locked out, and one works; a class in one VPC, of which a student leaves and comes back; Cilium in a new cluster and in one that moves to it under requests; machines without AWS, of Debian 12 and 13 with Kubernetes 1.35, with routes and a virtual address of their own; a cluster of such machines beside one on EC2 in one configuration",
		reads: []string{"examples/cilium", "examples/classroom", "examples/ingress"}, table: "the-topologies",
		steps: []step{{packages: []string{"topologies"}, env: []string{"K8S_TOPOLOGIES=1"}}}},
	{name: "class", shows: "how many clusters of a class fit on this computer, with nothing else on it: students join until half of its processors or its memory is taken",
		reads: []string{"examples/classroom"},
		steps: []step{fits("one"), fits("standard")}},
	{name: "exercises", shows: "every script of every page of examples/labs, also those that take minutes: a token that expires, a scheduler and a machine that are lost, a node that stops answering, autoscaling, leases and profiles that change, failures that plan and apply find and repair",
		reads: []string{"examples/labs"},
		steps: []step{{packages: []string{"exercises"}, env: []string{"K8S_E2E_LONG=1"}}}},
	{name: "vm", shows: "virtual machines of Debian 12 and 13, and a cluster of three, without the settings that containers need: a pod, a reboot of every machine, a disk of etcd that is slowed by cgroup v2, a root volume that grows, a clock that jumps",
		steps: []step{
			{packages: []string{"../lab/machine"}, only: "^TestVirtualMachine$", env: []string{"K8S_VM=1"}},
			{packages: []string{"virtual"}, env: []string{"K8S_VM=1"}},
		}},
	{name: "nested", shows: "the main job in a local EC2 of containers inside a virtual machine: cgroup v2, a firewall that drops what comes in, addresses in use, and nothing left",
		reads: []string{"examples/ha-cluster", "scripts/deps.sh"},
		steps: []step{{packages: []string{"nested"}, env: []string{"K8S_NESTED=1"}}}},
	{name: "load-1", shows: "half of the end-to-end tests with every processor busy, and with steps for which make test has no room", load: true,
		steps: []step{{packages: []string{"rolls", "interrupt", "drift", "failures", "expired", "backup", "hostengine", "etcdtest", "harness"}, env: []string{"K8S_E2E_LONG=1", "K8S_E2E_DEBIAN=13"}}}},
	{name: "load-2", shows: "the other half", load: true,
		reads: []string{"GNUmakefile", "scripts/install.sh", "scripts/lib.sh"},
		steps: []step{{packages: []string{"rotation", "lifecycle", "instances", "rollouttest", "cluster", "flags", "kubetest", "addontest", "awstest", "install", "awssmoke", "clients"}, env: []string{"K8S_E2E_LONG=1", "K8S_E2E_DEBIAN=13", "K8S_CLIENT_ROUNDS=2"}}}},
}

func kills(n string) []step {
	return []step{{packages: []string{"interrupt"}, only: "^TestKilled$", env: []string{"K8S_INTERRUPT_COUNT=" + n, "K8S_E2E_DEBIAN=13"}}}
}

// fits has clusters of a size of examples/classroom.
func fits(size string) step {
	return step{packages: []string{"topologies"}, only: "^TestClassFits$", env: []string{"K8S_CLASS_FITS=" + size}}
}

// fuzzed runs half of the fuzz targets, two at a time and each for ten minutes.
func fuzzed(n int) part {
	return part{name: fmt.Sprintf("fuzz-%d", n), shows: "half of the fuzz targets, each for ten minutes on one processor: readers of what machines, AWS, etcd, API servers and journals say",
		chance: true, reads: []string{"infra"},
		steps: []step{{packages: []string{"../fuzz"}, only: "^TestFuzz$", env: []string{fmt.Sprintf("K8S_FUZZ_PART=%d", n), "K8S_FUZZ_TIME=10m"}}}}
}

func onDebian(release string) step {
	return step{packages: []string{"cluster", "hostengine"}, only: "^(TestCluster|TestEngine)$", env: []string{"K8S_E2E_DEBIAN=" + release}}
}
