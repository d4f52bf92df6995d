package etcd

import (
	"context"
	"fmt"
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/patience"
)

// DeleteUnder deletes the keys under a prefix, except those that are the prefix and one of the names
// in keep. It returns the deleted keys, in order.
func (c *Client) DeleteUnder(ctx context.Context, prefix string, keep ...string) ([]string, error) {
	var deleted []string
	from, end := prefix, clientv3.GetPrefixRangeEnd(prefix)
	for {
		keys, more, err := c.keys(ctx, from, end)
		if err != nil {
			return deleted, fmt.Errorf("listing the keys of etcd %s under %s: %w", c.endpoint, prefix, err)
		}
		for _, key := range keys {
			if slices.Contains(keep, strings.TrimPrefix(key, prefix)) {
				continue
			}
			if err := c.delete(ctx, key); err != nil {
				return deleted, fmt.Errorf("deleting %s in etcd %s: %w", key, c.endpoint, err)
			}
			deleted = append(deleted, key)
		}
		if !more {
			return deleted, nil
		}
		from = keys[len(keys)-1] + "\x00"
	}
}

func (c *Client) delete(ctx context.Context, key string) error {
	ctx, cancel := context.WithTimeout(ctx, patience.Of(ctx, requestTimeout))
	defer cancel()
	_, err := c.cli.Delete(ctx, key)
	return err
}
