package provider

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

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
)

const copies = "example-copies"

func ageIdentity(t *testing.T) (identity, recipient string) {
	t.Helper()
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	return id.String(), id.Recipient().String()
}

// parameters returns the keys and certificates in the key store of a cluster.
func (c cloud) parameters(cluster string) map[string]string {
	c.t.Helper()
	out := map[string]string{}
	pages := ssm.NewGetParametersByPathPaginator(c.client.SSM, &ssm.GetParametersByPathInput{Path: sdk.String("/k8s/" + cluster + "/pki"), WithDecryption: sdk.Bool(true)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(context.Background())
		if err != nil {
			c.t.Fatal(err)
		}
		for _, p := range page.Parameters {
			if name := strings.TrimPrefix(*p.Name, "/k8s/"+cluster+"/pki/"); name != pki.NameOwner {
				out[name] = *p.Value
			}
		}
	}
	return out
}

func copyConfig(keys *instance, recipients ...any) values {
	return values{"pki": keys.get("ref"), "recipients": recipients, "bucket": copies}
}

func restoring(key any, identity string) values {
	return values{"cluster": "demo", "restore_from": values{"bucket": copies, "key": key}, "restore_identity": identity}
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
	c := newCloud(t)
	c.account.S3.Make(copies, "us-east-1")
	identity, recipient := ageIdentity(t)
	keys, copied := c.instance("k8s_pki"), c.instance("k8s_pki_copy")
	rotated := values{"cluster": "demo", "generations": values{"kubernetes_ca": []any{2, 1}, "encryption": []any{2, 1}}}
	keys.must(values{"cluster": "demo"})
	keys.must(values{"cluster": "demo", "generations": values{"kubernetes_ca": []any{1, 2}, "encryption": []any{1, 2}}})
	copied.must(copyConfig(keys, recipient))
	first := copied.get("key")
	keys.must(rotated)
	config := copyConfig(keys, recipient)
	copied.must(config)
	copied.settled(config)
	key, _ := copied.get("key").(string)
	if !strings.HasPrefix(key, "k8s/demo/keys/") || !strings.HasSuffix(key, keycopy.Extension) || key == first || len(c.account.S3.Keys(copies)) != 2 || copied.get("id") != copies+"/k8s/demo/keys/" {
		t.Errorf("key %v after %v, objects %v", key, first, c.account.S3.Keys(copies))
	}
	before, ref := c.parameters("demo"), keys.get("ref").(values)
	secret := strings.TrimSpace(before["encryption-2.key"])
	hidden(t, "the state of the copy", plain(copied.state), secret)
	hidden(t, "the object", string(c.account.S3.Get(copies, key).Content), secret)
	again, err := keycopy.Decrypt(c.account.S3.Get(copies, key).Content, identity)
	if err != nil || again.Cluster != "demo" {
		t.Errorf("the object: %v, %v", again, err)
	}

	// The end of everything but the copy.
	c.fatal(copied.dismiss().errors)
	c.fatal(keys.dismiss().errors)
	if len(c.parameters("demo")) != 0 || len(c.account.S3.Keys(copies)) != 2 {
		t.Fatalf("%d parameters and %d copies are left", len(c.parameters("demo")), len(c.account.S3.Keys(copies)))
	}

	c = c.ends(t)
	restored := c.instance("k8s_pki")
	from := with(rotated, restoring(key, identity))
	ch := restored.plan(from)
	hidden(t, "the plan", plain(ch.planned), identity)
	said := restored.carryOut(ch)
	if c.fatal(said.errors); len(said.warnings) > 0 {
		t.Errorf("warnings: %v", said.warnings)
	}
	if after := c.parameters("demo"); !maps.Equal(before, after) {
		t.Errorf("%d keys came back, there were %d", len(after), len(before))
	}
	if restored.get("ref").(values)["kubernetes_ca_pem"] != ref["kubernetes_ca_pem"] {
		t.Error("the reference is another one")
	}
	restored.leaks()
	hidden(t, "the state", plain(restored.state), identity, secret)
	restored.settled(from)

	// Later changes of restore_from do nothing, without the identity as well.
	c = c.ends(t)
	restored = c.taken(restored)
	restored.settled(rotated)
	restored.settled(with(rotated, values{"restore_from": values{"bucket": "another", "key": "k", "region": "eu-central-1"}}))

	// A copy of the same keys has the same name.
	copied = c.instance("k8s_pki_copy")
	copied.must(copyConfig(restored, recipient))
	if got := copied.get("key"); got != key {
		t.Errorf("the same keys are now %v", got)
	}

	// Under another name, and in the state.
	other := c.instance("k8s_pki")
	said = other.carryOut(other.plan(with(from, values{"cluster": "other", "key_store": "state"})))
	if c.fatal(said.errors); len(said.warnings) != 1 || said.warnings[0].Summary != "Cluster other has the keys of cluster demo" {
		t.Errorf("warnings: %v", said.warnings)
	}
	if got := other.get("ref").(values)["keys"].(values)["encryption-2.key"]; got != before["encryption-2.key"] {
		t.Error("the state has other keys")
	}
	ofState := c.instance("k8s_pki_copy")
	ofState.must(copyConfig(other, recipient))
	if got := ofState.get("key"); got != strings.Replace(key, "/demo/", "/other/", 1) {
		t.Errorf("the same keys are %v of the key store state", got)
	}
}

// TestRestoreFromLater: restore_from on keys that exist does nothing but to be noted.
func TestRestoreFromLater(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	identity, _ := ageIdentity(t)
	keys := c.instance("k8s_pki")
	keys.must(values{"cluster": "demo"})
	before := c.parameters("demo")
	ch := keys.plan(restoring("k", identity))
	if len(ch.warnings) != 1 || ch.warnings[0].Summary != "restore_from has no effect" || len(ch.replace) > 0 {
		t.Errorf("%s %v", ch.failure(), ch.warnings)
	}
	if d := keys.differences(ch); strings.Contains(d, `"ref"`) || strings.Contains(d, identity) {
		t.Errorf("it changes %s", d)
	}
	c.fatal(keys.apply(ch))
	keys.settled(restoring("k", identity))
	if !maps.Equal(before, c.parameters("demo")) {
		t.Error("the keys have changed")
	}
}

// TestCopyDrift: a copy that is lost or changed is drift, and is written again.
func TestCopyDrift(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	c.account.S3.Make(copies, "us-east-1")
	identity, recipient := ageIdentity(t)
	_, second := ageIdentity(t)
	keys, copied := c.instance("k8s_pki"), c.instance("k8s_pki_copy")
	keys.must(values{"cluster": "demo"})
	config := with(copyConfig(keys, recipient), values{"kms_key_id": "alias/copies"})
	copied.must(config)
	key := copied.get("key").(string)
	if got := c.account.S3.Get(copies, key).KMSKeyID; got != "alias/copies" {
		t.Errorf("KMS key %q", got)
	}
	for name, test := range map[string]struct {
		damage func()
		want   string
	}{
		"lost":     {func() { c.account.S3.Delete(copies, key) }, "copy " + key + ": missing"},
		"replaced": {func() { c.account.S3.Put(copies, key, account.Object{Content: []byte("x")}) }, "copy " + key + ": content differs (sha256 found 2d711642b726.., wanted "},
	} {
		test.damage()
		copied.refresh()
		drift, _ := copied.get("drift").(values)
		got, _ := drift["bucket "+copies].(string)
		mention(t, got, test.want)
		copied.must(config)
		copied.settled(config)
		if copied.get("key") != key {
			t.Errorf("%s: the key is %v", name, copied.get("key"))
		}
		if _, err := keycopy.Decrypt(c.account.S3.Get(copies, key).Content, identity); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}

	t.Run("the same content without a digest", func(t *testing.T) {
		o := c.account.S3.Get(copies, key)
		c.account.S3.Put(copies, key, account.Object{Content: o.Content})
		copied.settled(config)
	})
	t.Run("changed arguments", func(t *testing.T) {
		c.account.S3.Make("elsewhere", "eu-central-1")
		config := with(config, values{"bucket": "elsewhere", "region": "eu-central-1", "prefix": "a/", "recipients": []any{second}, "kms_key_id": nil})
		copied.must(config)
		copied.settled(config)
		moved := copied.get("key").(string)
		if o := c.account.S3.Get("elsewhere", moved); o.KMSKeyID != "" || !strings.HasPrefix(moved, "a/") || len(c.account.S3.Keys(copies)) != 1 {
			t.Errorf("%s: %+v, %v", moved, o, c.account.S3.Keys(copies))
		}
		if _, err := keycopy.Decrypt(c.account.S3.Get("elsewhere", moved).Content, identity); err == nil {
			t.Error("an identity that is no recipient's any more decrypts it")
		}
	})
	t.Run("only timeouts", func(t *testing.T) {
		config := with(config, values{"bucket": "elsewhere", "region": "eu-central-1", "prefix": "a/", "recipients": []any{second}, "kms_key_id": nil, "timeouts": values{"read": "1m"}})
		sum := copied.get("sha256")
		if copied.must(config); copied.get("sha256") != sum {
			t.Error("it was written again")
		}
	})
	t.Run("keys that are not those of the reference", func(t *testing.T) {
		fresh := c.instance("k8s_pki")
		fresh.must(values{"cluster": "fresh"})
		ref := with(fresh.get("ref").(values), values{"kubernetes_ca_pem": keys.get("ref").(values)["kubernetes_ca_pem"]})
		mention(t, c.instance("k8s_pki_copy").attempt(with(config, values{"pki": ref})), "kubernetes-ca.crt is not that of the reference", "Apply k8s_pki first")
	})
	mention(t, c.instance("k8s_pki_copy").tryImport("x"), "writes the copy again")
}

// TestUnusableCopies: nothing is claimed or written when the copy cannot be used, and the error is on
// the argument that is at fault.
func TestUnusableCopies(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	c.account.S3.Make(copies, "us-east-1")
	c.account.S3.Make("far-away", "eu-central-1")
	identity, recipient := ageIdentity(t)
	wrong, _ := ageIdentity(t)
	keys, copied := c.instance("k8s_pki"), c.instance("k8s_pki_copy")
	keys.must(values{"cluster": "demo"})
	copied.must(copyConfig(keys, recipient))
	key := copied.get("key").(string)
	good := c.account.S3.Get(copies, key)
	c.account.S3.Put("far-away", key, good)
	put := func(key string, content []byte) string {
		c.account.S3.Put(copies, key, account.Object{Content: content})
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
	other := func(more values) values {
		return with(restoring(key, identity), with(values{"cluster": "other"}, more))
	}
	from := func(more values) values {
		return other(values{"restore_from": with(values{"bucket": copies, "key": key}, more)})
	}
	for name, test := range map[string]struct {
		config values
		want   []string
	}{
		"another identity":  {other(values{"restore_identity": wrong}), []string{`"restore_identity"`, "wrong identity", "encrypted for others", "Nothing was changed"}},
		"no identity":       {other(values{"restore_identity": nil}), []string{`"restore_identity"`, "Missing identity"}},
		"no such identity":  {other(values{"restore_identity": recipient}), []string{`"restore_identity"`, "not an age identity"}},
		"identity alone":    {other(values{"restore_from": nil}), []string{`"restore_identity"`, "restore_from"}},
		"no such object":    {from(values{"key": "k8s/lost.age"}), []string{`"restore_from"`, "no such object", "s3://" + copies + "/k8s/lost.age"}},
		"no such bucket":    {from(values{"bucket": "nowhere"}), []string{`"restore_from"`, "NoSuchBucket", "makes no buckets"}},
		"another region":    {from(values{"bucket": "far-away"}), []string{`"restore_from"`, "PermanentRedirect", "another region"}},
		"not a bucket":      {from(values{"bucket": "s3://x"}), []string{`"restore_from"`, "without s3://"}},
		"damaged":           {from(values{"key": put("cut", good.Content[:len(good.Content)-5])}), []string{`"restore_from"`, "the copy is damaged"}},
		"not encrypted":     {from(values{"key": put("text", []byte("hello"))}), []string{`"restore_from"`, "not a copy of keys", "not encrypted with age"}},
		"something else":    {from(values{"key": put("foreign", foreign)}), []string{`"restore_from"`, "not a copy of keys", "something else"}},
		"too large":         {from(values{"key": put("large", make([]byte, keycopy.MaxSize+1))}), []string{`"restore_from"`, "more than"}},
		"renamed":           {from(values{"key": put("k8s/demo/keys/"+strings.Repeat("0", 64)+".age", good.Content)}), []string{`"restore_from"`, "the name of these keys is " + filepath.Base(key), "Nothing was changed"}},
		"other generations": {other(values{"generations": values{"etcd_ca": []any{2}}}), []string{`"generations"`, "has generations [1] of etcd_ca: write generations.etcd_ca = [1]"}},
		"adopt":             {other(values{"adopt": true}), []string{`"adopt"`, "exclude each other"}},
		"keys of a cluster": {restoring(key, identity), []string{"is another's"}},
	} {
		i := c.instance("k8s_pki")
		got := i.attempt(test.config)
		mention(t, got, test.want...)
		hidden(t, name, got, identity[20:40], wrong[20:40])
		if !i.state.IsNull() {
			t.Errorf("%s: there is a state", name)
		}
		if n, err := c.client.SSM.GetParametersByPath(t.Context(), &ssm.GetParametersByPathInput{Path: sdk.String("/k8s/other/pki")}); err != nil || len(n.Parameters) > 0 {
			t.Errorf("%s: %d parameters were written, %v", name, len(n.Parameters), err)
		}
	}
	keys.settled(values{"cluster": "demo"})

	t.Run("in the bucket's region", func(t *testing.T) {
		c.instance("k8s_pki").must(from(values{"bucket": "far-away", "region": "eu-central-1"}))
	})
	t.Run("left by an apply without restore_from", func(t *testing.T) {
		ctx := c.wire.arm(t.Context(), 0, true)
		c.wire.dieOn = "PutParameter"
		k := &killed{t: t, cloud: c, object: c.instance("k8s_pki")}
		k.die(ctx, k.object.plan(values{"cluster": "third"}))
		c = c.processOver(t, &wire{})
		put := func(name string) {
			if _, err := c.client.SSM.PutParameter(t.Context(), &ssm.PutParameterInput{Name: sdk.String("/k8s/third/pki/" + name), Value: sdk.String("mine"), Type: "SecureString"}); err != nil {
				t.Fatal(err)
			}
		}
		put(pki.KeyEtcdCA)
		got := c.instance("k8s_pki").attempt(with(restoring(key, identity), values{"cluster": "third"}))
		mention(t, got, `"restore_from"`, "etcd-ca.key is not that of the copy", "Nothing was overwritten", "/k8s/third/pki/")
		hidden(t, "the error", got, "mine\n")
	})
}

// TestCopyAtEveryCall kills the provider at every call of a copy. The next process writes one object
// of the same name.
func TestCopyAtEveryCall(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	c.account.S3.Make(copies, "us-east-1")
	_, recipient := ageIdentity(t)
	keys := c.instance("k8s_pki")
	keys.must(values{"cluster": "demo"})
	before := len(c.calls())
	copied := c.instance("k8s_pki_copy")
	copied.must(copyConfig(keys, recipient))
	for at := 1; at <= len(c.calls())-before; at++ {
		next := c.processOver(t, &wire{})
		ctx := next.wire.arm(t.Context(), at, true)
		k := &killed{t: t, cloud: next, object: next.instance("k8s_pki_copy")}
		k.die(ctx, k.object.plan(copyConfig(keys, recipient)))
		if !next.wire.dead() {
			t.Errorf("it ended before call %d", at)
		}
		next = c.processOver(t, &wire{})
		again := next.instance("k8s_pki_copy")
		again.must(copyConfig(keys, recipient))
		again.settled(copyConfig(keys, recipient))
		if got := c.account.S3.Keys(copies); len(got) != 1 || got[0] != copied.get("key") {
			t.Errorf("after call %d there are %v", at, got)
		}
	}
}

// TestCopyPolicy copies and restores keys under the policies of examples/iam, and without each action
// of the one for copies. A refresh that may not look only warns.
func TestCopyPolicy(t *testing.T) {
	t.Parallel()
	everyday, policy := readPolicy(t, "everyday.json"), readPolicy(t, "key-copies.json")
	identity, recipient := ageIdentity(t)
	run := func(t *testing.T, policy string) (failure, warning string) {
		c := newCloud(t)
		c.account.S3.Make(copies, "us-east-1")
		user := answer[iam.User](t)(c.account.Cloud.Identities().PutUser("terraform", []string{everyday.without(""), policy}))
		c.more = values{"access_key": user.AccessKeyID, "secret_key": user.SecretAccessKey}
		c = c.process(t)
		keys, copied, restored := c.instance("k8s_pki"), c.instance("k8s_pki_copy"), c.instance("k8s_pki")
		if failure = keys.attempt(values{"cluster": "demo"}); failure != "" {
			return failure, ""
		}
		config := copyConfig(keys, recipient)
		if failure = copied.attempt(config); failure != "" {
			return failure, ""
		}
		key := copied.get("key").(string)
		c.account.S3.Delete(copies, key)
		seen := copied.tryLook()
		if failure = seen.failure(); failure != "" {
			return failure, ""
		}
		for _, w := range seen.warnings {
			warning += w.Detail
		}
		if failure = copied.attempt(config); failure != "" {
			return failure, warning
		}
		if warning == "" && len(c.account.S3.Keys(copies)) != 1 {
			t.Error("it was not written again")
		}
		return restored.attempt(with(restoring(key, identity), values{"cluster": "other"})), warning
	}
	if failure, warning := run(t, policy.without("")); failure+warning != "" {
		t.Fatal(failure, warning)
	}
	for _, action := range []string{"s3:PutObject", "s3:GetObject", "s3:ListBucket"} {
		failure, warning := run(t, policy.without(action))
		switch action {
		case "s3:PutObject":
			missed(t, action, failure)
		case "s3:GetObject":
			mention(t, warning, "s3:GetObject", "docs/guides/iam", "not known")
			missed(t, action, failure)
		case "s3:ListBucket":
			mention(t, warning, "s3:GetObject (Forbidden)", "docs/guides/iam")
		}
	}
	for _, s := range policy.Statement {
		for _, a := range statementActions(s) {
			if a != "s3:PutObject" && a != "s3:GetObject" && a != "s3:ListBucket" {
				t.Errorf("nobody has tried without %s", a)
			}
		}
	}
}

// TestNoIdentityForOldTerraform: a Terraform that would store the identity is refused.
func TestNoIdentityForOldTerraform(t *testing.T) {
	t.Parallel()
	c := offlineCore(t)
	identity, _ := ageIdentity(t)
	s := c.schemas.ResourceSchemas["k8s_pki"]
	v, err := c.server.ValidateResourceConfig(t.Context(), &tfprotov6.ValidateResourceConfigRequest{TypeName: "k8s_pki", Config: c.dynamic(s, c.value(s, restoring("k", identity)))})
	if err != nil {
		t.Fatal(err)
	}
	var ch change
	ch.note(v.Diagnostics)
	mention(t, ch.failure(), "restore_identity", "1.11")
	hidden(t, "the error", ch.failure(), identity[20:40])
}

// TestObjectErrors: what S3 says is found again in the error, and what to do about it.
func TestObjectErrors(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	c.account.S3.Make(copies, "us-east-1")
	at := awsobject.Ref{Bucket: copies, Key: "a"}
	if _, err := awsobject.Put(t.Context(), c.client, awsobject.Ref{Bucket: "nowhere", Key: "a"}, nil, ""); infraaws.Advice(err) == "" {
		t.Error(err)
	}
	if _, err := awsobject.Head(t.Context(), c.client, at); err == nil || !strings.Contains(err.Error(), "look at s3://example-copies/a: no such object") {
		t.Error(err)
	}
	sum, err := awsobject.Put(t.Context(), c.client, at, []byte("hello"), "")
	if err != nil || sum != "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824" {
		t.Error(sum, err)
	}
	if got, err := awsobject.Head(t.Context(), c.client, at); err != nil || got != sum {
		t.Error(got, err)
	}
	if got, err := awsobject.Get(t.Context(), c.client, at, 5); err != nil || string(got) != "hello" {
		t.Error(got, err)
	}
	if _, err := awsobject.Get(t.Context(), c.client, at, 4); err == nil || !strings.Contains(err.Error(), "more than 4 bytes") {
		t.Error(err)
	}
	c.account.S3.Put(copies, "a", account.Object{Content: []byte("hullo"), SHA256: "LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ="})
	if got, err := awsobject.Get(t.Context(), c.client, at, 100); err == nil {
		t.Errorf("an answer that does not fit its digest: %q", got)
	}
}

// keysFromCopy returns the configuration of keys from a copy, which it puts into the bucket. It fails
// the test if the key store then has other keys.
func keysFromCopy(t *testing.T) func(*killed) values {
	t.Helper()
	identity, recipient := ageIdentity(t)
	g := pki.Generations{KubernetesCA: []int{2, 1}}
	store := pki.NewMemoryStore(nil)
	ref, err := pki.Bootstrap(t.Context(), store, "demo", time.Now(), rand.Reader, pki.Options{Generations: g})
	if err != nil {
		t.Fatal(err)
	}
	c := answer[*keycopy.Copy](t)(keycopy.Of(t.Context(), store, ref))
	data, err := keycopy.Encrypt(c, []string{recipient})
	if err != nil {
		t.Fatal(err)
	}
	return func(k *killed) values {
		k.cloud.account.S3.Make(copies, "us-east-1")
		k.cloud.account.S3.Put(copies, c.Name(), account.Object{Content: data})
		if !k.object.state.IsNull() {
			for name, found := range k.cloud.parameters("demo") {
				if v, err := store.Get(context.Background(), name); err != nil || string(v) != found {
					k.t.Errorf("%s is not that of the copy", name)
				}
			}
		}
		return with(restoring(c.Name(), identity), values{"generations": values{"kubernetes_ca": []any{2, 1}}})
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
	c := newCloud(t)
	a := c.account
	a.S3.Make(copies, "us-east-1")
	identity, recipient := ageIdentity(t)
	first := newDirectory(t, a, `resource "k8s_pki" "this" { cluster = "demo" }
resource "k8s_pki_copy" "this" {
  pki        = k8s_pki.this.ref
  recipients = ["`+recipient+`"]
  bucket     = "`+copies+`"
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
		return second(`  restore_from     = { bucket = "` + copies + `", key = "` + key + `" }
  restore_identity = var.identity
`)
	}
	var secrets []string
	run := func(d directory, wanted string, args ...string) string {
		t.Helper()
		d.env = append(d.env, "TF_LOG=TRACE", "TF_LOG_PATH="+filepath.Join(d.path, "trace.log"))
		out, err := d.run(args...)
		if words := strings.Join(strings.Fields(strings.ReplaceAll(out, "│", "")), " "); !strings.Contains(words, wanted) {
			t.Fatalf("%v: %v, wanted %q\n%s", args, err, wanted, out)
		}
		return out
	}
	run(first, "2 added, 0 changed", "apply", "-auto-approve")
	run(first, "No changes.", "plan")
	before := c.parameters("demo")
	for name, v := range before {
		if pki.Secret(name) {
			lines := strings.Split(strings.TrimSpace(v), "\n")
			secrets = append(secrets, lines[len(lines)/2])
		}
	}
	key := a.S3.Keys(copies)[0]
	a.S3.Delete(copies, key)
	run(first, `"bucket `+copies+`" = "copy `+key+`: missing" -> null`, "plan")
	run(first, "0 added, 1 changed, 0 destroyed", "apply", "-auto-approve")
	run(first, "No changes.", "plan")
	run(first, "2 destroyed", "destroy", "-auto-approve")
	if n := len(c.parameters("demo")); n != 0 || len(a.S3.Keys(copies)) != 1 {
		t.Fatalf("%d parameters and the copies %v are left", n, a.S3.Keys(copies))
	}

	d := newDirectory(t, a, restoring(key))
	run(d, "Missing identity", "plan")
	with := d
	with.env = append(with.env, "TF_VAR_identity="+identity)
	run(with, "1 to add", "plan", "-out=plan.bin")
	hidden(t, "the plan", run(with, `"restore_from":{"bucket":"`+copies+`"`, "show", "-json", "plan.bin"), append(secrets, identity[20:40])...)
	run(with, "1 added", "apply", "plan.bin")
	if after := c.parameters("demo"); !maps.Equal(before, after) {
		t.Error("other keys came back")
	}
	run(d, "No changes.", "plan")
	main := filepath.Join(d.path, "main.tf")
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

	for _, dir := range []directory{first, d} {
		for _, name := range []string{"terraform.tfstate", "terraform.tfstate.backup", "trace.log"} {
			content, err := os.ReadFile(filepath.Join(dir.path, name))
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
