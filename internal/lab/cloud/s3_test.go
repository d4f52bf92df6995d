package cloud_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	s3types "github.com/aws/aws-sdk-go-v2/service/s3/types"
	awssts "github.com/aws/aws-sdk-go-v2/service/sts"
	"golang.org/x/sync/errgroup"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/cloudtest"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/iam"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/objects"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/release"
)

// withS3 gives the lab S3, kept in its directory, and says where its store is then.
func withS3(t *testing.T, store **objects.Store) func(*cloudtest.Lab) {
	t.Helper()
	program, err := release.EnsureGateway(t.Context(), release.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return func(l *cloudtest.Lab) {
		var output bytes.Buffer
		s := objects.New(objects.Config{
			Program: func() (string, error) { return program, nil }, Dir: filepath.Join(l.Dir, "s3"), Region: "us-east-1", Output: &output,
		})
		*store, l.Objects = s, s
		l.Started = func(ctx context.Context, a *cloud.Account) error { return s.Ask(ctx, a.Authority(s.Key())) }
		t.Cleanup(func() {
			s.Close()
			if t.Failed() {
				t.Logf("the object store: %s", &output)
			}
		})
	}
}

// s3 returns a client for what l is seen as.
func s3(l *cloudtest.Lab) *awss3.Client { return awss3.NewFromConfig(l.AWS) }

func put(t *testing.T, l *cloudtest.Lab, key, body string, change ...func(*awss3.PutObjectInput)) error {
	t.Helper()
	in := &awss3.PutObjectInput{Bucket: aws.String("backups"), Key: &key, Body: strings.NewReader(body)}
	for _, f := range change {
		f(in)
	}
	_, err := s3(l).PutObject(t.Context(), in)
	return err
}

func get(t *testing.T, l *cloudtest.Lab, key string) (string, error) {
	t.Helper()
	out, err := s3(l).GetObject(t.Context(), &awss3.GetObjectInput{Bucket: aws.String("backups"), Key: &key})
	if err != nil {
		return "", err
	}
	body, err := io.ReadAll(out.Body)
	return string(body), err
}

// TestS3 uses S3 as the owner, as a user and in sessions, and looks at what is refused.
func TestS3(t *testing.T) {
	var calls record
	var store *objects.Store
	l := cloudtest.New(t, withS3(t, &store), func(l *cloudtest.Lab) { l.Calls = slog.New(slog.NewJSONHandler(&calls, nil)) })
	cloudtest.Must[*awss3.CreateBucketOutput](t)(s3(l).CreateBucket(t.Context(), &awss3.CreateBucketInput{Bucket: aws.String("backups")}))
	if got := l.Account.Overview().Buckets; len(got) != 1 || got[0] != "backups" {
		t.Errorf("buckets: %q", got)
	}
	big := strings.Repeat("0123456789abcdef", 1<<17) // 2 MiB, more than a request to another service may have
	for key, body := range map[string]string{"a/one": "1", "a/two": big} {
		if err := put(t, l, key, body); err != nil {
			t.Fatal(err)
		}
		if got, err := get(t, l, key); err != nil || got != body {
			t.Fatalf("%s: %d bytes, %v", key, len(got), err)
		}
	}

	t.Run("policies", func(t *testing.T) {
		dev := l.User(t,
			`{"Effect":"Allow","Action":["s3:PutObject","s3:GetObject"],"Resource":"arn:aws:s3:::backups/a/*"}`,
			`{"Effect":"Allow","Action":"s3:ListBucket","Resource":"arn:aws:s3:::backups","Condition":{"StringLike":{"s3:prefix":"a/*"}}}`,
			`{"Effect":"Deny","Action":"s3:*","Resource":"arn:aws:s3:::backups/a/two"}`)
		if got, err := get(t, dev, "a/one"); err != nil || got != "1" {
			t.Errorf("%q, %v", got, err)
		}
		if err := put(t, dev, "a/three", "3"); err != nil {
			t.Error(err)
		}
		_, err := get(t, dev, "a/two")
		cloudtest.Refused(t, err, "AccessDenied")
		cloudtest.Refused(t, put(t, dev, "b/one", "1"), "AccessDenied")
		list := func(prefix string) error {
			_, err := s3(dev).ListObjectsV2(t.Context(), &awss3.ListObjectsV2Input{Bucket: aws.String("backups"), Prefix: &prefix})
			return err
		}
		if err := list("a/"); err != nil {
			t.Error(err)
		}
		cloudtest.Refused(t, list("b/"), "AccessDenied")
		_, err = s3(dev).DeleteObject(t.Context(), &awss3.DeleteObjectInput{Bucket: aws.String("backups"), Key: aws.String("a/one")})
		cloudtest.Refused(t, err, "AccessDenied")
	})
	t.Run("snapshots of two clusters", func(t *testing.T) {
		bucket := aws.String("example-snapshots")
		cloudtest.Must[*awss3.CreateBucketOutput](t)(s3(l).CreateBucket(t.Context(), &awss3.CreateBucketInput{Bucket: bucket}))
		boundary := cloudtest.Must[iam.Managed](t)(l.Account.Identities().PutPolicy("k8s-boundary", "", document(t, "boundary")))
		role := cloudtest.Must[iam.Role](t)(l.Account.Identities().PutRole("ada-controller", iam.Entity{
			Path: "/k8s/ada/", Policies: []string{document(t, "etcd-snapshots")}, Boundary: boundary.ARN, Tags: map[string]string{"k8s-cluster": "ada"},
		}, ""))
		c := cloudtest.Must[*awssts.AssumeRoleOutput](t)(l.STS.AssumeRole(t.Context(), &awssts.AssumeRoleInput{RoleArn: &role.ARN, RoleSessionName: aws.String("node")})).Credentials
		machine := s3(l.With(*c.AccessKeyId, *c.SecretAccessKey, *c.SessionToken))
		for cluster, want := range map[string]string{"ada": "", "bob": "AccessDenied"} {
			key, prefix := aws.String("k8s/"+cluster+"/etcd/one"), aws.String("k8s/"+cluster+"/etcd/")
			_, err := machine.PutObject(t.Context(), &awss3.PutObjectInput{Bucket: bucket, Key: key, Body: strings.NewReader("1")})
			cloudtest.Refused(t, err, want)
			_, err = machine.ListObjectsV2(t.Context(), &awss3.ListObjectsV2Input{Bucket: bucket, Prefix: prefix})
			cloudtest.Refused(t, err, want)
			_, err = machine.GetObject(t.Context(), &awss3.GetObjectInput{Bucket: bucket, Key: key})
			cloudtest.Refused(t, err, want)
			_, err = machine.DeleteObject(t.Context(), &awss3.DeleteObjectInput{Bucket: bucket, Key: key})
			cloudtest.Refused(t, err, want)
		}
		_, err := machine.ListObjectsV2(t.Context(), &awss3.ListObjectsV2Input{Bucket: bucket})
		cloudtest.Refused(t, err, "AccessDenied")
		cloudtest.Must[*awss3.DeleteBucketOutput](t)(s3(l).DeleteBucket(t.Context(), &awss3.DeleteBucketInput{Bucket: bucket}))
	})
	t.Run("sessions", func(t *testing.T) {
		creds := cloudtest.Must[*awssts.GetSessionTokenOutput](t)(l.STS.GetSessionToken(t.Context(), &awssts.GetSessionTokenInput{})).Credentials
		session := l.With(*creds.AccessKeyId, *creds.SecretAccessKey, *creds.SessionToken)
		if got, err := get(t, session, "a/one"); err != nil || got != "1" {
			t.Errorf("%q, %v", got, err)
		}
		_, err := get(t, l.With(*creds.AccessKeyId, *creds.SecretAccessKey, "other"), "a/one")
		cloudtest.Refused(t, err, "InvalidToken")
		if _, err := l.Account.Identities().PutRole("reader", iam.Entity{Policies: []string{cloudtest.Everything}}, ""); err != nil {
			t.Fatal(err)
		}
		narrow := cloudtest.Must[*awssts.AssumeRoleOutput](t)(l.STS.AssumeRole(t.Context(), &awssts.AssumeRoleInput{
			RoleArn: aws.String("arn:aws:iam::123456789012:role/reader"), RoleSessionName: aws.String("session"),
			Policy: aws.String(`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"s3:GetObject","Resource":"*"}]}`),
		})).Credentials
		session = l.With(*narrow.AccessKeyId, *narrow.SecretAccessKey, *narrow.SessionToken)
		if _, err := get(t, session, "a/one"); err != nil {
			t.Error(err)
		}
		cloudtest.Refused(t, put(t, session, "a/one", "2"), "AccessDenied")
	})
	t.Run("signatures", func(t *testing.T) {
		_, err := get(t, l.With(cloudtest.AccessKeyID, "wrong", ""), "a/one")
		cloudtest.Refused(t, err, "SignatureDoesNotMatch")
		_, err = get(t, l.With("AKIANOBODY", "wrong", ""), "a/one")
		cloudtest.Refused(t, err, "InvalidAccessKeyId")
		resp, err := http.Get(l.URL + "/backups/a/one") //nolint:noctx // short
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close() //nolint:errcheck // read only
		if resp.StatusCode != http.StatusForbidden {
			t.Errorf("unsigned: %s", resp.Status)
		}
		_, err = get(t, l.In("eu-west-1"), "a/one")
		cloudtest.Refused(t, err, "AuthorizationHeaderMalformed")
	})
	t.Run("encryption", func(t *testing.T) {
		with := func(key string) error {
			return put(t, l, "a/four", "4", func(in *awss3.PutObjectInput) {
				in.ServerSideEncryption, in.SSEKMSKeyId = s3types.ServerSideEncryptionAwsKms, &key
			})
		}
		const id = "1234abcd-12ab-34cd-56ef-1234567890ab"
		for _, key := range []string{id, "alias/backups", "arn:aws:kms:us-east-1:123456789012:key/" + id} {
			if err := with(key); err != nil {
				t.Errorf("%s: %v", key, err)
			}
		}
		for _, key := range []string{"backups", "arn:aws:kms:eu-west-1:123456789012:key/" + id} {
			cloudtest.Refused(t, with(key), "KMS.NotFoundException")
		}
		dev := l.User(t, `{"Effect":"Allow","Action":"s3:*","Resource":"*"}`)
		err := put(t, dev, "a/four", "4", func(in *awss3.PutObjectInput) {
			in.ServerSideEncryption, in.SSEKMSKeyId = s3types.ServerSideEncryptionAwsKms, aws.String(id)
		})
		cloudtest.Refused(t, err, "AccessDenied")
	})
	t.Run("damage on the way", func(t *testing.T) {
		sum := sha256.Sum256([]byte("other"))
		err := put(t, l, "a/five", "5", func(in *awss3.PutObjectInput) { in.ChecksumSHA256 = aws.String(hex.EncodeToString(sum[:])) })
		if err == nil {
			t.Error("an object with another checksum was stored")
		}
		if _, err := get(t, l, "a/five"); cloudtest.Code(err) != "NoSuchKey" {
			t.Error(err)
		}
	})
	t.Run("deleted twice", func(t *testing.T) {
		for range 20 {
			if err := put(t, l, "a/six", "6"); err != nil {
				t.Fatal(err)
			}
			var together errgroup.Group
			for range 6 {
				together.Go(func() error {
					_, err := s3(l).DeleteObject(t.Context(), &awss3.DeleteObjectInput{Bucket: aws.String("backups"), Key: aws.String("a/six")})
					return err
				})
			}
			if err := together.Wait(); err != nil {
				t.Fatal(err)
			}
		}
		_, err := s3(l).DeleteObject(t.Context(), &awss3.DeleteObjectInput{Bucket: aws.String("missing"), Key: aws.String("a/six")})
		cloudtest.Refused(t, err, "NoSuchBucket")
	})
	t.Run("faults", func(t *testing.T) {
		l.Fault(t, cloudtest.Fields{"kind": "fail", "action": "PutObject", "code": "InternalError", "status": 500, "count": 1})
		cloudtest.Refused(t, put(t, l, "a/two", big), "InternalError")
		if err := put(t, l, "a/two", big); err != nil {
			t.Error(err)
		}
		l.Fault(t, cloudtest.Fields{"kind": "throttle", "action": "GetObject", "every": 1, "count": 1})
		_, err := get(t, l, "a/one")
		cloudtest.Refused(t, err, "SlowDown")
	})
	for _, want := range []string{
		`"msg":"answered","service":"s3","action":"PutObject","resources":["backups/a/one"]`,
		`"action":"GetObject","resources":["backups/a/two"]`, `"code":"AccessDenied"`, `"code":"SlowDown"`,
	} {
		cloudtest.Eventually(t, "the log of calls has "+want, func() bool { return strings.Contains(calls.String(), want) })
	}
}

// record is a log that is read while it is written.
type record struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (r *record) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.all.Write(p)
}

