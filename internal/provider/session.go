package provider

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"sync"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/keystore"
	awsmachine "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/machine"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/maintenance"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/timing"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// errNotYetKnown is returned when a provider argument is needed whose value is known only after
// other resources were applied. It can happen only during a plan.
var errNotYetKnown = errors.New("the provider's configuration is not known yet")

// providerData is what every resource gets from the provider. It is safe for concurrent use.
type providerData struct {
	timing *timing.Recorder // nil if nobody wants to know
	// pool holds the SSH connections of this provider. It is closed at exit.
	pool *remote.Pool
	// prepare connects to a machine ahead, in the background. It does nothing in tests with a shell of
	// their own.
	prepare func(context.Context, remote.Host)
	// shell connects to one machine. It is the pool's, except in tests.
	shell func(remote.Host) awsmachine.Shell
	// duty finds out what a machine does for its cluster. It is that of package maintenance, except
	// in tests.
	duty findDutyFunc
	// works returns an error unless a machine does something for its cluster.
	works   func(context.Context, fleet.Target) error
	ssh     sshConfig
	catalog *artifact.Catalog
	now     func() time.Time
	rand    io.Reader

	loadAWS     func() (*infraaws.Client, error) // called once
	awsUnknown  bool                             // an AWS argument is not known yet
	sshUnknown  bool
	defaultTags types.Map // as configured; may be unknown while planning

	// claims are what this process has claimed, and caller is who does so.
	claims claims
	caller struct {
		sync.Mutex
		account, arn string
	}

	// staged holds the checksums that were looked up for stagings.
	staged stagedChecksums

	// warned holds the machines for which this run has printed a warning.
	warned sync.Map
	// gone holds the ids of instances that this run has found gone.
	gone sync.Map
	// rolls holds, by cluster, which machine is replaced for a newer image.
	rolls maintenance.Rolls
	// clusters holds, by cluster, which machine may go down next.
	clusters maintenance.Clusters
}

// findDutyFunc finds out what a machine does for its cluster.
type findDutyFunc func(context.Context, fleet.Target) (*maintenance.Duty, error)

// aws returns the AWS client. It is created at its first use, so that a configuration without AWS
// needs no credentials.
func (d *providerData) aws(context.Context) (*infraaws.Client, error) {
	if d.awsUnknown {
		return nil, errNotYetKnown
	}
	return d.loadAWS()
}

// awsForRead is aws for a refresh. ok is false if there is no client. That is an error with the
// given title, unless the configuration is not known yet; then the state stays as it is.
func (d *providerData) awsForRead(ctx context.Context, title string, diags *diag.Diagnostics) (client *infraaws.Client, ok bool) {
	client, err := d.aws(ctx)
	if err != nil && !errors.Is(err, errNotYetKnown) {
		addError(diags, title, err)
	}
	return client, err == nil
}

// store opens the key store that a reference points to.
func (d *providerData) store(ref pki.Ref) (pki.Store, error) {
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

// firstWarning reports whether no warning was printed for this machine yet.
func (d *providerData) firstWarning(machine string) bool {
	_, warned := d.warned.LoadOrStore(machine, true)
	return !warned
}

// isGone says that this run has found the instance gone. Terraform plans in the process that has
// refreshed.
func (d *providerData) isGone(instance string) bool {
	_, gone := d.gone.Load(instance)
	return gone
}

// maxTags is how many tags an object may have besides the provider's own: EC2 allows 50, and a
// machine has 12 of the provider.
const maxTags = 38

// tagsAll returns the default tags overridden by a resource's own, or unknown if one of them is
// unknown.
func (d *providerData) tagsAll(own types.Map) types.Map {
	if d.defaultTags.IsUnknown() || !tf.AllKnown(own, d.defaultTags) {
		return types.MapUnknown(types.StringType)
	}
	all := map[string]string{}
	maps.Copy(all, tf.StringMap(d.defaultTags))
	maps.Copy(all, tf.StringMap(own))
	return tf.StringMapValue(all)
}

// planTags is tagsAll for a plan, which refuses more tags than AWS takes.
func (d *providerData) planTags(own types.Map, diags *diag.Diagnostics) types.Map {
	all := d.tagsAll(own)
	if n := len(all.Elements()); n > maxTags {
		diags.AddAttributeError(path.Root("tags"), "Too many tags",
			fmt.Sprintf("tags and the provider's default_tags are %d tags together. At most %d are possible: AWS allows 50, and the provider sets up to %d itself.", n, maxTags, 50-maxTags))
	}
	return all
}

// base is embedded by every resource, data source and ephemeral resource.
type base struct{ data *providerData }

// Configure implements resource.ResourceWithConfigure.
func (b *base) Configure(_ context.Context, req resource.ConfigureRequest, _ *resource.ConfigureResponse) {
	b.configure(req.ProviderData)
}

func (b *base) configure(v any) {
	if d, ok := v.(*providerData); ok {
		b.data = d
	}
}
