package keys_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"
	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	awsobject "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/object"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/keycopy"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/account"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/iam"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
)

func copyConfig(keys *providertest.Instance, recipients ...any) providertest.Values {
	return providertest.Values{"pki": keys.Get("ref"), "recipients": recipients, "bucket": providertest.Copies}
}

// hidden fails the test if a plan or state has a part of a secret.
func hidden(t *testing.T, what string, text any, secrets ...string) {
	t.Helper()
	raw, err := json.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range append(secrets, "PRIVATE KEY") {
		if bytes.Contains(raw, []byte(s)) {
			t.Errorf("%s has a secret: %.300s", what, raw)
		}
	}
}

// TestKeysFromACopy copies the keys of a cluster, destroys them, and makes them again from the copy.
func TestKeysFromACopy(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	c.Account.S3.Make(providertest.Copies, "us-east-1")
	identity, recipient := providertest.AgeIdentity(t)
	keys, copied := c.Instance("k8s_pki"), c.Instance("k8s_pki_copy")
	rotated := providertest.Values{"cluster": "demo", "generations": providertest.Values{"kubernetes_ca": []any{2, 1}, "encryption": []any{2, 1}}}
	keys.Must(providertest.Values{"cluster": "demo"})
	keys.Must(providertest.Values{"cluster": "demo", "generations": providertest.Values{"kubernetes_ca": []any{1, 2}, "encryption": []any{1, 2}}})
	copied.Must(copyConfig(keys, recipient))
	first := copied.Get("key")
	keys.Must(rotated)
	config := copyConfig(keys, recipient)
	copied.Must(config)
	copied.Converged(config)
	key, _ := copied.Get("key").(string)
	if !strings.HasPrefix(key, "k8s/demo/keys/") || !strings.HasSuffix(key, keycopy.Extension) || key == first || len(c.Account.S3.Keys(providertest.Copies)) != 2 || copied.Get("id") != providertest.Copies+"/k8s/demo/keys/" {
		t.Errorf("key %v after %v, objects %v", key, first, c.Account.S3.Keys(providertest.Copies))
	}
	before, ref := c.Parameters("demo"), keys.Get("ref").(providertest.Values)
	secret := strings.TrimSpace(before["encryption-2.key"])
	hidden(t, "the state of the copy", providertest.Plain(copied.State), secret)
	hidden(t, "the object", string(c.Account.S3.Get(providertest.Copies, key).Content), secret)
	again, err := keycopy.Decrypt(c.Account.S3.Get(providertest.Copies, key).Content, identity)
	if err != nil || again.Cluster != "demo" {
		t.Errorf("the object: %v, %v", again, err)
	}

	// The end of everything but the copy.
	c.Fatal(copied.Dismiss().Errors)
	c.Fatal(keys.Dismiss().Errors)
	if len(c.Parameters("demo")) != 0 || len(c.Account.S3.Keys(providertest.Copies)) != 2 {
		t.Fatalf("%d parameters and %d copies are left", len(c.Parameters("demo")), len(c.Account.S3.Keys(providertest.Copies)))
	}

	c = c.Ends(t)
	restored := c.Instance("k8s_pki")
	from := providertest.With(rotated, providertest.Restoring(key, identity))
	ch := restored.Plan(from)
	hidden(t, "the plan", providertest.Plain(ch.Planned), identity)
	said := restored.CarryOut(ch)
	if c.Fatal(said.Errors); len(said.Warnings) > 0 {
		t.Errorf("warnings: %v", said.Warnings)
	}
	if after := c.Parameters("demo"); !maps.Equal(before, after) {
		t.Errorf("%d keys came back, there were %d", len(after), len(before))
	}
	if restored.Get("ref").(providertest.Values)["kubernetes_ca_pem"] != ref["kubernetes_ca_pem"] {
		t.Error("the reference has changed")
	}
	restored.Leaks()
	hidden(t, "the state", providertest.Plain(restored.State), identity, secret)
	restored.Converged(from)

	// Later changes of restore_from do nothing, without the identity as well.
	c = c.Ends(t)
	restored = c.Taken(restored)
	restored.Converged(rotated)
	restored.Converged(providertest.With(rotated, providertest.Values{"restore_from": providertest.Values{"bucket": "another", "key": "k", "region": "eu-central-1"}}))

	// A copy of the same keys has the same name.
	copied = c.Instance("k8s_pki_copy")
	copied.Must(copyConfig(restored, recipient))
	if got := copied.Get("key"); got != key {
		t.Errorf("the same keys are now %v", got)
	}

	// Under another name, and in the state.
	other := c.Instance("k8s_pki")
	said = other.CarryOut(other.Plan(providertest.With(from, providertest.Values{"cluster": "other", "key_store": "state"})))
	if c.Fatal(said.Errors); len(said.Warnings) != 1 || said.Warnings[0].Summary != "Cluster other has the keys of cluster demo" {
		t.Errorf("warnings: %v", said.Warnings)
	}
	if got := other.Get("ref").(providertest.Values)["keys"].(providertest.Values)["encryption-2.key"]; got != before["encryption-2.key"] {
		t.Error("the state has other keys")
	}
	ofState := c.Instance("k8s_pki_copy")
	ofState.Must(copyConfig(other, recipient))
	if got := ofState.Get("key"); got != strings.Replace(key, "/demo/", "/other/", 1) {
		t.Errorf("the same keys are %v of the key store state", got)
	}
}