func (r *record) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.all.String()
}

// TestS3Ends: the program is started again when it has ended, and finds its objects.
func TestS3Ends(t *testing.T) {
	var store *objects.Store
	l := cloudtest.New(t, withS3(t, &store))
	cloudtest.Must[*awss3.CreateBucketOutput](t)(s3(l).CreateBucket(t.Context(), &awss3.CreateBucketInput{Bucket: aws.String("backups")}))
	if err := put(t, l, "one", "1"); err != nil {
		t.Fatal(err)
	}
	first := gateways(t, l)
	if len(first) != 1 {
		t.Fatalf("processes of the object store: %d", first)
	}
	if err := syscall.Kill(first[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	cloudtest.Eventually(t, "the object store ended", func() bool { return len(gateways(t, l)) == 0 })
	var got string
	var err error
	cloudtest.Eventually(t, "its end was noticed", func() bool { // a request before that gets 502, which SDKs repeat
		got, err = get(t, l, "one")
		return cloudtest.Code(err) != "BadGateway"
	})
	if err != nil || got != "1" {
		t.Errorf("%q, %v", got, err)
	}
	store.Close()
	if left := gateways(t, l); len(left) != 0 {
		t.Errorf("processes %d are left", left)
	}
	_, err = get(t, l, "one")
	cloudtest.Refused(t, err, "ServiceUnavailable")
}

// gateways returns the processes that serve this lab's objects.
func gateways(t *testing.T, l *cloudtest.Lab) (pids []int) {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range dirs {
		line, _ := os.ReadFile(filepath.Join(dir, "cmdline")) // the process may have ended
		if bytes.Contains(line, []byte(filepath.Join(l.Dir, "s3"))) {
			pid, _ := strconv.Atoi(filepath.Base(dir))
			pids = append(pids, pid)
		}
	}
	return pids
}
