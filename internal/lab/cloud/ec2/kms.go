package ec2

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"regexp"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
)

// The KMS keys of volumes. The account has no KMS: every key of its region can be used, with any name and
// by every caller, unless the fault "key" says that it is disabled or does not exist.

// kmsKey matches the ARN of a KMS key.
var kmsKey = regexp.MustCompile(`^arn:aws(?:-cn|-us-gov)?:kms:([a-z0-9-]+):[0-9]{12}:key/(?:mrk-[0-9a-f]{32}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})$`)

// defaultKey is the key of the account for EBS.
const defaultKey = "alias/aws/ebs"

// keyARN returns the ARN of the key with an id, an ARN or an alias, or of the account's for EBS if there is
// no name. What can be no name of a key stays as it is.
func (c *Compute) keyARN(name string) string {
	name = cmp.Or(name, defaultKey)
	prefix := "arn:" + wire.Partition(c.cfg.Region) + ":kms:" + c.cfg.Region + ":" + c.cfg.AccountID + ":"
	if kmsKey.MatchString(name) {
		return name
	}
	if alias, ok := strings.CutPrefix(strings.TrimPrefix(name, prefix), "alias/"); ok {
		sum := sha256.Sum256([]byte(alias))
		return fmt.Sprintf("%skey/%x-%x-%x-%x-%x", prefix, sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
	}
	if arn := prefix + "key/" + name; kmsKey.MatchString(arn) {
		return arn
	}
	return name
}

// encrypt sets the key of a volume, by default that of the account. One with a key is encrypted, or the request was refused.
func (t *tx) encrypt(v *volume, encrypted bool, key string) {
	if v.Encrypted = encrypted || t.st.Settings.Encrypt; v.Encrypted {
		v.KMSKeyID = t.c.keyARN(cmp.Or(key, t.st.Settings.Key))
	}
}

// keyUsable reports whether a key can be used.
func (c *Compute) keyUsable(arn string) bool {
	parts := kmsKey.FindStringSubmatch(arn)
	if parts == nil || parts[1] != c.cfg.Region {
		return false
	}
	for _, name := range c.faults.UnusableKeys() {
		if c.keyARN(name) == arn {
			return false
		}
	}
	return true
}

// What EC2 says of an instance that ends because of a key: when it is launched, and when it is started.
var (
	reasonKeyState = stateReason{"Client.InvalidKMSKey.InvalidState", "Client.InvalidKMSKey.InvalidState: The KMS key provided is in an incorrect state"}
	reasonKeyLost  = stateReason{"Client.InternalError", "Client.InternalError: Client error on launch"}
)

// keyReason returns why an instance cannot boot if a key of its volumes cannot be used.
func (c *Compute) keyReason(i instance) (stateReason, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, v := range (&tx{c: c, st: c.st}).attachedTo(&i) {
		switch {
		case !v.Encrypted || c.keyUsable(v.KMSKeyID):
		case i.Booted:
			return reasonKeyLost, true
		default:
			return reasonKeyState, true
		}
	}
	return stateReason{}, false
}

// launchFailed ends an instance that was launched, and stops one that was started.
func (c *Compute) launchFailed(ctx context.Context, id string, reason stateReason) {
	c.change(ctx, id, statePending, func(t *tx, i *instance) {
		if i.Booted {
			i.set(stateStopping, reason, reason.Code)
			t.stopped(i)
			return
		}
		i.set(stateShuttingDown, reason, reason.Code)
		t.afterCommit(func() { c.terminate(id) })
	})
}

// loseVolume ends a volume that could not be made, since its key cannot be used: it vanishes.
func (c *Compute) loseVolume(id string) {
	c.wg.Go(func() {
		err := c.update("", nil, func(t *tx) error {
			if v := t.st.Volumes[id]; v != nil {
				t.deleteVolume(v)
			}
			return nil
		})
		if err != nil {
			c.log.Error("a volume without a usable key could not be deleted", "volume", id, "error", err)
		}
	})
}