// TestRestoreFromLater: restore_from on existing keys is recorded and changes nothing.
func TestRestoreFromLater(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	identity, _ := providertest.AgeIdentity(t)
	keys := c.Instance("k8s_pki")
	keys.Must(providertest.Values{"cluster": "demo"})
	before := c.Parameters("demo")
	ch := keys.Plan(providertest.Restoring("k", identity))
	if len(ch.Warnings) != 1 || ch.Warnings[0].Summary != "restore_from has no effect" || len(ch.Replace) > 0 {
		t.Errorf("%s %v", ch.Failure(), ch.Warnings)
	}
	if d := keys.Differences(ch); strings.Contains(d, `"ref"`) || strings.Contains(d, identity) {
		t.Errorf("it changes %s", d)
	}
	c.Fatal(keys.Apply(ch))
	keys.Converged(providertest.Restoring("k", identity))
	if !maps.Equal(before, c.Parameters("demo")) {
		t.Error("the keys have changed")
	}
}

// TestCopyDrift: a copy that is lost or changed is drift, and is written again.
func TestCopyDrift(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	c.Account.S3.Make(providertest.Copies, "us-east-1")
	identity, recipient := providertest.AgeIdentity(t)
	_, second := providertest.AgeIdentity(t)
	keys, copied := c.Instance("k8s_pki"), c.Instance("k8s_pki_copy")
	keys.Must(providertest.Values{"cluster": "demo"})
	config := providertest.With(copyConfig(keys, recipient), providertest.Values{"kms_key_id": "alias/copies"})
	copied.Must(config)
	key := copied.Get("key").(string)
	if got := c.Account.S3.Get(providertest.Copies, key).KMSKeyID; got != "alias/copies" {
		t.Errorf("KMS key %q", got)
	}
	for name, test := range map[string]struct {
		damage func()
		want   string
	}{
		"lost":     {func() { c.Account.S3.Delete(providertest.Copies, key) }, "copy " + key + ": missing"},
		"replaced": {func() { c.Account.S3.Put(providertest.Copies, key, account.Object{Content: []byte("x")}) }, "copy " + key + ": content differs (sha256 found 2d711642b726.., wanted "},
	} {
		test.damage()
		copied.Refresh()
		drift, _ := copied.Get("drift").(providertest.Values)
		got, _ := drift["bucket "+providertest.Copies].(string)
		providertest.Mention(t, got, test.want)
		copied.Must(config)
		copied.Converged(config)
		if copied.Get("key") != key {
			t.Errorf("%s: the key is %v", name, copied.Get("key"))
		}
		if _, err := keycopy.Decrypt(c.Account.S3.Get(providertest.Copies, key).Content, identity); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}

	t.Run("the same content without a digest", func(t *testing.T) {
		o := c.Account.S3.Get(providertest.Copies, key)
		c.Account.S3.Put(providertest.Copies, key, account.Object{Content: o.Content})
		copied.Converged(config)
	})
	t.Run("changed arguments", func(t *testing.T) {
		c.Account.S3.Make("elsewhere", "eu-central-1")
		config := providertest.With(config, providertest.Values{"bucket": "elsewhere", "region": "eu-central-1", "prefix": "a/", "recipients": []any{second}, "kms_key_id": nil})
		copied.Must(config)
		copied.Converged(config)
		moved := copied.Get("key").(string)
		if o := c.Account.S3.Get("elsewhere", moved); o.KMSKeyID != "" || !strings.HasPrefix(moved, "a/") || len(c.Account.S3.Keys(providertest.Copies)) != 1 {
			t.Errorf("%s: %+v, %v", moved, o, c.Account.S3.Keys(providertest.Copies))
		}
		if _, err := keycopy.Decrypt(c.Account.S3.Get("elsewhere", moved).Content, identity); err == nil {
			t.Error("the identity of a former recipient decrypts it")
		}
	})
	t.Run("only timeouts", func(t *testing.T) {
		config := providertest.With(config, providertest.Values{"bucket": "elsewhere", "region": "eu-central-1", "prefix": "a/", "recipients": []any{second}, "kms_key_id": nil, "timeouts": providertest.Values{"read": "1m"}})
		sum := copied.Get("sha256")
		if copied.Must(config); copied.Get("sha256") != sum {
			t.Error("it was written again")
		}
	})
	t.Run("keys that differ from the reference", func(t *testing.T) {
		fresh := c.Instance("k8s_pki")
		fresh.Must(providertest.Values{"cluster": "fresh"})
		ref := providertest.With(fresh.Get("ref").(providertest.Values), providertest.Values{"kubernetes_ca_pem": keys.Get("ref").(providertest.Values)["kubernetes_ca_pem"]})
		providertest.Mention(t, c.Instance("k8s_pki_copy").Attempt(providertest.With(config, providertest.Values{"pki": ref})), "kubernetes-ca.crt differs from the reference", "Apply k8s_pki first")
	})
	providertest.Mention(t, c.Instance("k8s_pki_copy").TryImport("x"), "writes the copy again")
}

