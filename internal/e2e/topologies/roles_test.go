package topologies_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	s3types "github.com/aws/aws-sdk-go-v2/service/s3/types"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
)

// Buckets of TestRoles: the issuer's, one that the role may read, and one that it may not.
const issuerBucket, ownBucket, otherBucket = "example-issuers", "example-own", "example-other"

const ownIssuer = "https://kubernetes.default.svc.cluster.local"

// publicKeys lets everybody read the issuer's documents.
const publicKeys = `{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Principal": "*", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::example-issuers/k8s/*/issuer/*"}]}`

// rolePod runs testdata/roles once, with the role reader if it has a token.
const rolePod = `
apiVersion: v1
kind: Pod
metadata: {name: %[1]s, namespace: default}
spec:
  serviceAccountName: %[2]s
  hostNetwork: %[3]t
  restartPolicy: Never
  containers:
  - name: roles
    image: k8s-lab/toolbox:1
    command: [/roles/roles, %[4]s]
    env:
    - {name: AWS_REGION, value: us-east-1}
    - {name: AWS_ENDPOINT_URL, value: "http://aws.k8s-lab.test"}
    - {name: AWS_ROLE_ARN, value: "arn:aws:iam::123456789012:role/reader"}
    - {name: AWS_WEB_IDENTITY_TOKEN_FILE, value: /var/run/secrets/aws/token}
    volumeMounts: [{name: program, mountPath: /roles}, {name: aws, mountPath: /var/run/secrets/aws}]
  volumes:
  - {name: program, hostPath: {path: /opt/roles}}
  - {name: aws, projected: {sources: [{serviceAccountToken: {audience: sts.amazonaws.com, expirationSeconds: 3600, path: token}}]}}
`

