package keys_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	awsiam "github.com/aws/aws-sdk-go-v2/service/iam"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/issuer"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/account"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/fault"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/iam"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
)

const (
	issuers   = "example-issuers"
	published = "k8s/demo/issuer/"
	bucketURL = "https://" + issuers + ".s3.us-east-1.amazonaws.com/k8s/demo/issuer"
)

// withIssuer returns a cloud with keys and a bucket whose documents everybody may read.
func withIssuer(t *testing.T) (c providertest.Cloud, keys *providertest.Instance) {
	t.Helper()
	c = providertest.NewCloud(t)
	c.Account.S3.Make(issuers, "us-east-1")
	c.Account.S3.Publish(issuers, published)
	keys = c.Instance("k8s_pki")
	keys.Must(providertest.Values{"cluster": "demo"})
	return c, keys
}

func issuerConfig(keys *providertest.Instance) providertest.Values {
	return providertest.Values{"pki": keys.Get("ref"), "bucket": issuers}
}

// shownKeys returns the ids of the keys in the bucket.
func shownKeys(t *testing.T, c providertest.Cloud) (ids []any) {
	t.Helper()
	var set struct {
		Keys []struct {
			ID string `json:"kid"`
		} `json:"keys"`
	}
	if err := json.Unmarshal(c.Account.S3.Get(issuers, published+issuer.KeysPath).Content, &set); err != nil {
		t.Fatal(err)
	}
	for _, k := range set.Keys {
		ids = append(ids, k.ID)
	}
	return ids
}

// TestWorkloadIdentity: the issuer's keys are published, follow a rotation, and are gone with the resource.
func TestWorkloadIdentity(t *testing.T) {
	t.Parallel()
	c, keys := withIssuer(t)
	w := c.Instance("k8s_workload_identity")
	c.Account.Fault(fault.Fault{Kind: fault.Eventual, Action: "CreateOpenIDConnectProvider", Calls: 3})
	ch := w.Plan(issuerConfig(keys))
	if got := ch.Failure(); got != "" {
		t.Fatal(got)
	}
	if planned := providertest.Plain(ch.Planned).(map[string]any); planned["issuer"] != bucketURL || planned["key_ids"] == nil {
		t.Errorf("the plan does not say the issuer and its keys: %v, %v", planned["issuer"], planned["key_ids"])
	}
	w.Must(issuerConfig(keys))
	w.Converged(issuerConfig(keys))
	arn := "arn:aws:iam::" + cloud.DefaultAccountID + ":oidc-provider/" + strings.TrimPrefix(bucketURL, "https://")
	if w.Get("provider_arn") != arn || w.Get("id") != bucketURL || !slices.Equal(w.Get("key_ids").([]any), shownKeys(t, c)) {
		t.Errorf("provider %v of %v with %v, shown %v", w.Get("provider_arn"), w.Get("id"), w.Get("key_ids"), shownKeys(t, c))
	}
	w.Leaks()

	rotated := func(generations ...any) {
		t.Helper()
		keys.Must(providertest.Values{"cluster": "demo", "generations": providertest.Values{"service_account": generations}})
		w.Must(issuerConfig(keys))
		w.Converged(issuerConfig(keys))
		if got := shownKeys(t, c); len(got) != len(generations) || !slices.Equal(got, w.Get("key_ids").([]any)) {
			t.Errorf("generations %v: shown %v, wanted %v", generations, got, w.Get("key_ids"))
		}
	}
	first := shownKeys(t, c)[0]
	rotated(1, 2)
	if shownKeys(t, c)[0] != first {
		t.Error("the signing key is not the first one")
	}
	rotated(2, 1)
	rotated(2)

	// Damage by others is drift, and is repaired.
	for what, damage := range map[string]func(){
		"openid/v1/jwks: is no JSON": func() { c.Account.S3.Put(issuers, published+issuer.KeysPath, account.Object{Content: []byte("x")}) },
		"HTTP status 403":            func() { c.Account.S3.Delete(issuers, published+issuer.ConfigurationPath) },
		"audience sts.amazonaws.com: missing": func() {
			aud := "sts.amazonaws.com"
			if _, err := c.Client.IAM.RemoveClientIDFromOpenIDConnectProvider(t.Context(), &awsiam.RemoveClientIDFromOpenIDConnectProviderInput{OpenIDConnectProviderArn: &arn, ClientID: &aud}); err != nil {
				t.Fatal(err)
			}
		},
		"audience x: accepted, not wanted": func() {
			aud := "x"
			if _, err := c.Client.IAM.AddClientIDToOpenIDConnectProvider(t.Context(), &awsiam.AddClientIDToOpenIDConnectProviderInput{OpenIDConnectProviderArn: &arn, ClientID: &aud}); err != nil {
				t.Fatal(err)
			}
		},
		"tag team: missing": func() {
			if _, err := c.Client.IAM.UntagOpenIDConnectProvider(t.Context(), &awsiam.UntagOpenIDConnectProviderInput{OpenIDConnectProviderArn: &arn, TagKeys: []string{"team"}}); err != nil {
				t.Fatal(err)
			}
		},
	} {
		damage()
		w.Refresh()
		drift, _ := json.Marshal(w.Get("drift"))
		providertest.Mention(t, string(drift), what, bucketURL)
		w.Must(issuerConfig(keys))
		w.Converged(issuerConfig(keys))
	}
	// The region of the bucket is the provider's, also when it is written.
	regional := providertest.With(issuerConfig(keys), providertest.Values{"region": "us-east-1"})
	w.Must(regional)
	w.Converged(regional)
	if len(shownKeys(t, c)) == 0 {
		t.Error("no keys are shown")
	}
	w.Must(issuerConfig(keys))
	more := providertest.With(issuerConfig(keys), providertest.Values{"audiences": []any{"sts.amazonaws.com", "other"}, "tags": providertest.Values{"owner": "me"}})
	w.Must(more)
	w.Converged(more)
	w.Must(issuerConfig(keys))
	w.Converged(issuerConfig(keys))

	imported := c.Ends(t).Instance("k8s_workload_identity")
	imported.Imports(bucketURL)
	imported.Refresh()
	if ch := imported.Plan(issuerConfig(keys)); ch.Failure() != "" || len(ch.Replace) > 0 {
		t.Errorf("the imported issuer: %s, replaced by %q", ch.Failure(), ch.Replace)
	}

	c.Fatal(w.Dismiss().Errors)
	if left := c.Account.S3.Keys(issuers); len(left) > 0 {
		t.Errorf("documents are left: %q", left)
	}
	if left, err := c.Client.IAM.ListOpenIDConnectProviders(t.Context(), &awsiam.ListOpenIDConnectProvidersInput{}); err != nil || len(left.OpenIDConnectProviderList) > 0 {
		t.Errorf("providers are left: %v, %v", left, err)
	}
}

