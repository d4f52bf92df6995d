package cloud_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/cloudtest"
)

// ecr calls an action of ECR, and returns the status and the answer.
func ecr(t *testing.T, l *cloudtest.Lab, action string) (int, []byte) {
	t.Helper()
	const body = "{}"
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, l.URL, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Amz-Target", "AmazonEC2ContainerRegistry_V20150921."+action)
	req.Header.Set("Content-Type", "application/x-amz-json-1.1")
	creds, err := l.AWS.Credentials.Retrieve(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(body))
	if err := v4.NewSigner().SignHTTP(t.Context(), creds, req, hex.EncodeToString(sum[:]), "ecr", "us-east-1", l.Clock.Now()); err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // read to the end
	return resp.StatusCode, cloudtest.Must[[]byte](t)(io.ReadAll(resp.Body))
}

// TestECR: only who has a token and may pull from a repository gets its images, and a token ends.
func TestECR(t *testing.T) {
	l := cloudtest.New(t)
	images := httptest.NewServer(l.Account.Registry(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "image") })))
	t.Cleanup(images.Close)
	get := func(path, ns, password string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, images.URL+path+"?ns="+ns, nil)
		if err != nil {
			t.Fatal(err)
		}
		if password != "" {
			req.SetBasicAuth("AWS", password)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close() //nolint:errcheck // read to the end
		return resp.StatusCode, string(cloudtest.Must[[]byte](t)(io.ReadAll(resp.Body)))
	}
	const host, manifest = "123456789012.dkr.ecr.us-east-1.amazonaws.com", "/v2/team/web/manifests/1"
	if status, _ := get(manifest, "docker.io", ""); status != http.StatusOK {
		t.Errorf("another registry's mirror: %d", status)
	}
	if status, _ := get(manifest, host, ""); status != http.StatusUnauthorized {
		t.Errorf("without a login: %d", status)
	}
	if status, text := ecr(t, l.User(t, `{"Effect":"Allow","Action":"ec2:Describe*","Resource":"*"}`), "GetAuthorizationToken"); status != http.StatusBadRequest || !strings.Contains(string(text), "is not authorized to perform: ecr:GetAuthorizationToken") {
		t.Errorf("a user without rights: %d %s", status, text)
	}
	puller := l.User(t, `{"Effect":"Allow","Action":"ecr:GetAuthorizationToken","Resource":"*"}`,
		`{"Effect":"Allow","Action":["ecr:BatchGetImage","ecr:GetDownloadUrlForLayer"],"Resource":"arn:aws:ecr:us-east-1:123456789012:repository/team/*"}`)
	status, text := ecr(t, puller, "GetAuthorizationToken")
	var out struct {
		AuthorizationData []struct {
			AuthorizationToken, ProxyEndpoint string
			ExpiresAt                         int64
		}
	}
	if err := json.Unmarshal(text, &out); err != nil || status != http.StatusOK || len(out.AuthorizationData) != 1 {
		t.Fatalf("%d %s: %v", status, text, err)
	}
	data := out.AuthorizationData[0]
	if data.ProxyEndpoint != "https://"+host || data.ExpiresAt != l.Clock.Now().Add(12*time.Hour).Unix() {
		t.Errorf("%+v", data)
	}
	login := string(cloudtest.Must[[]byte](t)(base64.StdEncoding.DecodeString(data.AuthorizationToken)))
	password, ok := strings.CutPrefix(login, "AWS:")
	if !ok {
		t.Fatalf("the token is of %q", login)
	}
	for _, test := range []struct {
		path, ns, password string
		want               int
	}{
		{manifest, host, password, http.StatusOK},
		{"/v2/team/web/blobs/sha256:00", host, password, http.StatusOK},
		{"/v2/", host, password, http.StatusOK},
		{manifest, host, "x" + password, http.StatusUnauthorized},
		{"/v2/other/web/manifests/1", host, password, http.StatusForbidden},
		{"/v2/other/web/blobs/sha256:00", host, password, http.StatusForbidden},
		{manifest, strings.Replace(host, "1", "9", 1), password, http.StatusForbidden},
	} {
		if status, text := get(test.path, test.ns, test.password); status != test.want {
			t.Errorf("%+v: %d %s", test, status, text)
		}
	}
	if status, text := ecr(t, puller, "DeleteRepository"); status != http.StatusBadRequest {
		t.Errorf("an action that is not served: %d %s", status, text)
	}
	l.Clock.Advance(12*time.Hour + time.Second)
	if status, _ := get(manifest, host, password); status != http.StatusUnauthorized {
		t.Errorf("after twelve hours: %d", status)
	}
}
