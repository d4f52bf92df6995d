package component

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/unit"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/invalid"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/version"
)

// EtcdSpec describes an etcd cluster.
type EtcdSpec struct {
	Cluster Cluster // only Name and PKI are used
	Version string
	Members []Node
	// InitialCluster is the member list for a member's first start; nil means Members. A member
	// that joins a running cluster needs the members at that moment, itself included, and Existing.
	InitialCluster []Node
	Existing       bool
	// Token makes the ids of a new cluster, and of its first members, other ones than those of an earlier
	// cluster at the same addresses. Empty means the name of the cluster.
	Token     string
	Artifacts []artifact.Artifact
	// Quota is the size of a member's database in bytes at which etcd stores nothing more. Zero means
	// DefaultEtcdQuota.
	Quota int64
	// AllowedCIDRs are the networks that may reach the members; nil means that everybody may.
	AllowedCIDRs []netip.Prefix
	Args         Args          // further flags
	EarlyRenewal time.Duration // of certificates; zero means pki.DefaultEarlyRenewal
	Extra        []desired.ExtraFile
}

const (
	// DefaultEtcdQuota is the largest quota that etcd recommends.
	DefaultEtcdQuota = 8 << 30
	// MinEtcdQuota is enough for the objects of a small cluster, twice.
	MinEtcdQuota = 64 << 20
)

// EtcdUnitPath is the unit file, which has the quota. EtcdDatabase is the file that it limits.
const (
	EtcdUnitPath = unitDir + "/" + EtcdUnit
	EtcdDatabase = EtcdDataDir + "/member/snap/db"
)

// EffectiveQuota returns the quota, or its default.
func (s EtcdSpec) EffectiveQuota() int64 {
	if s.Quota == 0 {
		return DefaultEtcdQuota
	}
	return s.Quota
}

// EtcdEndpoints returns the client URLs of the members, in their order.
func EtcdEndpoints(members []Node) []string {
	var out []string
	for _, m := range members {
		out = append(out, endpointURL(m.PrivateIP, EtcdClientPort))
	}
	return out
}

// EtcdPeerURL returns the URL at which other members reach n.
func EtcdPeerURL(n Node) string { return endpointURL(n.PrivateIP, EtcdPeerPort) }

func endpointURL(ip netip.Addr, port uint16) string {
	return "https://" + netip.AddrPortFrom(ip, port).String()
}

// Etcd returns what one member must look like. The error is about the specification.
//
// The unit does not depend on the number of members: the first members are listed in
// EtcdBootstrapEnv, which need only exist, so that adding or removing a member changes none of the
// others.
func Etcd(spec EtcdSpec, n Node) (Machine, error) {
	initial := spec.InitialCluster
	if initial == nil {
		initial = spec.Members
	}
	if err := errors.Join(spec.validate(n), validateMembers("hosts", initial, n)); err != nil {
		return Machine{}, fmt.Errorf("etcd on %s: %w", n.Name, err)
	}
	bin, err := binary(artifact.OfArch(spec.Artifacts, n.Arch), artifact.Etcd)
	if err != nil {
		return Machine{}, fmt.Errorf("etcd on %s: %w", n.Name, err)
	}
	args, err := etcdArgs(n, spec.EffectiveQuota()).with(artifact.Etcd, spec.Args)
	if err != nil {
		return Machine{}, fmt.Errorf("etcd on %s: %w", n.Name, err)
	}
	svc := service{
		description:   "etcd",
		documentation: "https://etcd.io/docs/",
		kind:          typeNotify,
		environment:   EtcdBootstrapEnv,
		exec:          args.commandLine(binPath("etcd")),
		shown:         args.hide(artifact.Etcd, spec.Args).commandLine(binPath("etcd")),
		// A member is ready once it has a quorum, and replaying a long log takes time.
		startTimeout: "infinity",
		options: []*unit.UnitOption{
			unit.NewUnitOption("Service", "ExecStartPre", "/bin/sh -c '"+etcdKeepsData+"'"),
			unit.NewUnitOption("Service", "ExecStartPost", "/bin/sh -c '"+etcdHasStarted+"'"),
			unit.NewUnitOption("Service", "LimitNOFILE", "65536"),
			unit.NewUnitOption("Service", "OOMScoreAdjust", "-900"),
		},
	}
	request := pki.Request{
		CommonName: n.Name, DNSNames: []string{"localhost", n.Name}, IPs: []netip.Addr{n.PrivateIP, loopback},
		Server: true, Client: true,
	}
	m := Machine{
		State: desired.State{
			Directories: []desired.Directory{
				{Path: etcdPKIDir, Mode: 0o755},
				{Path: EtcdDataDir, Mode: 0o700},
			},
			Files: []desired.File{
				caFile(EtcdCAPath, spec.Cluster.PKI.EtcdCA),
				etcdBootstrapFile(spec, initial),
				svc.file(EtcdUnit),
			},
			Binaries: []desired.Binary{bin},
			// etcd reads a renewed certificate at the next handshake, but its CA only when it
			// starts.
			Units: []desired.Unit{running(EtcdUnit, binPath("etcd"), EtcdCAPath)},
		},
		Certificates: withRenewal(spec.EarlyRenewal,
			slot("etcd server", EtcdServerCert, EtcdServerKey, pki.EtcdCA, request),
			slot("etcd peer", EtcdPeerCert, EtcdPeerKey, pki.EtcdCA, request),
		),
	}
	etcdFirewall.addTo(&m, spec.AllowedCIDRs, netip.Prefix{})
	return m.with(spec.Cluster, spec.Extra), nil
}

