package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
)

const issuerText = `case "$*" in *trial_issuer*) echo '{"url":"https://bucket.example.com/k8s/x/issuer","provider":"arn:aws:iam::123456789012:oidc-provider/bucket.example.com/k8s/x/issuer"}'; exit 0 ;; esac
`

// withDriver prepares a trial with -ebs: programs stand for Helm, and a server for S3. It returns what S3 was asked.
func (f *fixture) withDriver(t *testing.T) func() []string {
	t.Helper()
	f.ebs = true
	f.does(t, "output", issuerText)
	bin := t.TempDir()
	helm := "#!/bin/sh\necho \"$*\" >\"$FAKE/helm\"\ncat >\"$FAKE/values\"\necho 'kind: Chart'\n"
	if err := os.WriteFile(filepath.Join(bin, "helm"), []byte(helm), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	var mu sync.Mutex
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		what := ""
		for _, key := range []string{"publicAccessBlock", "policy", "list-type"} {
			if r.URL.Query().Has(key) {
				what = "?" + key
			}
		}
		asked = append(asked, r.Method+" "+strings.TrimSuffix(r.URL.Path, "/")+what)
		if what == "?list-type" {
			_, _ = w.Write([]byte(`<ListBucketResult><Contents><Key>left</Key></Contents></ListBucketResult>`))
		}
	}))
	t.Cleanup(server.Close)
	f.account.client.S3 = s3.New(s3.Options{Region: "us-east-1", BaseEndpoint: &server.URL, UsePathStyle: true, Credentials: credentials.NewStaticCredentialsProvider("a", "b", "")})
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(asked)
	}
}

// TestDriver: the volume is tried after everything else, and nothing of it is left.
func TestDriver(t *testing.T) {
	f := newFixture(t, "-yes")
	asked := f.withDriver(t)
	if err := f.run(t.Context(), t.Context()); err != nil {
		t.Fatalf("%v\n%s", err, f.out.String())
	}
	r, _ := f.written(t)
	if got := r.results(passedStep); len(got) != len(r.Steps) || !slices.Contains(got, "EBS volume") {
		t.Errorf("passed: %q of %+v", got, r.Steps)
	}
	bucket := "/" + f.issuerBucket()
	if want := []string{"PUT " + bucket, "PUT " + bucket + "?publicAccessBlock", "PUT " + bucket + "?policy", "GET " + bucket + "?list-type", "DELETE " + bucket + "/left", "DELETE " + bucket}; !slices.Equal(asked(), want) {
		t.Errorf("S3 was asked %q", asked())
	}
	if _, err := f.driver.api.GetRole(t.Context(), &iam.GetRoleInput{RoleName: aws.String(f.driverRole())}); !infraaws.IsCode(err, "NoSuchEntity") {
		t.Errorf("the role: %v", err)
	}
	values, err := os.ReadFile(filepath.Join(f.fake, "values"))
	for _, want := range []string{"k8sTagClusterId: " + f.name, "region: us-east-1", "arn:aws:iam::" + f.account.id + ":role/" + f.name + "-ebs-csi"} {
		if err != nil || !strings.Contains(string(values), want) {
			t.Errorf("%v: %q is missing in\n%s", err, want, values)
		}
	}
	args, _ := os.ReadFile(filepath.Join(f.fake, "helm"))
	guide, err := os.ReadFile(filepath.Join(f.root, "templates", "guides", "volumes-of-pods.md"))
	_, version, _ := strings.Cut(string(args), "--version ")
	version, _, _ = strings.Cut(version, " ")
	if err != nil || version == "" || !strings.Contains(string(guide), "--version "+version+" ") {
		t.Errorf("%v: the guide does not name release %q of the chart: %s", err, version, args)
	}
}

// TestDriverFails: a volume that does not follow its pod fails the trial, and a trial without Helm makes nothing.
func TestDriverFails(t *testing.T) {
	t.Run("volume", func(t *testing.T) {
		f := newFixture(t, "-yes")
		asked := f.withDriver(t)
		f.does(t, "broken", "/data/file")
		err := f.run(t.Context(), t.Context())
		if err == nil || !strings.Contains(err.Error(), "EBS volume: ") {
			t.Errorf("%v", err)
		}
		if all := asked(); all[len(all)-1] != "DELETE /"+f.issuerBucket() || !slices.Contains(f.calls(t), "destroy") {
			t.Errorf("what is left: %q, %q", all, f.calls(t))
		}
	})
	t.Run("no Helm", func(t *testing.T) {
		f := newFixture(t, "-yes")
		asked := f.withDriver(t)
		t.Setenv("PATH", "/nowhere")
		err := f.run(t.Context(), t.Context())
		if err == nil || !strings.Contains(err.Error(), "install Helm") || len(asked()) > 0 || len(f.calls(t)) > 0 {
			t.Errorf("%v, %q, %q", err, asked(), f.calls(t))
		}
	})
}

func TestTrustingPods(t *testing.T) {
	text, err := trustingPods("arn:aws:iam::123456789012:oidc-provider/b.example.com/issuer", "https://b.example.com/issuer", driverAccount)
	var got struct {
		Statement []struct {
			Condition map[string]map[string]string
		}
	}
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	if keys := got.Statement[0].Condition["StringEquals"]; err != nil || keys["b.example.com/issuer:sub"] != "system:serviceaccount:kube-system:ebs-csi-controller-sa" || keys["b.example.com/issuer:aud"] != "sts.amazonaws.com" {
		t.Errorf("%v: %s", err, text)
	}
}
