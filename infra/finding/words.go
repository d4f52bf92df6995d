package finding

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/foreign"
)

// words are the text of findings of one kind: a head, a colon, and how it differs.
type words struct {
	// head is empty if the subject or the problem's own words are enough.
	head string
	how  map[Problem]string
	// joined is set if several findings of one target share one head.
	joined bool
}

// vocabulary has the words of every kind and problem. Fields of the finding are in braces:
// {found:q} is quoted, {found:digest} is shortened, and "{ (cause)}" is the cause in parentheses if
// there is one.
var vocabulary = map[Kind]words{
	Package: {head: "package {target}", how: map[Problem]string{
		Missing: "not installed",
	}},
	Module: {head: "kernel module {target}", how: map[Problem]string{
		Missing: "not loaded",
	}},
	Sysctl: {head: "sysctl {target}", how: map[Problem]string{
		Missing: "unknown to the kernel, wanted {wanted}",
		Value:   "{found}, wanted {wanted}",
	}},
	Directory: {head: "directory {target}", how: map[Problem]string{
		Missing: "missing",
		Type:    "is a {found}, wanted a directory",
		Mode:    "mode {found}, wanted {wanted}",
		Owner:   "owner {found}, wanted {wanted}",
		Group:   "group {found}, wanted {wanted}",
	}},
	File: {head: "file {target}", how: map[Problem]string{
		Missing:       "missing",
		Type:          "is a {found}, wanted a regular file",
		Content:       "content differs (sha256 found {found:digest}, wanted {wanted:digest})",
		Unhashed:      "content differs, wanted {wanted:digest}",
		SecretContent: "differs",
		ReloadPending: "not loaded yet by {wanted}",
		Detached:      "its authorities are not trusted by the programs of the machine",
		NotWanted:     "exists, not wanted",
		Mode:          "mode {found}, wanted {wanted}",
		Owner:         "owner {found}, wanted {wanted}",
		Group:         "group {found}, wanted {wanted}",
	}},
	Binary: {head: "binary {target}", how: map[Problem]string{
		Missing:       "missing, wanted {wanted}",
		Type:          "is a {found}, wanted {wanted}",
		Content:       "content differs (sha256 found {found:digest}, wanted {wanted:digest})",
		Unhashed:      "content could not be read, wanted {wanted:digest}",
		Version:       "content {found:digest}, wanted {wanted}",
		Truncated:     "truncated to {found} bytes, wanted {wanted} ({size} bytes)",
		Mode:          "mode {found}, wanted {wanted}",
		NotExecutable: "not executable: mode {found}, wanted {wanted}",
		Owner:         "owner {found}, wanted {wanted}",
		Group:         "group {found}, wanted {wanted}",
	}},
	DropIn: {head: "drop-in {target}", how: map[Problem]string{
		Overridden: "not wanted, changes {found}",
		Replaced:   "not wanted, takes the place of {found}",
	}},
	Unit: {head: "unit {target}", how: map[Problem]string{
		Unknown:        "unknown to systemd, wanted {wanted:state}",
		NotInstalled:   "not installed, wanted {wanted:state}",
		Unloadable:     "cannot be loaded ({found}), wanted {wanted:state}",
		Enablement:     "{found:state}, wanted {wanted:state}",
		Activity:       "{found:state}{ (cause)}, wanted {wanted:state}",
		Stale:          "systemd has not loaded its files as they are on disk (needs daemon-reload)",
		RestartPending: "restart still due since an earlier change",
		ReloadPending:  "reload still due since an earlier change",
		CheckFailed:    "{cause}",
		NotWanted:      "{found:state}, wanted none",
	}},
	Certificate: {head: "certificate {target}", joined: true, how: map[Problem]string{
		Missing:       "missing",
		NotWritten:    "not the pair that was written",
		WrongKey:      "the key on the machine is not the certificate's",
		CommonName:    "common name is {found:q}, wanted {wanted:q}",
		Organizations: "organizations are {found:list}, wanted {wanted:list}",
		DNSNames:      "DNS names are {found:list}, wanted {wanted:list}",
		Addresses:     "addresses are {found:list}, wanted {wanted:list}",
		Usage:         "not usable as a {wanted} certificate",
		Issuer:        "issued by {found}, wanted {wanted}",
		Signature:     "not issued by {wanted}",
		Expired:       "expired on {found}",
		NotYetValid:   "not valid before {found}",
		Due:           "expires on {found} and is due for renewal since {since}",
		Unreadable:    "{cause}",
		NoAuthority:   "authority: {cause}",
	}},
	Port: {how: map[Problem]string{
		Taken: "port {target} is taken by {found} (process {process} of {unit}): end it, then apply again",
	}},
	FileSystem: {how: map[Problem]string{
		Full: "the file system on {target} ({device}) is full: {found} of {size} KiB are free; make room, then apply again",
	}},
	Leftover: {head: "units and files of the {target}", how: map[Problem]string{
		NotWanted: "still there, because the machine could not be reached when it left; wanted none",
	}},
	Duty: {how: map[Problem]string{
		NotDrained: "its pods were not drained: {cause}",
		NotStarted: "its units could not be started again: {cause}",
		NotOpened:  "its node could not be opened to pods again: {cause}",
	}},

	Member: {head: "etcd member {target}", how: map[Problem]string{
		Missing:   "missing from the cluster, wanted a voter",
		Learner:   "a learner, wanted a voter",
		NotWanted: "in the cluster, wanted none",
	}},
	MemberData: {head: "etcd member", how: map[Problem]string{
		Missing: "data in {target} missing, wanted a copy of the cluster's",
	}},
	Members: {how: map[Problem]string{
		Unjudged: "cannot list the members of etcd: {cause}",
	}},
	Alarm: {head: "etcd alarm {target}", how: map[Problem]string{
		Full:     "{found} of quota {wanted}, {size} hold data, and nothing more is stored",
		Diverged: "the data of the members differ, every change is refused, and only a person can tell which are right",
		Unknown:  "raised, and unknown to this provider",
	}},
	Database: {head: "etcd database", how: map[Problem]string{
		Fragmented: "{found} of quota {wanted}, {size} free inside, wants defragmentation",
		Loose:      "{found} of quota {wanted}, {size} free inside: its defragmentation waits until {away} can be reached",
		NearlyFull: "{found} of quota {wanted} hold data: delete objects that nobody needs, or raise quota_mib",
		TooLarge:   "its quota of {wanted} does not fit, the file system of {device} has {found} for it: enlarge the volume, or lower quota_mib",
	}},
	EtcdDisk: {head: "disk of etcd", how: map[Problem]string{
		Slow: "more than 1% of the writes took longer than {wanted} since the member started ({found}): requests wait, and the leadership may change under load",
	}},
	Snapshot: {how: map[Problem]string{
		Missing:  "no snapshot of etcd",
		NotTaken: "the last run of etcd-backup failed: {cause}",
		TooOld:   "snapshot {target} is the newest, {found} old, wanted at most {wanted}",
		Unjudged: "which snapshots of etcd are in {target} could not be found out: {cause}",
	}},
	Secrets: {how: map[Problem]string{
		Plain:      "{secrets} not encrypted, wanted {wanted}",
		UnknownKey: "{secrets} encrypted with an unknown key, wanted {wanted}",
		OldKey:     "{secrets} still encrypted with {found}, wanted {wanted}",
		NewKey:     "{secrets} already encrypted with {found}, wanted {wanted}",
		Unjudged:   "which keys the secrets are encrypted with could not be found out: {cause}",
	}},
	Node: {head: "node", how: map[Problem]string{
		Missing: "not registered with the API server",
	}},
	NodeState: {head: "{target}", how: map[Problem]string{
		Missing:     "not registered",
		Addresses:   "internal address is {found:q}, wanted {wanted}",
		Version:     "kubelet reports {found}, wanted {wanted}",
		NotReported: "its kubelet has not reported since the machine started",
		NotReady:    "not ready: {cause}",
		Unjudged:    "{cause}",
	}},
	Label: {head: "node label {target}", how: map[Problem]string{
		Missing:   "missing, wanted {wanted:q}",
		Value:     "found {found:q}, wanted {wanted:q}",
		NotWanted: "found {found:q}, wanted none",
	}},
	Taint: {head: "node taint {target}", how: map[Problem]string{
		Missing:   "missing, wanted {wanted:q}",
		Value:     "found {found:q}, wanted {wanted:q}",
		NotWanted: "found {found:q}, wanted none",
	}},
	NodeField: {head: "node {target}", how: map[Problem]string{
		Missing:  "missing, wanted {wanted}",
		Value:    "found {found}, wanted {wanted}",
		Replaced: "found {found}, wanted {wanted}: an apply makes its Node object anew",
	}},
	Schedule: {head: "node schedulable", how: map[Problem]string{
		Cordoned: "still cordoned, by a roll-out that did not finish",
	}},
	Nodes: {how: map[Problem]string{
		Unjudged: "the nodes could not be compared: {cause}",
	}},
	Object: {how: map[Problem]string{
		Missing:   "missing",
		NotWanted: "exists, not wanted any more",
		Unbound:   "waits for {target}, which does not exist: the first apply after somebody has made it makes this object",
		Detached:  "gives nothing while {target} does not exist",
		Refused:   "{cause}",
		Replaced:  "{target} cannot be changed: an apply deletes the object and creates it again",
	}},
	Field: {head: "{target}", how: map[Problem]string{
		Value: "found {found:field}{ (set by manager)}, wanted {wanted:field}",
		Taken: "found {found:field}, wanted {wanted:field}: conflict with {manager:q}, which applies this field too",
		Order: "order is {found}, wanted {wanted}",
	}},
	SystemObjects: {how: map[Problem]string{
		Unjudged: "the system RBAC objects could not be compared: {cause}",
	}},
	Addon: {how: map[Problem]string{
		Unjudged: "addon {target} could not be compared: {cause}",
	}},

	VPC: {how: map[Problem]string{
		Missing: "missing",
	}},
	Subnet: {how: map[Problem]string{
		Missing:    "missing",
		NotWanted:  "exists, not wanted any more",
		NoPublicIP: "machines get no public address by default, wanted one",
		PublicIP:   "machines get a public address by default, wanted none",
	}},
	AdoptedSubnet: {how: map[Problem]string{
		Missing: "missing in {wanted}",
	}},
	InternetGateway: {how: map[Problem]string{
		Missing:  "missing",
		Detached: "not attached to the VPC",
	}},
	NATGateway: {how: map[Problem]string{
		Missing:   "missing{ (cause)}",
		NotWanted: "exists, not wanted any more",
	}},
	InstanceConnect: {how: map[Problem]string{
		Missing:   "missing",
		NotWanted: "exists, not wanted any more",
		Value:     "found {found}, wanted {wanted}{ (cause)}",
	}},
	RouteTable: {how: map[Problem]string{
		Missing:   "missing",
		NotWanted: "exists, not wanted any more",
		Detached:  "not associated with subnet {target}",
	}},
	SecurityGroup: {how: map[Problem]string{
		Missing:   "missing",
		NotWanted: "exists, not wanted any more",
	}},
	Instance: {head: "instance", how: map[Problem]string{
		Value: "found {found}, wanted {wanted}",
	}},
	InstanceType: {head: "instance type", how: map[Problem]string{
		Value: "found {found}, wanted {wanted}",
	}},
	PlacementGroup: {head: "placement group", how: map[Problem]string{
		Missing:   "missing, wanted {wanted}",
		NotWanted: "found {found}, wanted none",
		Value:     "found {found}, wanted {wanted}",
	}},
	CPUCredits: {head: "CPU credits", how: map[Problem]string{
		Value: "found {found}, wanted {wanted}",
	}},
	SourceDestCheck: {head: "source/destination check", how: map[Problem]string{
		Value: "found {found}, wanted {wanted}",
	}},
	SecurityGroups: {head: "security groups", how: map[Problem]string{
		Value: "found {found}, wanted {wanted}",
	}},
	InstanceProfile: {head: "instance profile", how: map[Problem]string{
		Missing:   "missing, wanted {wanted}",
		NotWanted: "found {found}, wanted none",
		Value:     "found {found}, wanted {wanted}",
	}},
	MetadataService: {head: "metadata service", joined: true, how: map[Problem]string{
		Tokens:    "tokens are {found}, wanted {wanted}",
		HopLimit:  "hop limit is {found}, wanted {wanted}",
		Endpoint:  "endpoint is {found}, wanted {wanted}",
		ShownTags: "instance tags are {found}, wanted {wanted}",
		IPv6:      "IPv6 is {found}, wanted {wanted}",
	}},
	RootVolume: {head: "root volume", how: map[Problem]string{
		Value: "found {found} GiB, wanted {wanted} GiB",
	}},
	RootVolumeType: {head: "root volume type", how: map[Problem]string{
		Value: "found {found}, wanted {wanted}",
	}},
	RootVolumeIOPS: {head: "root volume IOPS", how: map[Problem]string{
		Value: "found {found}, wanted {wanted}",
	}},
	RootVolumeThroughput: {head: "root volume throughput", how: map[Problem]string{
		Value: "found {found} MiB/s, wanted {wanted} MiB/s",
	}},
	RootFileSystem: {head: "root file system", how: map[Problem]string{
		TooSmall: "does not fill its volume yet",
	}},
	DataVolume: {head: "data volume {target}", how: map[Problem]string{
		Missing:   "does not exist any more",
		Detached:  "not attached",
		Value:     "attached to {found}, wanted {wanted}",
		Ephemeral: "would be deleted when the instance ends",
		Unbound:   "{found} would start without it",
	}},
	DataFileSystem: {head: "file system of the data volume", how: map[Problem]string{
		TooSmall: "does not fill its volume yet",
		Missing:  "missing, wanted {wanted}: an apply changes nothing there: find out what has happened to the data",
		Value:    "found {found}, wanted {wanted}: an apply changes nothing there: find out what has happened to the data",
	}},
	MountPoint: {head: "mount point {target}", how: map[Problem]string{
		Missing:   "the data volume is not mounted, wanted {wanted}",
		Value:     "has {found}, wanted {wanted}",
		Elsewhere: "has the data volume too, which belongs to {wanted}",
	}},
	RetiredImage: {head: "image {target}", how: map[Problem]string{
		NotWanted: "was replaced while it was in use, and nothing uses it any more",
	}},
	VolumeSize: {head: "size", how: map[Problem]string{
		Value: "found {found} GiB, wanted {wanted} GiB",
	}},
	VolumeType: {head: "type", how: map[Problem]string{
		Value: "found {found}, wanted {wanted}",
	}},
	VolumeIOPS: {head: "IOPS", how: map[Problem]string{
		Value: "found {found}, wanted {wanted}",
	}},
	VolumeThroughput: {head: "throughput", how: map[Problem]string{
		Value: "found {found} MiB/s, wanted {wanted} MiB/s",
	}},
	Route: {head: "route {target}", how: map[Problem]string{
		Missing:   "missing, wanted {wanted}",
		Value:     "found {found}{ (cause)}, wanted {wanted}",
		NotWanted: "not wanted",
	}},
	Rule: {head: "rule {target}", how: map[Problem]string{
		Missing:   "missing",
		NotWanted: "not wanted",
	}},
	Tag: {head: "tag {target}", how: map[Problem]string{
		Missing: "missing, wanted {wanted:q}",
		Value:   "found {found:q}, wanted {wanted:q}",
	}},
	Address: {head: "Elastic IP {target}", how: map[Problem]string{
		Detached:  "not associated, wanted {wanted}",
		Value:     "associated with {found}, wanted {wanted}",
		NotWanted: "not used, not wanted any more",
	}},
	ReleasedAddress: {head: "{target} ({found})", how: map[Problem]string{
		Missing: "released; an apply allocates another, and the endpoint changes",
	}},
	Balancer: {how: map[Problem]string{
		Missing: "missing; an apply makes another, and the endpoint changes",
	}},
	TargetGroup: {head: "target group", how: map[Problem]string{
		Missing: "missing",
	}},
	BalancerTarget: {head: "target {target}", how: map[Problem]string{
		Missing:   "not registered",
		NotWanted: "registered, not wanted",
	}},
	Listener: {head: "listener on port {target}", how: map[Problem]string{
		Missing:   "missing",
		NotWanted: "not wanted",
		Elsewhere: "forwards to another target group",
	}},
	HealthCheck: {head: "health check", how: map[Problem]string{
		Value: "found {found:q}, wanted {wanted:q}",
	}},
	BalancerSubnets: {head: "subnets", how: map[Problem]string{
		Value: "found {found}, wanted {wanted}",
	}},
	BalancerAttribute: {head: "attribute {target}", how: map[Problem]string{
		Value: "found {found}, wanted {wanted}",
	}},
	Key: {head: "{target}", how: map[Problem]string{
		Missing:    "missing",
		NotRecord:  "not the one on record",
		Generation: "of a generation that is not wanted",
	}},
	KeyCopy: {head: "copy {target}", how: map[Problem]string{
		Missing: "missing",
		Content: "content differs (sha256 found {found:digest}, wanted {wanted:digest})",
	}},
	Audience: {head: "audience {target}", how: map[Problem]string{
		Missing:   "missing",
		NotWanted: "accepted, not wanted",
	}},
	IssuerDocument: {head: "{target}", how: map[Problem]string{
		Missing:    "missing",
		Refused:    "not there, or not shown to everybody (HTTP status {found})",
		Unreadable: "is no JSON of this kind",
		Value:      "found {found:q}, wanted {wanted:q}",
	}},
	IssuerKey: {head: "token key {target}", how: map[Problem]string{
		Missing:   "not shown",
		NotWanted: "shown, and not a key of the cluster",
	}},
}