// TestUnusableCopies: nothing is claimed or written when the copy cannot be used, and the error is on
// the argument that is at fault.
func TestUnusableCopies(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	c.Account.S3.Make(providertest.Copies, "us-east-1")
	c.Account.S3.Make("far-away", "eu-central-1")
	identity, recipient := providertest.AgeIdentity(t)
	wrong, _ := providertest.AgeIdentity(t)
	keys, copied := c.Instance("k8s_pki"), c.Instance("k8s_pki_copy")
	keys.Must(providertest.Values{"cluster": "demo"})
	copied.Must(copyConfig(keys, recipient))
	key := copied.Get("key").(string)
	good := c.Account.S3.Get(providertest.Copies, key)
	c.Account.S3.Put("far-away", key, good)
	put := func(key string, content []byte) string {
		c.Account.S3.Put(providertest.Copies, key, account.Object{Content: content})
		return key
	}
	foreign := func() []byte {
		r, err := age.ParseX25519Recipient(recipient)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		w, err := age.Encrypt(&out, r)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(w, "a tarball")
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}()
	other := func(more providertest.Values) providertest.Values {
		return providertest.With(providertest.Restoring(key, identity), providertest.With(providertest.Values{"cluster": "other"}, more))
	}
	from := func(more providertest.Values) providertest.Values {
		return other(providertest.Values{"restore_from": providertest.With(providertest.Values{"bucket": providertest.Copies, "key": key}, more)})
	}
	for name, test := range map[string]struct {
		config providertest.Values
		want   []string
	}{
		"another identity":  {other(providertest.Values{"restore_identity_wo": wrong}), []string{`"restore_identity_wo"`, "wrong identity", "encrypted for others", "Nothing was changed"}},
		"no identity":       {other(providertest.Values{"restore_identity_wo": nil}), []string{`"restore_identity_wo"`, "Missing identity"}},
		"no such identity":  {other(providertest.Values{"restore_identity_wo": recipient}), []string{`"restore_identity_wo"`, "not an age identity"}},
		"identity alone":    {other(providertest.Values{"restore_from": nil}), []string{`"restore_identity_wo"`, "restore_from"}},
		"no such object":    {from(providertest.Values{"key": "k8s/lost.age"}), []string{`"restore_from"`, "no such object", "s3://" + providertest.Copies + "/k8s/lost.age"}},
		"no such bucket":    {from(providertest.Values{"bucket": "nowhere"}), []string{`"restore_from"`, "NoSuchBucket", "makes no buckets"}},
		"another region":    {from(providertest.Values{"bucket": "far-away"}), []string{`"restore_from"`, "PermanentRedirect", "another region"}},
		"not a bucket":      {from(providertest.Values{"bucket": "s3://x"}), []string{`"restore_from"`, "without s3://"}},
		"damaged":           {from(providertest.Values{"key": put("cut", good.Content[:len(good.Content)-5])}), []string{`"restore_from"`, "the copy is damaged"}},
		"not encrypted":     {from(providertest.Values{"key": put("text", []byte("hello"))}), []string{`"restore_from"`, "not a copy of keys", "not encrypted with age"}},
		"something else":    {from(providertest.Values{"key": put("foreign", foreign)}), []string{`"restore_from"`, "not a copy of keys", "something else"}},
		"too large":         {from(providertest.Values{"key": put("large", make([]byte, keycopy.MaxSize+1))}), []string{`"restore_from"`, "more than"}},
		"renamed":           {from(providertest.Values{"key": put("k8s/demo/keys/"+strings.Repeat("0", 64)+".age", good.Content)}), []string{`"restore_from"`, "the name of these keys is " + filepath.Base(key), "Nothing was changed"}},
		"other generations": {other(providertest.Values{"generations": providertest.Values{"etcd_ca": []any{2}}}), []string{`"generations"`, "has generations [1] of etcd_ca: write generations.etcd_ca = [1]"}},
		"adopt":             {other(providertest.Values{"adopt": true}), []string{`"adopt"`, "exclude each other"}},
		"keys of a cluster": {providertest.Restoring(key, identity), []string{"belongs to another state"}},
	} {
		i := c.Instance("k8s_pki")
		got := i.Attempt(test.config)
		providertest.Mention(t, got, test.want...)
		hidden(t, name, got, identity[20:40], wrong[20:40])
		if !i.State.IsNull() {
			t.Errorf("%s: there is a state", name)
		}
		if n, err := c.Client.SSM.GetParametersByPath(t.Context(), &ssm.GetParametersByPathInput{Path: sdk.String("/k8s/other/pki")}); err != nil || len(n.Parameters) > 0 {
			t.Errorf("%s: %d parameters were written, %v", name, len(n.Parameters), err)
		}
	}
	keys.Converged(providertest.Values{"cluster": "demo"})

	t.Run("in the bucket's region", func(t *testing.T) {
		c.Instance("k8s_pki").Must(from(providertest.Values{"bucket": "far-away", "region": "eu-central-1"}))
	})
	t.Run("left by an apply without restore_from", func(t *testing.T) {
		ctx := c.Wire.Arm(t.Context(), 0, true)
		c.Wire.DieOn = "PutParameter"
		k := &providertest.Killed{T: t, Cloud: c, Object: c.Instance("k8s_pki")}
		k.Die(ctx, k.Object.Plan(providertest.Values{"cluster": "third"}))
		c = c.ProcessOver(t, &providertest.Wire{})
		put := func(name string) {
			if _, err := c.Client.SSM.PutParameter(t.Context(), &ssm.PutParameterInput{Name: sdk.String("/k8s/third/pki/" + name), Value: sdk.String("mine"), Type: "SecureString"}); err != nil {
				t.Fatal(err)
			}
		}
		put(pki.KeyEtcdCA)
		got := c.Instance("k8s_pki").Attempt(providertest.With(providertest.Restoring(key, identity), providertest.Values{"cluster": "third"}))
		providertest.Mention(t, got, `"restore_from"`, "etcd-ca.key differs from the copy", "Nothing was overwritten", "/k8s/third/pki/")
		hidden(t, "the error", got, "mine\n")
	})
}

