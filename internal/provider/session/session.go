// Package session is what every resource gets from the configured provider: the AWS client, key stores, the
// access to machines by SSH, and what this process has claimed, warned of and found gone. It says as well what
// to do about an error. It knows no resource and no schema.
package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/keystore"
	awsmachine "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/machine"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/bake"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/egress"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/maintenance"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/timing"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/argument"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// ErrNotYetKnown is returned when a provider argument is needed whose value is known only after
// other resources were applied. It can happen only during a plan.
var ErrNotYetKnown = errors.New("the provider's configuration is not known yet")

// Session is what every resource gets from the provider. It is safe for concurrent use.
type Session struct {
	Timing *timing.Recorder // nil if nobody wants to know
	// Patience is the factor by which waits and default time limits are longer.
	Patience float64
	// Pool holds the SSH connections of this provider. It is closed at exit.
	Pool *remote.Pool
	// Prepare connects to a machine ahead, in the background. It does nothing in tests with a shell of
	// their own.
	Prepare func(context.Context, remote.Host)
	// Shell connects to one machine. It is the pool's, except in tests.
	Shell func(remote.Host) awsmachine.Shell
	// Duty finds out what a machine does for its cluster. It is that of package maintenance, except
	// in tests.
	Duty FindDuty
	// Works returns an error unless a machine does something for its cluster.
	Works func(context.Context, fleet.Target) error
	// Bake returns what does the work on a machine that becomes an image. It is the site itself, except in tests.
	Bake    Bake
	SSH     sshConfig
	Catalog *artifact.Catalog
	Proxy   egress.Proxy // of the machines
	// Authorities are certificates, PEM, that the machines trust beside those of their distribution.
	Authorities string
	Now         func() time.Time
	Rand        io.Reader

	LoadAWS    func() (*infraaws.Client, error) // called once
	AWSUnknown []string                         // arguments that AWS cannot be asked without, and that are not known yet
	SSHUnknown bool
	// ChecksumsUnknown says that artifact_checksums are not known yet. The catalog then has no checksums, and a
	// role is compared with those that its last apply has recorded.
	ChecksumsUnknown bool
	DefaultTags      types.Map // as configured; may be unknown while planning

	// Claims are what this process has claimed, and caller is who does so.
	Claims claims
	caller struct {
		sync.Mutex
		account, arn string
	}

	// Staged holds the checksums that were looked up for stagings.
	Staged StagedChecksums

	// warned holds the machines for which this run has printed a warning.
	warned sync.Map
	// Gone holds the ids of instances that this run has found gone.
	Gone sync.Map
	// expired holds the clusters that this run has found expired, and the ids of their instances.
	expired struct {
		some                atomic.Bool
		clusters, instances sync.Map
	}
	// Silence is of API servers that have not answered this run.
	Silence fleet.Silence
	// Rolls holds, by cluster, which machine is replaced for a newer image.
	Rolls maintenance.Rolls
	// Successions are the machines of roles that change hands in this plan.
	Successions *Successions
	// Clusters holds, by cluster, which machine may go down next.
	Clusters maintenance.Clusters
}

// FindDuty finds out what a machine does for its cluster.
type FindDuty func(context.Context, fleet.Target) (*maintenance.Duty, error)

// Bake returns what does the work of a site.
type Bake func(bake.Site) bake.Work

// AWS returns the AWS client. It is created at its first use, so that a configuration without AWS
// needs no credentials.
func (d *Session) AWS(context.Context) (*infraaws.Client, error) { return d.loadAWS() }

func (d *Session) loadAWS() (*infraaws.Client, error) {
	if len(d.AWSUnknown) > 0 {
		return nil, fmt.Errorf("%w: %s", ErrNotYetKnown, strings.Join(d.AWSUnknown, ", "))
	}
	return d.LoadAWS()
}