// TestRoles gives pods roles of AWS in a running cluster: the issuer changes in two applies while tokens are used, a pod reads one
// bucket and not another, keys are rotated, and the issuer changes back.
func TestRoles(t *testing.T) {
	inSoak(t)
	c := openAs(t, "roles", "spot")
	step := harness.Steps(t)
	buckets := suite.S3()
	module := func(t *testing.T, more string, accepted ...string) {
		t.Helper()
		if len(accepted) > 0 {
			more += "  accepted_issuers = " + string(harness.Must[[]byte](t)(json.Marshal(accepted))) + "\n"
		}
		if err := c.WS.WriteFile("roles_override.tf", "module \"cluster\" {\n  controllers = 3\n  spot = null\n"+more+"}\n"); err != nil {
			t.Fatal(err)
		}
	}
	keys := filepath.Join(suite.Dir, "modules/cluster/keys_override.tf")
	t.Cleanup(func() { _ = os.Remove(keys) }) // of a module that other tests use
	const withIssuer = "  issuer_bucket = \"" + issuerBucket + "\"\n"

	step("apply", func(t *testing.T) {
		module(t, "")
		c.Apply(t)
		c.Learn(t)
		for _, name := range []string{issuerBucket, ownBucket, otherBucket} {
			suite.MustLab(t, "bucket", name)
			harness.Must[*s3.PutObjectOutput](t)(buckets.PutObject(t.Context(), &s3.PutObjectInput{Bucket: &name, Key: aws.String("hello"), Body: strings.NewReader("hello from " + name)}))
		}
		installRoles(t, c)
		c.Kubectl(t, "create", "serviceaccount", "reader")
		c.Kubectl(t, "create", "serviceaccount", "stranger")
	})
	step("an issuer that is not accepted is refused by the plan", func(t *testing.T) {
		module(t, withIssuer)
		_, _, err := c.WS.Plan(t.Context())
		harness.Refused(t, err, "An issuer that is not accepted yet", issuerBucket+".s3.us-east-1.amazonaws.com/k8s/demo/issuer", "service-account-issuer = [")
	})
	const issuer = "https://" + issuerBucket + ".s3.us-east-1.amazonaws.com/k8s/demo/issuer"
	step("a bucket that nobody may read is refused by the apply", func(t *testing.T) {
		module(t, withIssuer, ownIssuer, issuer)
		_, err := c.WS.Apply(t.Context(), "-target=module.cluster.k8s_workload_identity.this")
		harness.Refused(t, err, "not there, or not shown to everybody (HTTP status 403)", "S3 blocks public access to new buckets")
		_, err = buckets.PutBucketPolicy(t.Context(), &s3.PutBucketPolicyInput{Bucket: aws.String(issuerBucket), Policy: aws.String(publicKeys)})
		harness.Refused(t, err, "AccessDenied")
		harness.Must[*s3.PutPublicAccessBlockOutput](t)(buckets.PutPublicAccessBlock(t.Context(), &s3.PutPublicAccessBlockInput{
			Bucket: aws.String(issuerBucket), PublicAccessBlockConfiguration: &s3types.PublicAccessBlockConfiguration{BlockPublicAcls: aws.Bool(true), IgnorePublicAcls: aws.Bool(true)},
		}))
		harness.Must[*s3.PutBucketPolicyOutput](t)(buckets.PutBucketPolicy(t.Context(), &s3.PutBucketPolicyInput{Bucket: aws.String(issuerBucket), Policy: aws.String(publicKeys)}))
	})
	step("the issuer changes in two applies while tokens are used", func(t *testing.T) {
		ends := useTokens(t, c.Kubeconfig)
		c.Apply(t)
		c.NoChanges(t)
		module(t, withIssuer)
		c.Apply(t)
		c.NoChanges(t)
		t.Logf("figures: the issuer of a running cluster changed: %s", ends(t))
	})
	step("the API server shows what the bucket shows", func(t *testing.T) {
		for path, key := range map[string]string{"/.well-known/openid-configuration": ".well-known/openid-configuration", "/openid/v1/jwks": "openid/v1/jwks"} {
			out := harness.Must[*s3.GetObjectOutput](t)(buckets.GetObject(t.Context(), &s3.GetObjectInput{Bucket: aws.String(issuerBucket), Key: aws.String("k8s/demo/issuer/" + key)}))
			var shown, served any
			if err := errors.Join(json.NewDecoder(out.Body).Decode(&shown), json.Unmarshal([]byte(c.Kubectl(t, "get", "--raw", path)), &served)); err != nil {
				t.Fatal(err)
			}
			if a, b := fmt.Sprint(shown), fmt.Sprint(served); a != b {
				t.Errorf("%s: the bucket has\n%s\nand the API server\n%s", path, a, b)
			}
		}
	})
	pod := func(t *testing.T, name, account string, args ...string) string {
		t.Helper()
		return inPod(t, c, name, account, false, args...)
	}
	reads := func(t *testing.T, when string) {
		t.Helper()
		if said := pod(t, "reader-"+when, "reader", "object", ownBucket, "hello"); said != "hello from "+ownBucket {
			t.Errorf("%s: the pod reads %q", when, said)
		}
	}
	step("a pod reads one bucket and not another, and another pod reads none", func(t *testing.T) {
		subject := strings.TrimPrefix(issuer, "https://")
		trust := fmt.Sprintf(`{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "sts:AssumeRoleWithWebIdentity", "Principal": {"Federated": "arn:aws:iam::123456789012:oidc-provider/%[1]s"},
  "Condition": {"StringEquals": {"%[1]s:aud": "sts.amazonaws.com", "%[1]s:sub": "system:serviceaccount:default:reader"}}}]}`, subject)
		api := iam.NewFromConfig(suite.AWS())
		harness.Must[*iam.CreateRoleOutput](t)(api.CreateRole(t.Context(), &iam.CreateRoleInput{RoleName: aws.String("reader"), AssumeRolePolicyDocument: &trust}))
		harness.Must[*iam.PutRolePolicyOutput](t)(api.PutRolePolicy(t.Context(), &iam.PutRolePolicyInput{RoleName: aws.String("reader"), PolicyName: aws.String("read"),
			PolicyDocument: aws.String(`{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::` + ownBucket + `/*"}]}`)}))
		reads(t, "first")
		if said := pod(t, "reader-other", "reader", "object", otherBucket, "hello"); said != "AccessDenied" {
			t.Errorf("the pod reads %q of the other bucket", said)
		}
		if said := pod(t, "stranger", "stranger", "object", ownBucket, "hello"); said != "AccessDenied" {
			t.Errorf("the pod of another account reads %q", said)
		}
	})
	step("pods do not reach the metadata service, and controllers on the nodes' network do", func(t *testing.T) {
		noMetadata(t, c)
	})
	step("keys are rotated: shown first, then they sign", func(t *testing.T) {
		ends := useTokens(t, c.Kubeconfig)
		for n, generations := range []string{"[1, 2]", "[2, 1]", "[2]"} {
			text := "resource \"k8s_pki\" \"this\" {\n  generations = { service_account = " + generations + " }\n}\n"
			if err := os.WriteFile(keys, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if n == 2 {
				t.Logf("figures: the key of tokens became another one: %s", ends(t)) // tokens of the first key are refused from now on
				c.Kubectl(t, "delete", "pods", "--all", "-n", "kube-system")
			}
			c.Apply(t)
			c.NoChanges(t)
			reads(t, fmt.Sprintf("rotated-%d", n))
		}
	})
	step("the issuer changes back in two applies while tokens are used", func(t *testing.T) {
		module(t, "")
		_, _, err := c.WS.Plan(t.Context())
		harness.Refused(t, err, "An issuer whose tokens are in use", `["`+ownIssuer+`", "`+issuer+`"]`)
		module(t, withIssuer, ownIssuer, issuer)
		ends := useTokens(t, c.Kubeconfig)
		c.Apply(t)
		c.NoChanges(t)
		t.Logf("figures: the issuer changed back: %s", ends(t))
		module(t, "")
		c.Apply(t)
		c.NoChanges(t)
		left := harness.Must[*s3.ListObjectsV2Output](t)(buckets.ListObjectsV2(t.Context(), &s3.ListObjectsV2Input{Bucket: aws.String(issuerBucket), Prefix: aws.String("k8s/")}))
		providers := harness.Must[*iam.ListOpenIDConnectProvidersOutput](t)(iam.NewFromConfig(suite.AWS()).ListOpenIDConnectProviders(t.Context(), &iam.ListOpenIDConnectProvidersInput{}))
		if len(left.Contents) > 0 || len(providers.OpenIDConnectProviderList) > 0 {
			t.Errorf("%d documents and %d providers are left", len(left.Contents), len(providers.OpenIDConnectProviderList))
		}
	})
	step("destroy", func(t *testing.T) {
		c.Destroy(t)
		suite.Empty(t)
	})
}

// inPod runs testdata/roles in a pod, and returns what it prints.
func inPod(t *testing.T, c *harness.Cluster, name, account string, host bool, args ...string) string {
	t.Helper()
	words := string(harness.Must[[]byte](t)(json.Marshal(args)))
	c.Create(t, fmt.Sprintf(rolePod, name, account, host, strings.Trim(words, "[]")))
	harness.Eventually(t, time.Minute, "pod "+name+" ends", func() error {
		if phase := c.Kubectl(t, "get", "pod", name, "-o", "jsonpath={.status.phase}"); phase != "Succeeded" {
			return errors.New(phase)
		}
		return nil
	})
	said := strings.TrimSpace(c.Kubectl(t, "logs", name))
	c.Kubectl(t, "delete", "pod", name, "--wait=false")
	return said
}

// noMetadata fails the test if a pod reaches the metadata service of its node, or if one on the network of its node does not.
func noMetadata(t *testing.T, c *harness.Cluster) {
	t.Helper()
	if said := inPod(t, c, "metadata", "default", false, "metadata"); said != "no answer" {
		t.Errorf("a pod gets %q", said)
	}
	if said := inPod(t, c, "metadata-host", "default", true, "metadata"); !strings.HasPrefix(said, "i-") {
		t.Errorf("a pod on its node's network gets %q", said)
	}
}

// installRoles puts testdata/roles on two workers.
func installRoles(t *testing.T, c *harness.Cluster) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "roles")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./testdata/roles")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	content := harness.Must[[]byte](t)(os.ReadFile(program))
	for _, worker := range harness.Numbered("worker", 2) {
		if err := c.Send(t.Context(), worker, bytes.NewReader(content), "install -D -m 755 /dev/stdin /opt/roles/roles"); err != nil {
			t.Fatal(err)
		}
	}
}