// TestCopyAtEveryCall kills the provider at every call of a copy. The next process writes one object
// of the same name.
func TestCopyAtEveryCall(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	c.Account.S3.Make(providertest.Copies, "us-east-1")
	_, recipient := providertest.AgeIdentity(t)
	keys := c.Instance("k8s_pki")
	keys.Must(providertest.Values{"cluster": "demo"})
	before := len(c.Calls())
	copied := c.Instance("k8s_pki_copy")
	copied.Must(copyConfig(keys, recipient))
	for at := 1; at <= len(c.Calls())-before; at++ {
		next := c.ProcessOver(t, &providertest.Wire{})
		ctx := next.Wire.Arm(t.Context(), at, true)
		k := &providertest.Killed{T: t, Cloud: next, Object: next.Instance("k8s_pki_copy")}
		k.Die(ctx, k.Object.Plan(copyConfig(keys, recipient)))
		if !next.Wire.Dead() {
			t.Errorf("it ended before call %d", at)
		}
		next = c.ProcessOver(t, &providertest.Wire{})
		again := next.Instance("k8s_pki_copy")
		again.Must(copyConfig(keys, recipient))
		again.Converged(copyConfig(keys, recipient))
		if got := c.Account.S3.Keys(providertest.Copies); len(got) != 1 || got[0] != copied.Get("key") {
			t.Errorf("after call %d there are %v", at, got)
		}
	}
}