// fieldLimit is how many characters of a field's value are shown.
const fieldLimit = 60

// String returns the finding's words, without its subject.
func (f Finding) String() string { return Words([]Finding{f}) }

// Words joins the findings of one subject into one line for people.
func Words(findings []Finding) string { return text(findings, "; ", false) }

// text joins the findings of one subject, with details or without.
func text(findings []Finding, separator string, detailed bool) string {
	var b strings.Builder
	for i, f := range findings {
		head, rest := f.parts()
		switch {
		case i > 0 && vocabulary[f.Kind].joined && f.Kind == findings[i-1].Kind && f.Target == findings[i-1].Target:
			b.WriteString(", " + rest)
			continue
		case i > 0:
			b.WriteString(separator)
		}
		if head != "" {
			b.WriteString(head + ": ")
		}
		if !detailed || f.Detail == "" {
			b.WriteString(rest)
			continue
		}
		b.WriteString(detailedWords + "\n  " + strings.ReplaceAll(foreign.Text(f.Detail), "\n", "\n  "))
	}
	return b.String()
}

// detailedWords are those of a finding whose details say how it differs.
const detailedWords = "content differs"

// parts returns the head and how the finding differs. A kind or problem without words is shown as
// its code. What a finding quotes was said by machines, pods or AWS.
func (f Finding) parts() (head, rest string) {
	for _, quoted := range []*string{&f.Target, &f.Found, &f.Wanted, &f.Process, &f.Unit, &f.Size, &f.Device, &f.Since, &f.Away, &f.Cause} {
		*quoted = foreign.Text(*quoted)
	}
	w := vocabulary[f.Kind]
	how, known := w.how[f.Problem]
	if !known {
		return strings.TrimSpace(string(f.Kind) + " " + f.Target), string(f.Problem)
	}
	fill := strings.NewReplacer(
		"{target}", f.Target, "{cause}", f.Cause, "{ (cause)}", parenthesized("", f.Cause), "{secrets}", secrets(f.Target),
		"{found}", f.Found, "{found:q}", strconv.Quote(f.Found), "{found:digest}", digest(f.Found), "{found:field}", field(f.Found),
		"{found:list}", list(f.Found), "{found:state}", state(f.Found),
		"{wanted}", f.Wanted, "{wanted:q}", strconv.Quote(f.Wanted), "{wanted:digest}", digest(f.Wanted), "{wanted:field}", field(f.Wanted),
		"{wanted:list}", list(f.Wanted), "{wanted:state}", state(f.Wanted),
		"{process}", f.Process, "{unit}", f.Unit, "{size}", f.Size, "{device}", f.Device, "{since}", f.Since, "{away}", f.Away,
		"{manager:q}", strconv.Quote(f.Manager), "{ (set by manager)}", parenthesized("set by ", f.Manager),
	)
	return strings.TrimSpace(fill.Replace(w.head)), fill.Replace(how)
}