// useTokens uses tokens of a service account: one from the beginning, and ones that an API server has just issued, each over a new
// connection and so at any API server. The returned function ends that, and fails the test if a token was refused.
func useTokens(t *testing.T, kubeconfig string) (end func(t *testing.T) string) {
	t.Helper()
	admin := harness.Must[*rest.Config](t)(clientcmd.BuildConfigFromFlags("", kubeconfig))
	connect := func(as *rest.Config) *http.Client { // each request has a connection of its own
		secure := harness.Must[*tls.Config](t)(rest.TLSConfigFor(as))
		return &http.Client{Transport: &http.Transport{TLSClientConfig: secure, DisableKeepAlives: true}, Timeout: 10 * time.Second}
	}
	issuing, using := connect(admin), connect(rest.AnonymousClientConfig(admin))
	ctx, cancel := context.WithCancel(t.Context())
	post := func(client *http.Client, token, path, body string) (answer []byte, status int, err error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, admin.Host+path, strings.NewReader(body))
		if err != nil {
			return nil, 0, err
		}
		r.Header.Set("Content-Type", "application/json")
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		out, err := client.Do(r)
		if err != nil {
			return nil, 0, err
		}
		defer out.Body.Close() //nolint:errcheck // read only
		answer, err = io.ReadAll(out.Body)
		return answer, out.StatusCode, err
	}
	issue := func() (string, error) {
		answer, status, err := post(issuing, "", "/api/v1/namespaces/default/serviceaccounts/reader/token", `{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}`)
		var made authenticationv1.TokenRequest
		if err == nil && status == http.StatusCreated {
			err = json.Unmarshal(answer, &made)
		}
		if err == nil && made.Status.Token == "" {
			err = fmt.Errorf("status %d: %s", status, answer)
		}
		return made.Status.Token, err
	}
	first := harness.Must[string](t)(issue())
	used, broken := 0, 0
	var refused []string
	var done sync.WaitGroup
	done.Go(func() {
		for ctx.Err() == nil {
			fresh, err := issue()
			if err != nil {
				fresh = first // the API server that was asked has just ended
			}
			for what, token := range map[string]string{"first": first, "fresh": fresh} {
				answer, status, err := post(using, token, "/apis/authentication.k8s.io/v1/selfsubjectreviews", `{"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}`)
				switch {
				case ctx.Err() != nil:
					return
				case err == nil && status == http.StatusUnauthorized:
					refused = append(refused, fmt.Sprintf("the %s token at %s: %s", what, time.Now().Format(time.TimeOnly), answer))
				case err != nil || status != http.StatusCreated:
					broken++
				}
				used++
			}
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	})
	t.Cleanup(func() { cancel(); done.Wait() })
	return func(t *testing.T) string {
		t.Helper()
		cancel()
		done.Wait()
		if len(refused) > 0 || used < 20 {
			t.Errorf("of %d tokens %d were refused:\n%s", used, len(refused), strings.Join(refused, "\n"))
		}
		return fmt.Sprintf("%d uses of tokens, none refused, %d other errors", used, broken)
	}
}