// TestWorkloadIdentityRefused: errors are on the argument at fault, and nothing of others is touched.
func TestWorkloadIdentityRefused(t *testing.T) {
	t.Parallel()
	c, keys := withIssuer(t)
	w := c.Instance("k8s_workload_identity")
	for words, config := range map[string]providertest.Values{
		`"issuer"`:          {"bucket": nil},
		"ends with a slash": {"issuer": "https://oidc.example.com/"},
		"has a port":        {"issuer": "https://oidc.example.com:8443"},
		"a dot in its name": {"bucket": "example.issuers"},
		`"prefix"`:          {"bucket": nil, "issuer": "https://oidc.example.com", "prefix": "a/"},
		`"audiences"`:       {"audiences": []any{}},
	} {
		providertest.Mention(t, w.Plan(providertest.With(issuerConfig(keys), config)).Failure(), words)
	}

	// Nobody may read the documents.
	c.Account.S3.Publish(issuers, "")
	said := w.CarryOut(w.Plan(issuerConfig(keys)))
	providertest.Mention(t, said.Failure(), "not there, or not shown to everybody (HTTP status 403)", "S3 blocks public access to new buckets", "block_public_policy", "guide Roles for pods")
	c.Account.S3.Publish(issuers, published)
	if w.Get("provider_arn") == nil {
		t.Error("what exists is not in the state")
	}
	w.Must(issuerConfig(keys))
	w.Converged(issuerConfig(keys))

	// Another state has the issuer.
	other := c.Process(t)
	stranger := other.Instance("k8s_workload_identity")
	providertest.Mention(t, stranger.CarryOut(stranger.Plan(issuerConfig(keys))).Failure(), "belongs to another state", bucketURL[len("https://"):])

	// The place has the documents of another issuer.
	d, err := issuer.Of("https://another.example.com", keys.Get("ref").(providertest.Values)["service_account_public_key_pem"].(string))
	if err != nil {
		t.Fatal(err)
	}
	c.Account.S3.Publish(issuers, "")
	c.Account.S3.Put(issuers, "taken/"+issuer.ConfigurationPath, account.Object{Content: d.Configuration})
	taken := c.Instance("k8s_workload_identity")
	config := providertest.With(issuerConfig(keys), providertest.Values{"prefix": "taken/"})
	providertest.Mention(t, taken.CarryOut(taken.Plan(config)).Failure(), "has the documents of another issuer, https://another.example.com: nothing was written there")
	if got := c.Account.S3.Keys(issuers); !slices.Contains(got, "taken/"+issuer.ConfigurationPath) {
		t.Errorf("the documents of the other issuer are gone: %q", got)
	}

	// The keys of a cluster of the same name, whose provider is in another account.
	strangerKeys := c.Instance("k8s_pki")
	strangerKeys.Must(providertest.Values{"cluster": "demo", "key_store": "state"})
	c.Account.S3.Publish(issuers, "k8s/")
	account2, err := issuer.Of("https://"+issuers+".s3.us-east-1.amazonaws.com/k8s/twin/issuer", strangerKeys.Get("ref").(providertest.Values)["service_account_public_key_pem"].(string))
	if err != nil {
		t.Fatal(err)
	}
	c.Account.S3.Put(issuers, "k8s/twin/issuer/"+issuer.ConfigurationPath, account.Object{Content: account2.Configuration})
	c.Account.S3.Put(issuers, "k8s/twin/issuer/"+issuer.KeysPath, account.Object{Content: account2.Keys})
	twin := c.Instance("k8s_workload_identity")
	providertest.Mention(t, twin.CarryOut(twin.Plan(providertest.With(issuerConfig(keys), providertest.Values{"prefix": "k8s/twin/issuer/"}))).Failure(), "shows the keys of another cluster")

	// Somebody else's bucket stops neither the plan nor the end.
	c.Account.S3.Delete(issuers, published+issuer.ConfigurationPath)
	gone := w.Dismiss()
	c.Fatal(gone.Errors)

	// Keys that are not known yet are no error of the plan.
	if ch := w.Plan(providertest.With(issuerConfig(keys), providertest.Values{"pki": providertest.Unknown})); ch.Failure() != "" {
		t.Error(ch.Failure())
	}
}

