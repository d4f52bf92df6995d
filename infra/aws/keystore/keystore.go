// Package keystore keeps the keys and certificates of a cluster in SSM Parameter Store. What a key is for, and when it
// is replaced, may not enter: package pki says that.
package keystore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/aws/aws-sdk-go-v2/service/ssm/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/parallel"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
)

// kind is the kind of every parameter in its tags.
const kind = "key"

// Config says where in SSM Parameter Store a cluster's keys are.
type Config struct {
	Cluster string
	// Prefix begins the parameters' names; empty means DefaultPrefix.
	Prefix string
	// KMSKeyID is the key that encrypts them; empty means the account's alias/aws/ssm.
	KMSKeyID string
	// Region is the parameters' region; empty means the client's.
	Region string
	Tags   map[string]string
	// Claim says who owns the keys; see [Store.Claim].
	Claim aws.Claim
}

// DefaultPrefix returns the default prefix of a cluster's parameters.
func DefaultPrefix(cluster string) string { return "/k8s/" + cluster + "/pki/" }

// Store keeps private keys as SecureString parameters and certificates as plain ones. It never
// overwrites a key or certificate with another.
type Store struct {
	client *aws.Client
	cfg    Config
}

var _ pki.Store = (*Store)(nil)

// New returns a key store. It sends nothing.
func New(c *aws.Client, cfg Config) *Store {
	if cfg.Prefix == "" {
		cfg.Prefix = DefaultPrefix(cfg.Cluster)
	}
	if !strings.HasSuffix(cfg.Prefix, "/") {
		cfg.Prefix += "/"
	}
	return &Store{client: c, cfg: cfg}
}

func (s *Store) region(o *ssm.Options) {
	if s.cfg.Region != "" {
		o.Region = s.cfg.Region
	}
}

// put writes a parameter. It retries while the name cannot be used again yet, or another write of
// it is under way.
func (s *Store) put(ctx context.Context, in *ssm.PutParameterInput) (*ssm.PutParameterOutput, error) {
	return s.client.SSM.PutParameter(ctx, in, s.region, s.client.RetrySSM(reuseAttempts, "TooManyUpdates"))
}

// reuseAttempts lasts about 45 seconds: Parameter Store does not let a name be used again until
// 30 seconds after its deletion.
const reuseAttempts = 30