// TestCopyPolicy copies and restores keys under the policies of examples/iam, and without each
// action of the policy for copies. A refresh that may not look only warns.
func TestCopyPolicy(t *testing.T) {
	t.Parallel()
	everyday, policy := providertest.ReadPolicy(t, "everyday.json"), providertest.ReadPolicy(t, "key-copies.json")
	identity, recipient := providertest.AgeIdentity(t)
	run := func(t *testing.T, policy string) (failure, warning string) {
		c := providertest.NewCloud(t)
		c.Account.S3.Make(providertest.Copies, "us-east-1")
		user := providertest.Answer[iam.User](t)(c.Account.Cloud.Identities().PutUser("terraform", iam.Entity{Policies: []string{everyday.Without(""), policy}, Tags: map[string]string{"k8s-cluster": "demo"}}))
		c.More = providertest.Values{"access_key": user.AccessKeyID, "secret_key": user.SecretAccessKey}
		c = c.Process(t)
		keys, copied, restored := c.Instance("k8s_pki"), c.Instance("k8s_pki_copy"), c.Instance("k8s_pki")
		if failure = keys.Attempt(providertest.Values{"cluster": "demo"}); failure != "" {
			return failure, ""
		}
		config := copyConfig(keys, recipient)
		if failure = copied.Attempt(config); failure != "" {
			return failure, ""
		}
		key := copied.Get("key").(string)
		c.Account.S3.Delete(providertest.Copies, key)
		seen := copied.TryLook()
		if failure = seen.Failure(); failure != "" {
			return failure, ""
		}
		for _, w := range seen.Warnings {
			warning += w.Detail
		}
		if failure = copied.Attempt(config); failure != "" {
			return failure, warning
		}
		if warning == "" && len(c.Account.S3.Keys(providertest.Copies)) != 1 {
			t.Error("it was not written again")
		}
		return restored.Attempt(providertest.With(providertest.Restoring(key, identity), providertest.Values{"cluster": "other"})), warning
	}
	if failure, warning := run(t, policy.Without("")); failure+warning != "" {
		t.Fatal(failure, warning)
	}
	for _, action := range []string{"s3:PutObject", "s3:GetObject", "s3:ListBucket"} {
		failure, warning := run(t, policy.Without(action))
		switch action {
		case "s3:PutObject":
			providertest.Missed(t, action, failure)
		case "s3:GetObject":
			providertest.Mention(t, warning, "s3:GetObject", "docs/guides/iam", "not known")
			providertest.Missed(t, action, failure)
		case "s3:ListBucket":
			providertest.Mention(t, warning, "s3:GetObject (Forbidden)", "docs/guides/iam")
		}
	}
	for _, s := range policy.Statement {
		for _, a := range providertest.StatementActions(s) {
			if a != "s3:PutObject" && a != "s3:GetObject" && a != "s3:ListBucket" {
				t.Errorf("nothing was tried without %s", a)
			}
		}
	}
}