func parenthesized(intro, s string) string {
	if s == "" {
		return ""
	}
	return " (" + intro + s + ")"
}

// digest abbreviates a SHA-256 digest.
func digest(s string) string {
	if len(s) != 64 {
		return s
	}
	return s[:12] + ".."
}

// field shortens the value of a field; an empty one becomes "nothing".
func field(s string) string {
	switch s {
	case "":
		return "nothing"
	case Hidden:
		return "a value (hidden)"
	}
	if r := []rune(s); len(r) > fieldLimit {
		return string(r[:fieldLimit]) + "..."
	}
	return s
}

// stateWords are the words of what a unit does where its code does not say it.
var stateWords = map[string]string{
	FailedAtStart:     "failed right after its start",
	CrashLooping:      "failing again and again",
	AwaitingStart:     "waiting for its next start",
	UntilReboot:       "enabled until the next boot only",
	EnabledAndRunning: "enabled and running",
}

func state(s string) string { return cmp.Or(stateWords[s], s) }

// list quotes names that are joined with line breaks.
func list(s string) string {
	if s == "" {
		return "[]"
	}
	return fmt.Sprintf("%q", strings.Split(s, "\n"))
}

// secrets returns the number of secrets with the noun.
func secrets(n string) string {
	if n == "1" {
		return "1 secret is"
	}
	return n + " secrets are"
}
