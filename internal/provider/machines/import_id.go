package machines

import (
	"context"
	"regexp"
	"strings"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
)

var (
	instanceID = regexp.MustCompile(`^i-([0-9a-f]{8}|[0-9a-f]{17})$`)
	// fingerprint is that of an SSH host key, after # in the import id of a machine.
	fingerprint = regexp.MustCompile(`^SHA256:[0-9A-Za-z+/]{43}$`)
	volumeID    = regexp.MustCompile(`^vol-([0-9a-f]{8}|[0-9a-f]{17})$`)
)

// namedID returns the parts of an import id: an id of EC2 alone, "<cluster>/<id>", or "<cluster>/<name>". For a name it
// asks for the id. named says that there is a cluster.
func namedID(ctx context.Context, c *infraaws.Client, s string, isID *regexp.Regexp, ask func(ctx context.Context, c *infraaws.Client, cluster, name string) (string, error)) (cluster, id string, named bool, err error) {
	if cluster, id, named = strings.Cut(s, "/"); !named {
		return "", s, false, nil
	}
	if !isID.MatchString(id) {
		id, err = ask(ctx, c, cluster, id)
	}
	return cluster, id, true, err
}
