package etcd

import (
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/patience"
)

const (
	// keysPage is how many keys one request reads.
	keysPage = 500
	// comparisons is how many keys are compared in one transaction: well below etcd's default of
	// 128 operations (--max-txn-ops), inner ones included.
	comparisons = 64
)

// Unlike returns the keys under keyPrefix whose values do not begin with valuePrefix, and the
// number of all keys. etcd compares the values itself and does not send them.
func (c *Client) Unlike(ctx context.Context, keyPrefix, valuePrefix string) (unlike []string, total int, err error) {
	from, end := keyPrefix, clientv3.GetPrefixRangeEnd(keyPrefix)
	for {
		keys, more, err := c.keys(ctx, from, end)
		if err != nil {
			return nil, 0, fmt.Errorf("listing the keys of etcd %s under %s: %w", c.endpoint, keyPrefix, err)
		}
		if len(keys) == 0 {
			return unlike, total, nil
		}
		last := keys[len(keys)-1]
		all, err := c.allBegin(ctx, keys[0], last+"\x00", valuePrefix)
		if err != nil {
			return nil, 0, err
		}
		if !all {
			no, err := c.NotBeginning(ctx, keys, valuePrefix)
			if err != nil {
				return nil, 0, err
			}
			unlike = append(unlike, no...)
		}
		if total += len(keys); !more {
			return unlike, total, nil
		}
		from = last + "\x00"
	}
}

func (c *Client) keys(ctx context.Context, from, end string) (keys []string, more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience.Of(ctx, requestTimeout))
	defer cancel()
	resp, err := c.cli.Get(ctx, from, clientv3.WithRange(end), clientv3.WithKeysOnly(), clientv3.WithLimit(keysPage))
	if err != nil {
		return nil, false, err
	}
	for _, kv := range resp.Kvs {
		keys = append(keys, string(kv.Key))
	}
	return keys, resp.More, nil
}

// allBegin reports whether every value in a range of keys begins with a prefix. It only reads, and
// its cost does not depend on the size of the values.
func (c *Client) allBegin(ctx context.Context, from, end, valuePrefix string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, patience.Of(ctx, requestTimeout))
	defer cancel()
	low, high := begins(from, valuePrefix)
	resp, err := c.cli.Txn(ctx).If(low.WithRange(end), high.WithRange(end)).Commit()
	if err != nil {
		return false, fmt.Errorf("comparing values of etcd %s from %s on: %w", c.endpoint, from, err)
	}
	return resp.Succeeded, nil
}

// NotBeginning returns the keys whose values do not begin with a prefix. It leaves out keys that do
// not exist any more.
func (c *Client) NotBeginning(ctx context.Context, keys []string, valuePrefix string) ([]string, error) {
	var out []string
	for len(keys) > 0 {
		n := min(comparisons, len(keys))
		no, err := c.notBeginning(ctx, keys[:n], valuePrefix)
		if err != nil {
			return nil, fmt.Errorf("comparing values of etcd %s from %s on: %w", c.endpoint, keys[0], err)
		}
		out, keys = append(out, no...), keys[n:]
	}
	return out, nil
}

func (c *Client) notBeginning(ctx context.Context, keys []string, valuePrefix string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience.Of(ctx, requestTimeout))
	defer cancel()
	var each []clientv3.Op
	for _, key := range keys {
		low, high := begins(key, valuePrefix)
		there := clientv3.OpGet(key, clientv3.WithCountOnly())
		each = append(each, clientv3.OpTxn([]clientv3.Cmp{low, high}, nil, []clientv3.Op{there}))
	}
	resp, err := c.cli.Txn(ctx).Then(each...).Commit()
	if err != nil {
		return nil, err
	}
	var out []string
	for i, r := range resp.Responses {
		inner := r.GetResponseTxn()
		if inner == nil || i >= len(keys) || !inner.Succeeded && len(inner.Responses) == 0 {
			return nil, errors.New("the answer does not fit the question")
		}
		if !inner.Succeeded && inner.Responses[0].GetResponseRange().GetCount() > 0 {
			out = append(out, keys[i])
		}
	}
	return out, nil
}

// begins returns the comparisons that hold for values that begin with a prefix and are longer than
// it.
func begins(key, valuePrefix string) (low, high clientv3.Cmp) {
	return clientv3.Compare(clientv3.Value(key), ">", valuePrefix),
		clientv3.Compare(clientv3.Value(key), "<", clientv3.GetPrefixRangeEnd(valuePrefix))
}