// TestIssuerPolicy makes, changes and deletes an issuer under the policies of examples/iam, as a member within the boundary.
// Each action is needed, and without it an error names it.
func TestIssuerPolicy(t *testing.T) {
	t.Parallel()
	member, policy, boundary := providertest.ReadPolicy(t, "member.json"), providertest.ReadPolicy(t, "workload-identity.json"), providertest.ReadPolicy(t, "boundary.json")
	run := func(t *testing.T, cluster, policy string) (string, providertest.Cloud) {
		c := providertest.NewCloud(t)
		c.Account.S3.Make(issuers, "us-east-1")
		c.Account.S3.Publish(issuers, "k8s/")
		entity := c.Member(t, member.Without(""), boundary.Without(""))
		entity.Policies = append(entity.Policies, policy)
		user := providertest.Answer[iam.User](t)(c.Account.Cloud.Identities().PutUser("terraform", entity))
		c.More = providertest.Values{"access_key": user.AccessKeyID, "secret_key": user.SecretAccessKey, "default_tags": providertest.Values{}}
		c = c.Process(t)
		keys := c.Instance("k8s_pki")
		if failure := keys.Attempt(providertest.Values{"cluster": "demo"}); failure != "" {
			return failure, c
		}
		w := c.Instance("k8s_workload_identity")
		config := providertest.With(issuerConfig(keys), providertest.Values{"prefix": "k8s/" + cluster + "/issuer/"})
		for _, change := range []providertest.Values{nil, {"audiences": []any{"other"}, "tags": providertest.Values{"team": "other"}}, nil} {
			if failure := w.Attempt(providertest.With(config, change)); failure != "" {
				return failure, c
			}
			w.Converged(providertest.With(config, change))
		}
		gone := w.Dismiss()
		failure := gone.Failure()
		for _, warning := range gone.Warnings { // documents that are left
			failure += warning.Detail
		}
		return failure, c
	}
	failure, c := run(t, "demo", policy.Without(""))
	if failure != "" {
		t.Fatal(failure)
	}
	called := c.Account.Calls()
	for _, s := range policy.Statement {
		for _, action := range providertest.StatementActions(s) {
			service, name, _ := strings.Cut(action, ":")
			if service == "iam" && called[name] == 0 {
				t.Errorf("nobody calls %s: remove it from the policy", action)
			}
			t.Run(action, func(t *testing.T) {
				t.Parallel()
				failure, _ := run(t, "demo", policy.Without(action))
				providertest.Missed(t, action, failure)
			})
		}
	}
	failure, _ = run(t, "other", policy.Without(""))
	providertest.Missed(t, "iam:GetOpenIDConnectProvider", failure)
}