// validate checks the specification for one member.
func (s EtcdSpec) validate(n Node) error {
	v, err := version.Parse(s.Version)
	if err == nil {
		err = version.CheckEtcd(v)
	}
	return errors.Join(err, slices.Concat(s.Cluster.checkName(), s.Check()).Err(), validateMembers("hosts", s.Members, n), requireCAs(s.Cluster.PKI, pki.EtcdCA))
}

// Check reports a quota that is too small, and flags that the release does not have.
func (s EtcdSpec) Check() (errs invalid.Fields) {
	if s.Quota < 0 || s.Quota > 0 && s.Quota < MinEtcdQuota {
		errs.Say("quota_mib", "Quota too small", "etcd would soon store nothing more: the quota is at least %d MiB.", MinEtcdQuota>>20)
	}
	return errs
}

// CheckMembers reports an even number of members: such a cluster tolerates no more failures than
// with one member fewer.
func CheckMembers(n int) (errs invalid.Fields) {
	if n%2 == 0 {
		errs.Say("hosts", "Even number of etcd members",
			"%d etcd members tolerate no more failures than %d, and a split leaves neither half a majority: use 1, 3, 5 or 7.", n, max(n-1, 0))
	}
	return errs
}

// Traces returns what [EtcdSpec.Read] needs from a machine.
func (EtcdSpec) Traces() Traces {
	return Traces{Files: []string{unitPath(EtcdUnit), etcdFirewall.path()}, Programs: []string{binPath(artifact.Etcd)}}
}

// Read returns the specification with the settings found on a member. The error is a
// [NothingFoundError] if the machine is not a member.
func (s EtcdSpec) Read(n Node, f Found) (EtcdSpec, error) {
	if s.Version == "" {
		var err error
		if s.Version, err = f.release(binPath(artifact.Etcd)); err != nil {
			return s, err
		}
	}
	if s.AllowedCIDRs == nil {
		s.AllowedCIDRs = etcdFirewall.allowed(f)
	}
	if err := s.validate(n); err != nil {
		return s, fmt.Errorf("etcd on %s: %w", n.Name, err)
	}
	if quota, err := strconv.ParseInt(f.args(EtcdUnit).last("quota-backend-bytes"), 10, 64); err == nil && quota != DefaultEtcdQuota {
		s.Quota = quota
	}
	s.Args = f.argsBeyond(EtcdUnit, etcdArgs(n, s.EffectiveQuota()))
	return s, nil
}