// TestNoIdentityForOldTerraform: a Terraform that would store the identity is refused.
func TestNoIdentityForOldTerraform(t *testing.T) {
	t.Parallel()
	c := providertest.OfflineCore(t)
	identity, _ := providertest.AgeIdentity(t)
	s := c.Schemas.ResourceSchemas["k8s_pki"]
	v, err := c.Server.ValidateResourceConfig(t.Context(), &tfprotov6.ValidateResourceConfigRequest{TypeName: "k8s_pki", Config: c.Dynamic(s, c.Value(s, providertest.Restoring("k", identity)))})
	if err != nil {
		t.Fatal(err)
	}
	var ch providertest.Change
	ch.Note(v.Diagnostics)
	providertest.Mention(t, ch.Failure(), "restore_identity_wo", "1.11")
	hidden(t, "the error", ch.Failure(), identity[20:40])
}

// TestObjectErrors: the error has what S3 said, and what to do about it.
func TestObjectErrors(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	c.Account.S3.Make(providertest.Copies, "us-east-1")
	at := awsobject.Ref{Bucket: providertest.Copies, Key: "a"}
	if _, err := awsobject.Put(t.Context(), c.Client, awsobject.Ref{Bucket: "nowhere", Key: "a"}, nil, awsobject.Properties{}); infraaws.Advice(err) == "" {
		t.Error(err)
	}
	if _, err := awsobject.Head(t.Context(), c.Client, at); err == nil || !strings.Contains(err.Error(), "look at s3://example-copies/a: no such object") {
		t.Error(err)
	}
	sum, err := awsobject.Put(t.Context(), c.Client, at, []byte("hello"), awsobject.Properties{})
	if err != nil || sum != "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824" {
		t.Error(sum, err)
	}
	if got, err := awsobject.Head(t.Context(), c.Client, at); err != nil || got != sum {
		t.Error(got, err)
	}
	if got, err := awsobject.Get(t.Context(), c.Client, at, 5); err != nil || string(got) != "hello" {
		t.Error(got, err)
	}
	if _, err := awsobject.Get(t.Context(), c.Client, at, 4); err == nil || !strings.Contains(err.Error(), "more than 4 bytes") {
		t.Error(err)
	}
	c.Account.S3.Put(providertest.Copies, "a", account.Object{Content: []byte("hullo"), SHA256: "LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ="})
	if got, err := awsobject.Get(t.Context(), c.Client, at, 100); err == nil {
		t.Errorf("an answer that does not fit its digest: %q", got)
	}
}

