package finding

// Kind is what a finding is about.
type Kind string

// Kinds on a machine.
const (
	Package   Kind = "package"
	Module    Kind = "kernel module"
	Sysctl    Kind = "sysctl"
	Directory Kind = "directory"
	File      Kind = "file"
	Binary    Kind = "binary"  // an installed program
	DropIn    Kind = "drop-in" // a file that changes one of our units and is not ours
	Unit      Kind = "unit"
	// Certificate is about the content of a certificate, by its path. A changed file is about File.
	Certificate Kind = "certificate"
	// Port and FileSystem are causes of a failure, as found on a machine.
	Port       Kind = "port"        // by number
	FileSystem Kind = "file system" // by mount point and device
	// Leftover is what is left of a role, by its name, on a machine that has left it.
	Leftover Kind = "leftover"
	// Duty is what a machine does for its cluster and could not be prepared or ended.
	Duty Kind = "duty"
)

// Kinds in a cluster.
const (
	Member     Kind = "etcd member"      // by ID, once it has one
	MemberData Kind = "etcd member data" // by directory
	Alarm      Kind = "etcd alarm"       // by type
	Database   Kind = "etcd database"
	EtcdDisk   Kind = "disk of etcd"
	Snapshot   Kind = "snapshot" // by name, or by the place where there is none
	Secrets    Kind = "secrets"  // by number, in etcd, as they are encrypted
	Node       Kind = "node"
	Label      Kind = "node label"
	Taint      Kind = "node taint"    // "key:effect"
	NodeField  Kind = "node field"    // that can be set only once, by its path
	Schedule   Kind = "node schedule" // whether pods may come to the node
	Object     Kind = "object"        // the subject itself
	Field      Kind = "field"         // of the subject, by its path
	NodeState  Kind = "node state"    // a node's state in a wait, by its name
	// Things that are compared as a whole and could not be compared.
	SystemObjects Kind = "system objects"
	Members       Kind = "etcd members"
	Nodes         Kind = "nodes"
	Addon         Kind = "addon" // by name
)

// Kinds in AWS. The first ones are the subject itself.
const (
	VPC                  Kind = "vpc"
	Subnet               Kind = "subnet"
	AdoptedSubnet        Kind = "adopted subnet"
	InternetGateway      Kind = "internet gateway"
	NATGateway           Kind = "NAT gateway"
	InstanceConnect      Kind = "instance connect endpoint"
	RouteTable           Kind = "route table"
	SecurityGroup        Kind = "security group"
	Instance             Kind = "instance"
	InstanceType         Kind = "instance type"
	PlacementGroup       Kind = "placement group"
	CPUCredits           Kind = "CPU credits"
	SourceDestCheck      Kind = "source/destination check"
	SecurityGroups       Kind = "security groups" // of a machine
	InstanceProfile      Kind = "instance profile"
	MetadataService      Kind = "metadata service"
	RootVolume           Kind = "root volume"
	RootVolumeType       Kind = "root volume type"
	RootVolumeIOPS       Kind = "root volume IOPS"
	RootVolumeThroughput Kind = "root volume throughput"
	RootFileSystem       Kind = "root file system"
	DataVolume           Kind = "data volume" // by id
	DataFileSystem       Kind = "data file system"
	MountPoint           Kind = "mount point" // of a data volume, by directory
	VolumeSize           Kind = "volume size"
	RetiredImage         Kind = "retired image" // by id
	VolumeType           Kind = "volume type"
	VolumeIOPS           Kind = "volume IOPS"
	VolumeThroughput     Kind = "volume throughput"
	Route                Kind = "route" // by destination, with the table if there are several
	Rule                 Kind = "rule"  // of a security group, written for people
	Tag                  Kind = "tag"
	Address              Kind = "Elastic IP"
	ReleasedAddress      Kind = "released Elastic IP" // found is its allocation id
	Balancer             Kind = "load balancer"
	TargetGroup          Kind = "target group"
	BalancerTarget       Kind = "target"   // of a target group, by the id of its instance
	Listener             Kind = "listener" // by port
	HealthCheck          Kind = "health check"
	BalancerSubnets      Kind = "subnets"   // of a load balancer
	BalancerAttribute    Kind = "attribute" // of a load balancer or target group, by key
	Key                  Kind = "key"       // in the key store, by name
	KeyCopy              Kind = "key copy"  // an object with a copy of keys, by its key in the bucket
	Audience             Kind = "audience"  // of an OpenID Connect provider in IAM
	IssuerDocument       Kind = "document"  // of an issuer of tokens, by its path or a member in it
	IssuerKey            Kind = "token key" // that an issuer of tokens shows, by its id
)

