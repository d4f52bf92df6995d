package roles

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/version"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/reference"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// Arguments that several role resources share.

func earlyRenewalAttribute() schema.StringAttribute {
	return tf.DurationAttribute(fmt.Sprintf("How long before its expiry a certificate is renewed, in place, by the next apply, as a duration such as `720h`. Default: `%s`.",
		tf.ShortDuration(pki.DefaultEarlyRenewal)))
}

// checkUpgrade adds an error to the attribute version if check refuses the change of release.
func checkUpgrade(prior, plan types.String, check func(from, to version.Version) error, diags *diag.Diagnostics) {
	from, to, known := parseVersions(prior, plan)
	if !known {
		return
	}
	if err := check(from, to); err != nil {
		diags.AddAttributeError(path.Root("version"), "Unsupported change of version", err.Error())
	}
}

// parseVersions parses two releases; known is false unless both are known and valid.
func parseVersions(a, b types.String) (x, y version.Version, known bool) {
	x, err := version.Parse(a.ValueString())
	if err == nil {
		y, err = version.Parse(b.ValueString())
	}
	return x, y, err == nil
}

// warnOfEndOfLife adds a warning to the attribute version if upstream soon stops maintaining the
// release. The summary is the same for every resource, so that Terraform prints it once.
func warnOfEndOfLife(release types.String, now time.Time, diags *diag.Diagnostics) {
	v, err := version.Parse(release.ValueString())
	if err != nil {
		return
	}
	if words := version.EndsSoon(v, now); words != "" {
		diags.AddAttributeWarning(path.Root("version"), "Kubernetes "+v.MinorString()+" is near its end of life", words)
	}
}

// warnOfUnknownRelease adds a warning to the attribute version in the plan that brings in a release
// that check does not know.
func warnOfUnknownRelease(prior, plan types.String, check func(version.Version) string, diags *diag.Diagnostics) {
	v, err := version.Parse(plan.ValueString())
	if err != nil || prior.Equal(plan) {
		return
	}
	if words := check(v); words != "" {
		diags.AddAttributeWarning(path.Root("version"), "Unknown release", words)
	}
}

// checkDownloads adds an error to the attribute version for downloads that cannot exist. A checksum
// that is not known yet is looked up when it is needed.
func checkDownloads(err error, diags *diag.Diagnostics) {
	if err != nil && !errors.Is(err, artifact.ErrUnknownChecksum) {
		diags.AddAttributeError(path.Root("version"), "Unusable version", err.Error())
	}
}

// archsOf returns the architectures of machines, sorted; that of no machines is the default.
func archsOf(targets []fleet.Target) []string {
	var out []string
	for _, t := range targets {
		out = append(out, cmp.Or(t.Node.Arch, artifact.AMD64))
	}
	if len(out) == 0 {
		return []string{artifact.AMD64}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// allPrefixes returns a set of networks, or nil unless all of them are known.
func allPrefixes(s types.Set) []netip.Prefix {
	if !tf.AllKnown(s) {
		return nil
	}
	return tf.Prefixes(s)
}

// pkiAttribute is the required argument `pki` of role resources.
func pkiAttribute() schema.SingleNestedAttribute {
	return reference.OfPKI.Input(reference.PKIDescription + " It has certificates and the location of the private keys, which are read only during an apply. " +
		"A change renews certificates in place, one machine at a time.")
}

// carriesKeys is the end of the description of a reference that carries `pki`.
const carriesKeys = "It contains `pki`: a change of `pki` renews certificates in place, one machine at a time."