// TestCopyWithTerraform copies keys, loses and repairs the copy, destroys the keys and makes them
// again from another directory, with Terraform itself. No secret is in what it prints, in a state, in
// a plan file or in a log of everything.
func TestCopyWithTerraform(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("terraform"); err != nil {
		t.Skip("there is no terraform in PATH")
	}
	c := providertest.NewCloud(t)
	a := c.Account
	a.S3.Make(providertest.Copies, "us-east-1")
	identity, recipient := providertest.AgeIdentity(t)
	first := providertest.NewDirectory(t, a, `resource "k8s_pki" "this" { cluster = "demo" }
resource "k8s_pki_copy" "this" {
  pki        = k8s_pki.this.ref
  recipients = ["`+recipient+`"]
  bucket     = "`+providertest.Copies+`"
}
`)
	second := func(more string) string {
		return `variable "identity" {
  type      = string
  ephemeral = true
  default   = null
}
resource "k8s_pki" "this" {
  cluster = "demo"
` + more + "}\n"
	}
	restoring := func(key string) string {
		return second(`  restore_from     = { bucket = "` + providertest.Copies + `", key = "` + key + `" }
  restore_identity_wo = var.identity
`)
	}
	var secrets []string
	run := func(d providertest.Directory, wanted string, args ...string) string {
		t.Helper()
		d.Env = append(d.Env, "TF_LOG=TRACE", "TF_LOG_PATH="+filepath.Join(d.Path, "trace.log"))
		out, err := d.Run(args...)
		if words := strings.Join(strings.Fields(strings.ReplaceAll(out, "│", "")), " "); !strings.Contains(words, wanted) {
			t.Fatalf("%v: %v, wanted %q\n%s", args, err, wanted, out)
		}
		return out
	}
	run(first, "2 added, 0 changed", "apply", "-auto-approve")
	run(first, "No changes.", "plan")
	before := c.Parameters("demo")
	for name, v := range before {
		if pki.Secret(name) {
			lines := strings.Split(strings.TrimSpace(v), "\n")
			secrets = append(secrets, lines[len(lines)/2])
		}
	}
	key := a.S3.Keys(providertest.Copies)[0]
	a.S3.Delete(providertest.Copies, key)
	run(first, `"bucket `+providertest.Copies+`" = "copy `+key+`: missing" -> null`, "plan")
	run(first, "0 added, 1 changed, 0 destroyed", "apply", "-auto-approve")
	run(first, "No changes.", "plan")
	run(first, "2 destroyed", "destroy", "-auto-approve")
	if n := len(c.Parameters("demo")); n != 0 || len(a.S3.Keys(providertest.Copies)) != 1 {
		t.Fatalf("%d parameters and the copies %v are left", n, a.S3.Keys(providertest.Copies))
	}

	d := providertest.NewDirectory(t, a, restoring(key))
	run(d, "Missing identity", "plan")
	with := d
	with.Env = append(with.Env, "TF_VAR_identity="+identity)
	run(with, "1 to add", "plan", "-out=plan.bin")
	hidden(t, "the plan", run(with, `"restore_from":{"bucket":"`+providertest.Copies+`"`, "show", "-json", "plan.bin"), append(secrets, identity[20:40])...)
	run(with, "1 added", "apply", "plan.bin")
	if after := c.Parameters("demo"); !maps.Equal(before, after) {
		t.Error("other keys came back")
	}
	run(d, "No changes.", "plan")
	main := filepath.Join(d.Path, "main.tf")
	text, err := os.ReadFile(main)
	if err != nil {
		t.Fatal(err)
	}
	rewrite := func(resources string) {
		t.Helper()
		head, _, _ := strings.Cut(string(text), `variable "identity"`)
		if err := os.WriteFile(main, []byte(head+resources), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, resources := range []string{second(""), restoring("another")} {
		rewrite(resources)
		run(d, "No changes.", "plan")
	}

	for _, dir := range []providertest.Directory{first, d} {
		for _, name := range []string{"terraform.tfstate", "terraform.tfstate.backup", "trace.log"} {
			content, err := os.ReadFile(filepath.Join(dir.Path, name))
			if err != nil && (name == "terraform.tfstate" || name == "trace.log") {
				t.Fatal(err)
			}
			for _, s := range append(secrets, "PRIVATE KEY", identity[20:40]) {
				if bytes.Contains(content, []byte(s)) {
					t.Errorf("%s has a secret", name)
				}
			}
		}
	}
}