func etcdArgs(n Node, quota int64) Args {
	local := endpointURL(loopback, EtcdClientPort)
	return Args{
		"name":     values(n.Name),
		"data-dir": values(EtcdDataDir),

		"listen-client-urls":          values(endpointURL(n.PrivateIP, EtcdClientPort) + "," + local),
		"advertise-client-urls":       values(endpointURL(n.PrivateIP, EtcdClientPort)),
		"listen-peer-urls":            values(EtcdPeerURL(n)),
		"initial-advertise-peer-urls": values(EtcdPeerURL(n)),
		"listen-metrics-urls":         values("http://127.0.0.1:2381"),

		"cert-file":             values(EtcdServerCert),
		"key-file":              values(EtcdServerKey),
		"trusted-ca-file":       values(EtcdCAPath),
		"client-cert-auth":      values("true"),
		"peer-cert-file":        values(EtcdPeerCert),
		"peer-key-file":         values(EtcdPeerKey),
		"peer-trusted-ca-file":  values(EtcdCAPath),
		"peer-client-cert-auth": values("true"),
		"tls-min-version":       values("TLS1.2"),

		"auto-compaction-mode":      values("periodic"),
		"auto-compaction-retention": values("8h"),
		"quota-backend-bytes":       values(strconv.FormatInt(quota, 10)),
	}
}

// InitialCluster returns members as etcd's flag --initial-cluster takes them.
func InitialCluster(members []Node) string {
	var peers []string
	for _, m := range members {
		peers = append(peers, m.Name+"="+EtcdPeerURL(m))
	}
	return strings.Join(peers, ",")
}

// etcdHasStarted notes in EtcdBootstrapEnv that the member has started, and etcdKeepsData fails if it
// has, and its data are gone. With the settings of the first start, members that have all lost their
// data would form an empty cluster, on which API servers would then work.
const (
	etcdStartedMark = "# The member has started: without its data, etcd is not started again."
	etcdHasStarted  = `grep -qx "` + etcdStartedMark + `" ` + EtcdBootstrapEnv + ` || echo "` + etcdStartedMark + `" >>` + EtcdBootstrapEnv + ` || :`
	etcdKeepsData   = `ls -d ` + EtcdDataDir + `/member/wal/*.wal ` + EtcdDatabase + ` 2>/dev/null | grep -q . || ! grep -qx "` + etcdStartedMark + `" ` + EtcdBootstrapEnv + ` || ` +
		`{ echo "the data of etcd are gone (` + EtcdDataDir + `/member), and without them it could form an empty cluster: apply again, which replaces the member or says how to restore" >&2; exit 1; }`
)

// EtcdHasStarted reports whether the settings in EtcdBootstrapEnv say that the member has started.
func EtcdHasStarted(settings []byte) bool {
	return slices.Contains(strings.Split(string(settings), "\n"), etcdStartedMark)
}

func etcdBootstrapFile(spec EtcdSpec, initial []Node) desired.File {
	state := "new"
	if spec.Existing {
		state = "existing"
	}
	content := fmt.Sprintf("ETCD_INITIAL_CLUSTER=%s\nETCD_INITIAL_CLUSTER_STATE=%s\n"+etcdTokenKey+"%s\n",
		InitialCluster(initial), state, cmp.Or(spec.Token, spec.Cluster.Name))
	return desired.File{Path: EtcdBootstrapEnv, Mode: 0o644, Content: []byte(content), Once: true}
}

const etcdTokenKey = "ETCD_INITIAL_CLUSTER_TOKEN="

// BegunToken returns the token in the content of EtcdBootstrapEnv while the member has not started with
// it; else nothing.
func BegunToken(content []byte) string {
	if EtcdHasStarted(content) {
		return ""
	}
	for line := range strings.Lines(string(content)) {
		if token, ok := strings.CutPrefix(strings.TrimSpace(line), etcdTokenKey); ok {
			return token
		}
	}
	return ""
}

func withRenewal(early time.Duration, slots ...pki.Slot) []pki.Slot {
	if early == 0 {
		early = pki.DefaultEarlyRenewal
	}
	for i := range slots {
		slots[i].EarlyRenewal = early
	}
	return slots
}
