package aws

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
)

// Tag keys that identify everything of a cluster.
const (
	tagName    = "Name"
	TagCluster = "k8s-from-scratch/cluster"
	// TagKind is the kind of resource: "network", "machine", "address", ...
	TagKind = "k8s-from-scratch/kind"
	// TagResource is the resource's name within cluster and kind: "controller-0".
	TagResource = "k8s-from-scratch/name"
	TagRole     = "k8s-from-scratch/role"
	// TagHostKey is the machine's SSH host key in authorized_keys form, written before the machine
	// uses it.
	TagHostKey = "k8s-from-scratch/host-key"
	// TagClaim says who owns an object, and tagClaimedBy and tagClaimedAt say who claimed it and
	// when; see Claim. TagSettled is set once a state is known to hold the claim.
	TagClaim     = "k8s-from-scratch/claim"
	tagClaimedBy = "k8s-from-scratch/claimed-by"
	tagClaimedAt = "k8s-from-scratch/claimed-at"
	TagSettled   = "k8s-from-scratch/settled"
	// TagFileSystem is the UUID of the file system that was made on a volume, and TagMountPoint is
	// where a machine has it.
	TagFileSystem = "k8s-from-scratch/file-system"
	TagMountPoint = "k8s-from-scratch/mount-point"
	// TagRoll identifies how the image of a machine is chosen, if the machine is to be replaced
	// when there is a newer image; see machine.NextInRoll.
	TagRoll = "k8s-from-scratch/roll"
	// TagUser is the login user made by cloud-init.
	TagUser = "k8s-from-scratch/user"
)

// Values of TagKind that several packages know.
const (
	KindNetwork = "network"
	KindMachine = "machine"
	KindVolume  = "volume"
)

const (
	// clusterPrefix begins the tag keys of Kubernetes' cloud integrations, before the name of a cluster. The value is owned for
	// what ends with the cluster, and shared for what does not.
	// https://kubernetes.io/docs/reference/labels-annotations-taints/
	clusterPrefix = "kubernetes.io/cluster/"
	// rolePrefix begins the tag keys by which they choose the subnets of load balancers.
	rolePrefix = "kubernetes.io/role/"
	owned      = "owned"
	// balancedTag is the tag key of everything that the AWS Load Balancer Controller makes. The value is the name of its cluster.
	// https://kubernetes-sigs.github.io/aws-load-balancer-controller/latest/guide/ingress/annotations/
	balancedTag = "elbv2.k8s.aws/cluster"
	ownPrefix   = "k8s-from-scratch/"
)

// ownedTag returns the tag key by which Kubernetes' cloud integrations find a cluster's resources.
func ownedTag(cluster string) string { return clusterPrefix + cluster }

// Inside is the name of a cluster in which controllers run, such as the AWS Load Balancer Controller.
type Inside string

// Filter returns a filter for what has the tag of Kubernetes' cloud integrations, and ends with the cluster.
func (i Inside) Filter() types.Filter { return TagFilter(ownedTag(string(i)), owned) }

// Tags returns the tag keys of which controllers in the cluster write one on what they make.
func (i Inside) Tags() []string { return []string{ownedTag(string(i)), balancedTag} }

// Made reports whether the tags say that a controller in the cluster has made something that ends with the cluster.
// What has tags of this package, or of a second cluster, is none.
func (i Inside) Made(tags map[string]string) bool {
	cluster := string(i)
	for key := range tags {
		if strings.HasPrefix(key, ownPrefix) || strings.HasPrefix(key, clusterPrefix) && key != ownedTag(cluster) {
			return false
		}
	}
	switch of, ok := tags[ownedTag(cluster)]; {
	case ok:
		return of == owned
	default:
		return cluster != "" && tags[balancedTag] == cluster
	}
}

// ReservedTag reports whether a tag key belongs to this package and may not be set by a user.
func ReservedTag(key string) bool {
	return key == tagName || strings.HasPrefix(key, ownPrefix) ||
		strings.HasPrefix(key, clusterPrefix) || strings.HasPrefix(key, rolePrefix) || strings.HasPrefix(key, "aws:")
}

// ClusterTags returns all tags of one resource. Own tags override default tags, and this package's
// override both.
func (c *Client) ClusterTags(cluster, kind, name string, own map[string]string) map[string]string {
	out := maps.Clone(c.defaultTags)
	if out == nil {
		out = map[string]string{}
	}
	maps.Copy(out, own)
	display := cluster
	if name != "" {
		display = cluster + "-" + name
	}
	maps.Copy(out, map[string]string{
		tagName:           display,
		TagCluster:        cluster,
		TagKind:           kind,
		ownedTag(cluster): owned,
	})
	if name != "" {
		out[TagResource] = name
	}
	return out
}

