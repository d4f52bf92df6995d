package session

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"sync"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/keystore"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/parallel"
)

// claims are the claims that one process has made. It is safe for concurrent use.
type claims struct {
	mu     sync.Mutex
	run    string // random; the first part of every claim
	number int
	// ids and stores are what creates have made that ended well, by claim.
	ids    map[string][]string
	stores map[string]*keystore.Store
}

// next returns the id of a new claim.
func (c *claims) next(rand io.Reader) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.run == "" {
		b := make([]byte, 8)
		if _, err := io.ReadFull(rand, b); err != nil {
			return "", fmt.Errorf("make a claim: %w", err)
		}
		c.run = hex.EncodeToString(b)
	}
	c.number++
	return fmt.Sprintf("%s-%d", c.run, c.number), nil
}

// Made notes that a create has ended well: Terraform has the claim once it has the answer.
func (c *claims) Made(claim infraaws.Claim, ids []string, store *keystore.Store) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ids == nil {
		c.ids, c.stores = map[string][]string{}, map[string]*keystore.Store{}
	}
	if len(ids) > 0 {
		c.ids[claim.ID] = ids
	}
	if store != nil {
		c.stores[claim.ID] = store
	}
}

// Gone notes that what a claim was for has been deleted.
func (c *claims) Gone(claim infraaws.Claim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.ids, claim.ID)
	delete(c.stores, claim.ID)
}

// ClaimID returns the first known id of a claim, else that of a new one.
func (d *Session) ClaimID(known ...string) (string, error) {
	if id := cmp.Or(known...); id != "" {
		return id, nil
	}
	return d.Claims.next(d.Rand)
}

// SettleAll makes two calls for what is in EC2, and two for each key store.
func (d *Session) SettleAll(ctx context.Context) error {
	d.Claims.mu.Lock()
	defer d.Claims.mu.Unlock()
	if len(d.Claims.ids)+len(d.Claims.stores) == 0 {
		return nil
	}
	client, err := d.LoadAWS()
	if err != nil {
		return err
	}
	var g parallel.Group
	g.Go(func() error { return client.SettleMade(ctx, d.Claims.ids, d.Now()) })
	for _, s := range d.Claims.stores {
		g.Go(func() error { return s.Settle(ctx, d.Now()) })
	}
	return g.Wait()
}
