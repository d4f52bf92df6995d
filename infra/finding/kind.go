package finding

// Kind is what a finding is about.
type Kind string

// What is on a machine.
const (
	Package   Kind = "package"
	Module    Kind = "kernel module"
	Sysctl    Kind = "sysctl"
	Directory Kind = "directory"
	File      Kind = "file"
	Binary    Kind = "binary"  // an installed program
	DropIn    Kind = "drop-in" // a file that changes one of our units and is not ours
	Unit      Kind = "unit"
	// Certificate is about what a certificate says, by its path. That its file
	// differs is about the File.
	Certificate Kind = "certificate"
	// Port and FileSystem are what a machine tells about the cause of a failure.
	Port       Kind = "port"        // by number
	FileSystem Kind = "file system" // by mount point and device
	// Duty is what a machine does for its cluster and could not be made to.
	Duty Kind = "duty"
)

// What is in a cluster.
const (
	Member     Kind = "etcd member"      // by ID, once it has one
	MemberData Kind = "etcd member data" // by directory
	Secrets    Kind = "secrets"          // how many, in etcd, as they are encrypted
	Node       Kind = "node"
	Label      Kind = "node label"
	Taint      Kind = "node taint" // "key:effect"
	PodCIDR    Kind = "node pod CIDR"
	Schedule   Kind = "node schedule" // whether pods may come to the node
	Object     Kind = "object"        // the subject itself
	Field      Kind = "field"         // of the subject, by its path
	NodeState  Kind = "node state"    // what is waited for of a node, by its name
	// What is compared as a whole, where it could not be.
	SystemObjects Kind = "system objects"
	Members       Kind = "etcd members"
	Nodes         Kind = "nodes"
	Addon         Kind = "addon" // by name
)

// What is in AWS. The first ones are the subject itself.
const (
	VPC             Kind = "vpc"
	Subnet          Kind = "subnet"
	AdoptedSubnet   Kind = "adopted subnet"
	InternetGateway Kind = "internet gateway"
	RouteTable      Kind = "route table"
	SecurityGroup   Kind = "security group"
	Instance        Kind = "instance"
	InstanceType    Kind = "instance type"
	SourceDestCheck Kind = "source/destination check"
	SecurityGroups  Kind = "security groups" // of a machine
	MetadataService Kind = "metadata service"
	RootVolume      Kind = "root volume"
	RootFileSystem  Kind = "root file system"
	Route           Kind = "route" // by destination, with the table where there are several
	Rule            Kind = "rule"  // of a security group, as a person would write it
	Tag             Kind = "tag"
	Address         Kind = "Elastic IP"
	ReleasedAddress Kind = "released Elastic IP" // found is its allocation
	Key             Kind = "key"                 // in the key store, by name
)

// Problem is how something differs.
type Problem string

// Problems that things of many kinds have.
const (
	Missing   Problem = "missing"
	NotWanted Problem = "not wanted"
	// Value is that one value was found and another is wanted.
	Value Problem = "value"
	// Detached is that it exists and is not connected with what it is for.
	Detached Problem = "detached"
	// Refused is that it cannot be made what is wanted; the cause says why.
	Refused Problem = "refused"
	// Unjudged is that it could not be compared; the cause says why.
	Unjudged Problem = "unjudged"
)

// Problems of files, directories and programs.
const (
	Type          Problem = "type" // "symbolic link", "directory"
	Mode          Problem = "mode" // octal, four digits
	NotExecutable Problem = "not executable"
	Owner         Problem = "owner"
	Group         Problem = "group"
	Content       Problem = "content"        // hex SHA-256
	Unhashed      Problem = "unhashed"       // far larger than what is wanted
	SecretContent Problem = "secret content" // neither digest is told
	Truncated     Problem = "truncated"      // sizes in bytes
	Version       Problem = "version"        // found by digest, wanted by name
)

// Problems of units.
const (
	Unknown        Problem = "unknown"       // to systemd
	NotInstalled   Problem = "not installed" // a consequence of a file that is missing
	Unloadable     Problem = "unloadable"
	Enablement     Problem = "enablement"
	Activity       Problem = "activity"
	Stale          Problem = "stale" // its files were changed since systemd has read them
	RestartPending Problem = "restart pending"
	ReloadPending  Problem = "reload pending"
	CheckFailed    Problem = "check failed" // its own check; the cause is what that said
	Overridden     Problem = "overridden"   // by a drop-in
	Replaced       Problem = "replaced"     // by another unit file
)

// Problems of certificates.
const (
	CommonName    Problem = "common name"
	Organizations Problem = "organizations"
	DNSNames      Problem = "DNS names"
	Addresses     Problem = "addresses"
	Usage         Problem = "usage" // "server" or "client"
	Issuer        Problem = "issuer"
	Signature     Problem = "signature" // not of the issuer that it names
	Expired       Problem = "expired"
	NotYetValid   Problem = "not yet valid"
	Due           Problem = "due" // for renewal: found is when it ends, wanted since when
	Unreadable    Problem = "unreadable"
	NoAuthority   Problem = "no authority" // whose certificate cannot be read
	NotWritten    Problem = "not written"  // another than the one on record
	WrongKey      Problem = "wrong key"    // the key beside it is another's
)

// Other problems.
const (
	Learner     Problem = "learner"
	Plain       Problem = "plain"       // not encrypted
	UnknownKey  Problem = "unknown key" // encrypted with a key that is not configured
	OldKey      Problem = "old key"
	NewKey      Problem = "new key"
	Order       Problem = "order"
	Cordoned    Problem = "cordoned"
	NotReported Problem = "not reported" // by the kubelet, since the machine started
	NotReady    Problem = "not ready"
	Tokens      Problem = "tokens"
	HopLimit    Problem = "hop limit"
	Endpoint    Problem = "endpoint"
	NoPublicIP  Problem = "no public address"
	TooSmall    Problem = "too small"
	Taken       Problem = "taken"
	Full        Problem = "full"
	NotRecord   Problem = "not on record"
	Generation  Problem = "generation" // of one that is not wanted
	NotDrained  Problem = "not drained"
	NotStarted  Problem = "not started"
	NotOpened   Problem = "not opened" // to pods
)

// What a unit is found doing and wanted to do; other values are systemd's own words.
const (
	Running       = "running"
	Stopped       = "stopped"
	Starting      = "starting"
	Stopping      = "stopping"
	Failed        = "failed"
	FailedAtStart = "failed right after its start"
	CrashLooping  = "failing again and again"
	AwaitingStart = "waiting for its next start"

	Enabled           = "enabled"
	Disabled          = "disabled"
	Masked            = "masked"
	UntilReboot       = "enabled until the next boot only"
	EnabledAndRunning = "enabled and running"
)

// Hidden takes the place of a value of an object that is a secret.
const Hidden = "a value (hidden)"