// tagList returns tags as a service takes them, sorted by key.
func tagList[T any](m map[string]string, as func(key, value *string) T) []T {
	var out []T
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, as(sdk.String(k), sdk.String(m[k])))
	}
	return out
}

// tagMap is the inverse of tagList.
func tagMap[T any](tags []T, of func(T) (key, value *string)) map[string]string {
	out := make(map[string]string, len(tags))
	for _, t := range tags {
		key, value := of(t)
		out[sdk.ToString(key)] = sdk.ToString(value)
	}
	return out
}

// EC2Tags returns tags as EC2 takes them, sorted by key.
func EC2Tags(m map[string]string) []types.Tag {
	return tagList(m, func(key, value *string) types.Tag { return types.Tag{Key: key, Value: value} })
}

// TagMap is the inverse of EC2Tags.
func TagMap(tags []types.Tag) map[string]string {
	return tagMap(tags, func(t types.Tag) (key, value *string) { return t.Key, t.Value })
}

// TagSpecification returns the tags with which EC2 makes a resource.
func TagSpecification(kind types.ResourceType, tags map[string]string) types.TagSpecification {
	return types.TagSpecification{ResourceType: kind, Tags: EC2Tags(tags)}
}

// Filter returns a filter of EC2, which takes FilterValues values.
func Filter(name string, values ...string) types.Filter {
	return types.Filter{Name: sdk.String(name), Values: values}
}

// TagFilter is Filter for the tag with a key.
func TagFilter(key string, values ...string) types.Filter { return Filter("tag:"+key, values...) }

// KindFilters returns filters for what has the tags of a kind and of a cluster, or of any cluster if that is empty.
func KindFilters(kind, cluster string) []types.Filter {
	of := Filter("tag-key", TagCluster)
	if cluster != "" {
		of = TagFilter(TagCluster, cluster)
	}
	return []types.Filter{TagFilter(TagKind, kind), of}
}

// DiffTags returns how found differs from wanted. Other tags belong to others (cost allocation,
// aws:*) and are no drift.
func DiffTags(wanted, found map[string]string) []finding.Finding {
	var out []finding.Finding
	for _, k := range slices.Sorted(maps.Keys(wanted)) {
		switch v, ok := found[k]; {
		case !ok:
			out = append(out, finding.Finding{Kind: finding.Tag, Target: k, Problem: finding.Missing, Wanted: wanted[k]})
		case v != wanted[k]:
			out = append(out, finding.Finding{Kind: finding.Tag, Target: k, Problem: finding.Value, Found: v, Wanted: wanted[k]})
		}
	}
	return out
}

// ClientToken is deterministic, so that EC2 takes a call repeated after an interruption for the
// same call. Another generation makes it a new one.
func ClientToken(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:])
}

// ELBTags is EC2Tags for Elastic Load Balancing.
func ELBTags(m map[string]string) []elbtypes.Tag {
	return tagList(m, func(key, value *string) elbtypes.Tag { return elbtypes.Tag{Key: key, Value: value} })
}

// ELBTagMap is the inverse of ELBTags.
func ELBTagMap(tags []elbtypes.Tag) map[string]string {
	return tagMap(tags, func(t elbtypes.Tag) (key, value *string) { return t.Key, t.Value })
}

// IAMTags is EC2Tags for IAM.
func IAMTags(m map[string]string) []iamtypes.Tag {
	return tagList(m, func(key, value *string) iamtypes.Tag { return iamtypes.Tag{Key: key, Value: value} })
}

// IAMTagMap is the inverse of IAMTags.
func IAMTagMap(tags []iamtypes.Tag) map[string]string {
	return tagMap(tags, func(t iamtypes.Tag) (key, value *string) { return t.Key, t.Value })
}

// CompareIDs orders two ids as EC2 returns them. One that is not said comes first.
func CompareIDs(a, b *string) int { return strings.Compare(sdk.ToString(a), sdk.ToString(b)) }

// NonZero returns nil for the zero value, which stands for what is not said.
func NonZero[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

// Only returns the only one of the ids that the tags of something lead to.
func Only(what string, ids []string) (string, error) {
	switch len(ids) {
	case 0:
		return "", fmt.Errorf("%s %w", what, ErrNotFound)
	case 1:
		return ids[0], nil
	}
	return "", fmt.Errorf("%s is not the only one with its tags: choose one of %s by its id", what, strings.Join(ids, ", "))
}