// Problem is how something differs.
type Problem string

// Problems of many kinds.
const (
	Missing   Problem = "missing"
	NotWanted Problem = "not wanted"
	// Value: one value was found and another is wanted.
	Value Problem = "value"
	// Detached: it exists and is not connected with what it is for.
	Detached Problem = "detached"
	// Refused: it cannot be made as wanted; the cause says why.
	Refused Problem = "refused"
	// Unjudged: it could not be compared; the cause says why.
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
	Unhashed      Problem = "unhashed"       // a file far larger than what is wanted, or a program that could not be read
	SecretContent Problem = "secret content" // neither digest is shown
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
	Stale          Problem = "stale" // its files changed after systemd read them
	RestartPending Problem = "restart pending"
	ReloadPending  Problem = "reload pending"
	CheckFailed    Problem = "check failed" // its own check; the cause is the check's output
	Overridden     Problem = "overridden"   // by a drop-in
	Replaced       Problem = "replaced"     // by another unit file; an object or a Node object, because it cannot change
)

// Problems of certificates.
const (
	CommonName    Problem = "common name"
	Organizations Problem = "organizations"
	DNSNames      Problem = "DNS names"
	Addresses     Problem = "addresses"
	Usage         Problem = "usage" // "server" or "client"
	Issuer        Problem = "issuer"
	Signature     Problem = "signature" // not by the issuer that it names
	Expired       Problem = "expired"
	NotYetValid   Problem = "not yet valid"
	Due           Problem = "due" // found is its expiry, wanted the time from which it is due
	Unreadable    Problem = "unreadable"
	NoAuthority   Problem = "no authority" // whose certificate cannot be read
	NotWritten    Problem = "not written"  // differs from the one on record
	WrongKey      Problem = "wrong key"    // the key beside it does not match
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
	ShownTags   Problem = "shown tags" // by the metadata service
	IPv6        Problem = "IPv6"
	Ephemeral   Problem = "ephemeral" // it would be deleted together with its instance
	Elsewhere   Problem = "elsewhere" // it is also there
	Unbound     Problem = "unbound"   // found would start without it; an object cannot be made without its target
	NoPublicIP  Problem = "no public address"
	PublicIP    Problem = "public address"
	TooSmall    Problem = "too small"
	Taken       Problem = "taken" // a field, by another manager that applies it
	Full        Problem = "full"
	NotRecord   Problem = "not on record"
	Generation  Problem = "generation" // it belongs to a generation that is not wanted
	NotDrained  Problem = "not drained"
	NotStarted  Problem = "not started"
	NotOpened   Problem = "not opened" // to pods
	NotTaken    Problem = "not taken"
	TooOld      Problem = "too old"
	Diverged    Problem = "diverged"   // the members' data differ
	Fragmented  Problem = "fragmented" // size is how much is free inside
	Loose       Problem = "loose"      // as fragmented, and nothing is done about it while a machine is away
	NearlyFull  Problem = "nearly full"
	TooLarge    Problem = "too large" // a quota for its file system
	Slow        Problem = "slow"
)

// Values of a unit's activity; other values are systemd's own words.
const (
	Running       = "running"
	Stopped       = "stopped"
	Starting      = "starting"
	Stopping      = "stopping"
	Failed        = "failed"
	FailedAtStart = "failed-at-start"
	CrashLooping  = "crash-looping"
	AwaitingStart = "awaiting-start"

	Enabled           = "enabled"
	Disabled          = "disabled"
	Masked            = "masked"
	UntilReboot       = "until-reboot"
	EnabledAndRunning = "enabled-and-running"
)

// Hidden replaces a secret value of an object.
const Hidden = "(hidden)"