// AWSForRead is AWS for a refresh. ok is false if there is no client. That is an error with the
// given title, unless the configuration is not known yet: then the state stays as it is, and the first
// refresh warns of that.
func (d *Session) AWSForRead(ctx context.Context, title string, diags *diag.Diagnostics) (client *infraaws.Client, ok bool) {
	client, err := d.AWS(ctx)
	switch {
	case errors.Is(err, ErrNotYetKnown):
		if d.FirstWarning("AWS arguments of the provider") {
			diags.AddWarning("What is in AWS is not compared", fmt.Sprintf("Arguments of the provider depend on what is known only after the apply: %s. "+
				"The last known state of everything in AWS is kept, and this plan does not show what differs there.\n\n%s", strings.Join(d.AWSUnknown, ", "), Advice(err)))
		}
	case err != nil:
		AddError(diags, title, err)
	}
	return client, err == nil
}

// Store opens the key store that a reference points to.
func (d *Session) Store(ref pki.Ref) (pki.Store, error) {
	switch ref.Store {
	case pki.StoreSSM:
		client, err := d.loadAWS()
		if err != nil {
			return nil, err
		}
		return keystore.New(client, keystore.Config{Cluster: ref.Cluster, Prefix: ref.Prefix, KMSKeyID: ref.KMSKeyID, Region: ref.Region}), nil
	case pki.StoreState:
		return ref.MemoryStore(), nil
	default:
		return nil, fmt.Errorf("unknown key store %q", ref.Store)
	}
}

// FirstWarning reports whether no warning was printed for this machine yet.
func (d *Session) FirstWarning(machine string) bool {
	_, warned := d.warned.LoadOrStore(machine, true)
	return !warned
}

// IsGone says that this run has found the instance gone. Terraform plans in the process that has
// refreshed.
func (d *Session) IsGone(instance string) bool {
	_, gone := d.Gone.Load(instance)
	return gone
}

// Expire says that this run has found the instance in a cluster whose expires_at has passed. Only controllers stop the
// cluster's API servers.
func (d *Session) Expire(cluster, instance string, controller bool) {
	if controller {
		d.expired.clusters.Store(cluster, true)
	}
	d.expired.instances.Store(instance, true)
	d.expired.some.Store(true)
}

// AsPaused returns a state that a refresh reads as it would be if the machines that this run has found expired were
// paused. Terraform refreshes machines before what is on them.
func (d *Session) AsPaused(state tftypes.Value) tftypes.Value {
	if !d.expired.some.Load() {
		return state
	}
	in := func(found *sync.Map) func(string) bool {
		return func(key string) bool { _, ok := found.Load(key); return ok }
	}
	return argument.PauseExpired(state, in(&d.expired.instances), in(&d.expired.clusters))
}

// TagsAll returns the default tags overridden by a resource's own, or unknown if one of them is
// unknown.
func (d *Session) TagsAll(own types.Map) types.Map {
	if d.DefaultTags.IsUnknown() || !tf.AllKnown(own, d.DefaultTags) {
		return types.MapUnknown(types.StringType)
	}
	return d.FoundTags(own)
}

// FoundTags is TagsAll for what is imported: of default tags that are not known yet, it has none.
func (d *Session) FoundTags(own types.Map) types.Map {
	all := tf.StringMap(d.DefaultTags)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, tf.StringMap(own))
	return tf.StringMapValue(all)
}

// PlanTags is TagsAll for a plan, which refuses more tags than AWS takes.
func (d *Session) PlanTags(own types.Map, diags *diag.Diagnostics) types.Map {
	all := d.TagsAll(own)
	if n := len(all.Elements()); n > argument.MaxTags {
		diags.AddAttributeError(path.Root("tags"), "Too many tags",
			fmt.Sprintf("tags and the provider's default_tags are %d tags together. At most %d are possible: AWS allows 50, and the provider sets up to %d itself.", n, argument.MaxTags, 50-argument.MaxTags))
	}
	return all
}

// Base is embedded by every resource, data source and ephemeral resource.
type Base struct{ Session *Session }

// Configure implements resource.ResourceWithConfigure.
func (b *Base) Configure(_ context.Context, req resource.ConfigureRequest, _ *resource.ConfigureResponse) {
	b.Receive(req.ProviderData)
}

func (b *Base) Receive(v any) {
	if d, ok := v.(*Session); ok {
		b.Session = d
	}
}