// Get implements pki.Store.
func (s *Store) Get(ctx context.Context, name string) ([]byte, error) {
	if err := pki.CheckName(name); err != nil {
		return nil, err
	}
	out, err := s.client.SSM.GetParameter(ctx, &ssm.GetParameterInput{
		Name: sdk.String(s.cfg.Prefix + name), WithDecryption: sdk.Bool(true),
	}, s.region)
	var missing *types.ParameterNotFound
	if errors.As(err, &missing) {
		return nil, fmt.Errorf("parameter %s%s: %w", s.cfg.Prefix, name, pki.ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("read parameter %s%s: %w", s.cfg.Prefix, name, err)
	}
	return []byte(sdk.ToString(out.Parameter.Value)), nil
}

// Create implements pki.Store.
func (s *Store) Create(ctx context.Context, name string, value []byte) error {
	if err := pki.CheckName(name); err != nil {
		return err
	}
	in := &ssm.PutParameterInput{
		Name: sdk.String(s.cfg.Prefix + name), Value: sdk.String(string(value)),
		Type: types.ParameterTypeString, Overwrite: sdk.Bool(false),
		Description: sdk.String("Kubernetes cluster " + s.cfg.Cluster + ": " + name),
		Tags:        s.tags(name),
	}
	if pki.Secret(name) {
		in.Type = types.ParameterTypeSecureString
		if s.cfg.KMSKeyID != "" {
			in.KeyId = &s.cfg.KMSKeyID
		}
	}
	_, err := s.put(ctx, in)
	var exists *types.ParameterAlreadyExists
	if errors.As(err, &exists) {
		return fmt.Errorf("parameter %s%s: %w", s.cfg.Prefix, name, pki.ErrExists)
	}
	if err != nil {
		return fmt.Errorf("create parameter %s%s: %w", s.cfg.Prefix, name, err)
	}
	return nil
}

// Replace implements pki.Store.
func (s *Store) Replace(ctx context.Context, name string, value []byte) error {
	if err := pki.CheckPublicName(name); err != nil {
		return err
	}
	err := s.Create(ctx, name, value)
	if !errors.Is(err, pki.ErrExists) {
		return err
	}
	// Tags are allowed only for a new parameter; an existing one keeps its tags.
	if _, err := s.put(ctx, &ssm.PutParameterInput{
		Name: sdk.String(s.cfg.Prefix + name), Value: sdk.String(string(value)),
		Type: types.ParameterTypeString, Overwrite: sdk.Bool(true),
	}); err != nil {
		return fmt.Errorf("write parameter %s%s: %w", s.cfg.Prefix, name, err)
	}
	return nil
}

// Delete implements pki.Store.
func (s *Store) Delete(ctx context.Context, name string) error {
	if err := pki.CheckName(name); err != nil {
		return err
	}
	_, err := s.client.SSM.DeleteParameter(ctx, &ssm.DeleteParameterInput{Name: sdk.String(s.cfg.Prefix + name)}, s.region)
	var missing *types.ParameterNotFound
	if errors.As(err, &missing) {
		return fmt.Errorf("parameter %s%s: %w", s.cfg.Prefix, name, pki.ErrNotFound)
	}
	if err != nil {
		return fmt.Errorf("delete parameter %s%s: %w", s.cfg.Prefix, name, err)
	}
	return nil
}

// List implements pki.Store.
func (s *Store) List(ctx context.Context) ([]string, error) {
	found, err := s.Look(ctx)
	return slices.Sorted(maps.Keys(found)), err
}

// pages calls f for every entry. Private values are still encrypted.
func (s *Store) pages(ctx context.Context, f func(types.Parameter)) error {
	pages := ssm.NewGetParametersByPathPaginator(s.client.SSM, &ssm.GetParametersByPathInput{
		Path: sdk.String(strings.TrimSuffix(s.cfg.Prefix, "/")), WithDecryption: sdk.Bool(false), MaxResults: sdk.Int32(10),
	})
	found, err := aws.All(ctx, pages, func(p *ssm.GetParametersByPathOutput) []types.Parameter { return p.Parameters }, s.region)
	if err != nil {
		return fmt.Errorf("list parameters under %s: %w", s.cfg.Prefix, err)
	}
	for _, p := range found {
		f(p)
	}
	return nil
}

// Region returns the parameters' region.
func (s *Store) Region() string {
	if s.cfg.Region != "" {
		return s.cfg.Region
	}
	return s.client.Region
}

// Look returns the values of the public entries by name, and the names of private entries with
// empty values. It makes one call per ten entries.
func (s *Store) Look(ctx context.Context) (map[string]string, error) {
	found := map[string]string{}
	err := s.pages(ctx, func(p types.Parameter) {
		found[strings.TrimPrefix(sdk.ToString(p.Name), s.cfg.Prefix)] = ""
		if p.Type == types.ParameterTypeString {
			found[strings.TrimPrefix(sdk.ToString(p.Name), s.cfg.Prefix)] = sdk.ToString(p.Value)
		}
	})
	return found, err
}

// Rewrap encrypts every private entry again, with the configured KMS key.
func (s *Store) Rewrap(ctx context.Context) error {
	names, err := s.List(ctx)
	if err != nil {
		return err
	}
	g, gctx := parallel.WithContext(ctx)
	for _, name := range pki.Owned(names) {
		if !pki.Secret(name) {
			continue
		}
		g.Go(func() error {
			value, err := s.Get(gctx, name)
			if err != nil {
				return err
			}
			in := &ssm.PutParameterInput{
				Name: sdk.String(s.cfg.Prefix + name), Value: sdk.String(string(value)),
				Type: types.ParameterTypeSecureString, Overwrite: sdk.Bool(true), KeyId: sdk.String(s.keyID()),
			}
			if _, err := s.put(gctx, in); err != nil {
				return fmt.Errorf("encrypt parameter %s%s with %s: %w", s.cfg.Prefix, name, s.keyID(), err)
			}
			return nil
		})
	}
	return g.Wait()
}

// Retag writes the tags on every entry and removes the tags with the given keys.
func (s *Store) Retag(ctx context.Context, removed []string) error {
	names, err := s.List(ctx)
	if err != nil {
		return err
	}
	g, gctx := parallel.WithContext(ctx)
	for _, name := range pki.Owned(names) {
		id := sdk.String(s.cfg.Prefix + name)
		g.Go(func() error {
			_, err := s.client.SSM.AddTagsToResource(gctx, &ssm.AddTagsToResourceInput{
				ResourceType: types.ResourceTypeForTaggingParameter, ResourceId: id, Tags: s.tags(name),
			}, s.region)
			if err == nil && len(removed) > 0 {
				_, err = s.client.SSM.RemoveTagsFromResource(gctx, &ssm.RemoveTagsFromResourceInput{
					ResourceType: types.ResourceTypeForTaggingParameter, ResourceId: id, TagKeys: removed,
				}, s.region)
			}
			if err != nil {
				return fmt.Errorf("tag parameter %s: %w", *id, err)
			}
			return nil
		})
	}
	return g.Wait()
}

// Purge deletes every key and certificate of all generations: public ones first, so that a
// bootstrap can follow an interrupted Purge, and last whose they are. It makes one call per ten
// entries. Entries that do not exist are no error. The error is a ClaimedError if the keys belong
// to another owner.
func (s *Store) Purge(ctx context.Context) error {
	if err := s.Check(ctx); err != nil {
		return err
	}
	present, err := s.List(ctx)
	if err != nil {
		return err
	}
	for _, names := range pki.InOrderOfRemoval(pki.Owned(present)) {
		var batch []string
		for _, n := range names {
			batch = append(batch, s.cfg.Prefix+n)
		}
		for chunk := range slices.Chunk(batch, 10) {
			if _, err := s.client.SSM.DeleteParameters(ctx, &ssm.DeleteParametersInput{Names: chunk}, s.region); err != nil {
				return fmt.Errorf("delete parameters under %s: %w", s.cfg.Prefix, err)
			}
		}
	}
	return nil
}

func (s *Store) keyID() string {
	if s.cfg.KMSKeyID != "" {
		return s.cfg.KMSKeyID
	}
	return "alias/aws/ssm"
}

func (s *Store) tags(name string) []types.Tag {
	var out []types.Tag
	all := s.client.ClusterTags(s.cfg.Cluster, kind, name, s.cfg.Tags)
	maps.Copy(all, s.cfg.Claim.Tags())
	for _, t := range aws.EC2Tags(all) {
		out = append(out, types.Tag{Key: t.Key, Value: t.Value})
	}
	return out
}
