package owned

import (
	"context"
	"errors"
	"iter"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/list"
	"github.com/hashicorp/terraform-plugin-framework/list/schema"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/argument"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/session"
)

// Target is what an imported object is written into: a state, or the resource of a list.
type Target interface {
	Get(ctx context.Context, target any) diag.Diagnostics
	Set(ctx context.Context, val any) diag.Diagnostics
	SetAttribute(ctx context.Context, path path.Path, val any) diag.Diagnostics
}

// Found is an object that a list has found.
type Found struct {
	Name     string            // shown to people
	ID       string            // an import id that leads to nothing else
	Identity map[string]string // without account and region
}

// Lister says how the objects of one type of resource are found by their tags.
type Lister struct {
	Name string // of the resource: "machine"
	What string // in descriptions and messages: "machines"
	// Note is added to the description.
	Note string
	// Each yields the objects of a cluster, or of every cluster if that is empty.
	Each func(ctx context.Context, c *infraaws.Client, cluster string) iter.Seq2[Found, error]
	// Find sets the resource to the object that an import id names. It changes nothing in AWS.
	Find func(ctx context.Context, d *session.Session, id string, into Target, diags *diag.Diagnostics)
}

// List is the list resource of a [Lister].
type List struct {
	session.Base
	Lister
}

var _ list.ListResourceWithConfigure = (*List)(nil)

// Lister returns the lister of the resource.
func (r *Resource[M, P]) Lister(what, note string, each func(ctx context.Context, c *infraaws.Client, cluster string) iter.Seq2[Found, error]) Lister {
	return Lister{r.Name, what, note, each, func(ctx context.Context, d *session.Session, id string, into Target, diags *diag.Diagnostics) {
		r.Session = d
		r.find(ctx, d, id, into, diags)
	}}
}

// Metadata implements list.ListResource.
func (l *List) Metadata(_ context.Context, req resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_" + l.Name
}

// ListResourceConfigSchema implements list.ListResource.
func (l *List) ListResourceConfigSchema(_ context.Context, _ list.ListResourceSchemaRequest, resp *list.ListResourceSchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "Lists the " + l.What + " of this provider in its AWS account and region, of every Terraform state. It finds them by their tags, which anybody with the right " +
			"can copy or remove. An import checks the object and its claim." + l.Note + " Needs Terraform 1.14.",
		Attributes: map[string]schema.Attribute{
			"cluster": schema.StringAttribute{
				Optional: true, MarkdownDescription: "Name of the cluster. Default: every cluster.", Validators: []validator.String{argument.ClusterName()},
			},
		},
	}
}

// List implements list.ListResource. It asks for a page only while more is wanted.
func (l *List) List(ctx context.Context, req list.ListRequest, stream *list.ListResultsStream) {
	stream.Results = func(push func(list.ListResult) bool) {
		var diags diag.Diagnostics
		var cluster types.String
		diags.Append(req.Config.GetAttribute(ctx, path.Root("cluster"), &cluster)...)
		fail := func(err error) {
			session.AddError(&diags, "Cannot list the "+l.What, err)
			push(list.ListResult{Diagnostics: diags})
		}
		if diags.HasError() {
			push(list.ListResult{Diagnostics: diags})
			return
		}
		client, account, err := l.account(ctx)
		if err != nil {
			fail(err)
			return
		}
		pushed := int64(0)
		for found, err := range l.Each(ctx, client, cluster.ValueString()) {
			if err != nil {
				fail(err)
				return
			}
			result := l.result(ctx, req, found, account, client.Region)
			if pushed++; !push(result) || pushed == req.Limit {
				return
			}
		}
	}
}

// account returns the client, and the account in which it works.
func (l *List) account(ctx context.Context) (*infraaws.Client, string, error) {
	if l.Session == nil {
		return nil, "", errors.New("the provider is not configured")
	}
	client, err := l.Session.AWS(ctx)
	if err != nil {
		return nil, "", err
	}
	account, _, err := l.Session.Identity(ctx, client)
	return client, account, err
}

// result returns one object with its identity, and as a resource if that is wanted.
func (l *List) result(ctx context.Context, req list.ListRequest, found Found, account, region string) list.ListResult {
	result := req.NewListResult(ctx)
	result.DisplayName = found.Name
	set := func(name, value string) {
		result.Diagnostics.Append(result.Identity.SetAttribute(ctx, path.Root(name), value)...)
	}
	for name, value := range found.Identity {
		set(name, value)
	}
	set("account_id", account)
	set("region", region)
	if req.IncludeResource {
		var diags diag.Diagnostics
		l.Find(ctx, l.Session, found.ID, result.Resource, &diags)
		for _, d := range diags { // one object that cannot be read is no reason to lose the others
			result.Diagnostics.AddWarning("Of "+found.Name+" only the id is known", d.Summary()+": "+d.Detail())
		}
	}
	return result
}

// Each yields what of makes of objects. An error is the last that it yields.
func Each[T any](objects iter.Seq2[T, error], of func(T) Found) iter.Seq2[Found, error] {
	return func(yield func(Found, error) bool) {
		for o, err := range objects {
			if err != nil {
				yield(Found{}, err)
				return
			}
			if !yield(of(o), nil) {
				return
			}
		}
	}
}

// Named is an object that has a name in its cluster, and an id in EC2.
func Named(cluster, name, id string) Found {
	return Found{Name: cluster + "/" + name, ID: id, Identity: map[string]string{"cluster": cluster, "name": name}}
}

// OfCluster is an object of which a cluster has one.
func OfCluster(cluster string) Found {
	return Found{Name: cluster, ID: cluster, Identity: map[string]string{"cluster": cluster}}
}
