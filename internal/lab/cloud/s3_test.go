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
	"syscall"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	s3types "github.com/aws/aws-sdk-go-v2/service/s3/types"
	awssts "github.com/aws/aws-sdk-go-v2/service/sts"
	"golang.org/x/sync/errgroup"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/objects"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/release"
)

// withS3 gives the lab S3, kept in its directory, and says where its store is then.
func withS3(t *testing.T, store **objects.Store) func(*lab) {
	t.Helper()
	program, err := release.EnsureGateway(t.Context(), release.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return func(l *lab) {
		var output bytes.Buffer
		s := objects.New(objects.Config{
			Program: func() (string, error) { return program, nil }, Dir: filepath.Join(l.dir, "s3"), Region: "us-east-1", Output: &output,
		})
		*store, l.objects = s, s
		l.started = func(ctx context.Context, a *cloud.Account) error { return s.Ask(ctx, a.Authority(s.Key())) }
		t.Cleanup(func() {
			s.Close()
			if t.Failed() {
				t.Logf("the object store: %s", &output)
			}
		})
	}
}

func (l *lab) s3() *awss3.Client { return awss3.NewFromConfig(l.aws) }

func (l *lab) put(t *testing.T, key, body string, change ...func(*awss3.PutObjectInput)) error {
	t.Helper()
	in := &awss3.PutObjectInput{Bucket: aws.String("backups"), Key: &key, Body: strings.NewReader(body)}
	for _, f := range change {
		f(in)
	}
	_, err := l.s3().PutObject(t.Context(), in)
	return err
}

func (l *lab) get(t *testing.T, key string) (string, error) {
	t.Helper()
	out, err := l.s3().GetObject(t.Context(), &awss3.GetObjectInput{Bucket: aws.String("backups"), Key: &key})
	if err != nil {
		return "", err
	}
	body, err := io.ReadAll(out.Body)
	return string(body), err
}

// TestS3 uses S3 as the owner, as a user and in sessions, and looks at what is refused.
func TestS3(t *testing.T) {
	var calls bytes.Buffer
	var store *objects.Store
	l := newLab(t, withS3(t, &store), func(l *lab) { l.calls = slog.New(slog.NewJSONHandler(&calls, nil)) })
	must[*awss3.CreateBucketOutput](t)(l.s3().CreateBucket(t.Context(), &awss3.CreateBucketInput{Bucket: aws.String("backups")}))
	if got := l.cloud.Overview().Buckets; len(got) != 1 || got[0] != "backups" {
		t.Errorf("buckets: %q", got)
	}
	big := strings.Repeat("0123456789abcdef", 1<<17) // 2 MiB, more than a request to another service may have
	for key, body := range map[string]string{"a/one": "1", "a/two": big} {
		if err := l.put(t, key, body); err != nil {
			t.Fatal(err)
		}
		if got, err := l.get(t, key); err != nil || got != body {
			t.Fatalf("%s: %d bytes, %v", key, len(got), err)
		}
	}

	t.Run("policies", func(t *testing.T) {
		dev := l.user(t,
			`{"Effect":"Allow","Action":["s3:PutObject","s3:GetObject"],"Resource":"arn:aws:s3:::backups/a/*"}`,
			`{"Effect":"Allow","Action":"s3:ListBucket","Resource":"arn:aws:s3:::backups","Condition":{"StringLike":{"s3:prefix":"a/*"}}}`,
			`{"Effect":"Deny","Action":"s3:*","Resource":"arn:aws:s3:::backups/a/two"}`)
		if got, err := dev.get(t, "a/one"); err != nil || got != "1" {
			t.Errorf("%q, %v", got, err)
		}
		if err := dev.put(t, "a/three", "3"); err != nil {
			t.Error(err)
		}
		_, err := dev.get(t, "a/two")
		refused(t, err, "AccessDenied")
		refused(t, dev.put(t, "b/one", "1"), "AccessDenied")
		list := func(prefix string) error {
			_, err := dev.s3().ListObjectsV2(t.Context(), &awss3.ListObjectsV2Input{Bucket: aws.String("backups"), Prefix: &prefix})
			return err
		}
		if err := list("a/"); err != nil {
			t.Error(err)
		}
		refused(t, list("b/"), "AccessDenied")
		_, err = dev.s3().DeleteObject(t.Context(), &awss3.DeleteObjectInput{Bucket: aws.String("backups"), Key: aws.String("a/one")})
		refused(t, err, "AccessDenied")
	})
	t.Run("sessions", func(t *testing.T) {
		creds := must[*awssts.GetSessionTokenOutput](t)(l.sts.GetSessionToken(t.Context(), &awssts.GetSessionTokenInput{})).Credentials
		session := l.with(*creds.AccessKeyId, *creds.SecretAccessKey, *creds.SessionToken)
		if got, err := session.get(t, "a/one"); err != nil || got != "1" {
			t.Errorf("%q, %v", got, err)
		}
		_, err := l.with(*creds.AccessKeyId, *creds.SecretAccessKey, "other").get(t, "a/one")
		refused(t, err, "InvalidToken")
		if _, err := l.cloud.Identities().PutRole("reader", []string{everything}, ""); err != nil {
			t.Fatal(err)
		}
		narrow := must[*awssts.AssumeRoleOutput](t)(l.sts.AssumeRole(t.Context(), &awssts.AssumeRoleInput{
			RoleArn: aws.String("arn:aws:iam::123456789012:role/reader"), RoleSessionName: aws.String("session"),
			Policy: aws.String(`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"s3:GetObject","Resource":"*"}]}`),
		})).Credentials
		session = l.with(*narrow.AccessKeyId, *narrow.SecretAccessKey, *narrow.SessionToken)
		if _, err := session.get(t, "a/one"); err != nil {
			t.Error(err)
		}
		refused(t, session.put(t, "a/one", "2"), "AccessDenied")
	})
	t.Run("signatures", func(t *testing.T) {
		_, err := l.with(testKey, "wrong", "").get(t, "a/one")
		refused(t, err, "SignatureDoesNotMatch")
		_, err = l.with("AKIANOBODY", "wrong", "").get(t, "a/one")
		refused(t, err, "InvalidAccessKeyId")
		resp, err := http.Get(l.url + "/backups/a/one") //nolint:noctx // short
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close() //nolint:errcheck // read only
		if resp.StatusCode != http.StatusForbidden {
			t.Errorf("unsigned: %s", resp.Status)
		}
		_, err = l.in("eu-west-1").get(t, "a/one")
		refused(t, err, "AuthorizationHeaderMalformed")
	})
	t.Run("encryption", func(t *testing.T) {
		with := func(key string) error {
			return l.put(t, "a/four", "4", func(in *awss3.PutObjectInput) {
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
			refused(t, with(key), "KMS.NotFoundException")
		}
		dev := l.user(t, `{"Effect":"Allow","Action":"s3:*","Resource":"*"}`)
		err := dev.put(t, "a/four", "4", func(in *awss3.PutObjectInput) {
			in.ServerSideEncryption, in.SSEKMSKeyId = s3types.ServerSideEncryptionAwsKms, aws.String(id)
		})
		refused(t, err, "AccessDenied")
	})
	t.Run("damage on the way", func(t *testing.T) {
		sum := sha256.Sum256([]byte("other"))
		err := l.put(t, "a/five", "5", func(in *awss3.PutObjectInput) { in.ChecksumSHA256 = aws.String(hex.EncodeToString(sum[:])) })
		if err == nil {
			t.Error("an object with another checksum was stored")
		}
		if _, err := l.get(t, "a/five"); code(err) != "NoSuchKey" {
			t.Error(err)
		}
	})
	t.Run("deleted twice", func(t *testing.T) {
		for range 20 {
			if err := l.put(t, "a/six", "6"); err != nil {
				t.Fatal(err)
			}
			var together errgroup.Group
			for range 6 {
				together.Go(func() error {
					_, err := l.s3().DeleteObject(t.Context(), &awss3.DeleteObjectInput{Bucket: aws.String("backups"), Key: aws.String("a/six")})
					return err
				})
			}
			if err := together.Wait(); err != nil {
				t.Fatal(err)
			}
		}
		_, err := l.s3().DeleteObject(t.Context(), &awss3.DeleteObjectInput{Bucket: aws.String("missing"), Key: aws.String("a/six")})
		refused(t, err, "NoSuchBucket")
	})
	t.Run("faults", func(t *testing.T) {
		l.fault(t, fields{"kind": "fail", "action": "PutObject", "code": "InternalError", "status": 500, "count": 1})
		refused(t, l.put(t, "a/two", big), "InternalError")
		if err := l.put(t, "a/two", big); err != nil {
			t.Error(err)
		}
		l.fault(t, fields{"kind": "throttle", "action": "GetObject", "every": 1, "count": 1})
		_, err := l.get(t, "a/one")
		refused(t, err, "SlowDown")
	})
	for _, want := range []string{
		`"msg":"answered","service":"s3","action":"PutObject","resources":["backups/a/one"]`,
		`"action":"GetObject","resources":["backups/a/two"]`, `"code":"AccessDenied"`, `"code":"SlowDown"`,
	} {
		if !strings.Contains(calls.String(), want) {
			t.Errorf("the log of calls lacks %s", want)
		}
	}
}

// TestS3Ends: the program is started again when it has ended, and finds its objects.
func TestS3Ends(t *testing.T) {
	var store *objects.Store
	l := newLab(t, withS3(t, &store))
	must[*awss3.CreateBucketOutput](t)(l.s3().CreateBucket(t.Context(), &awss3.CreateBucketInput{Bucket: aws.String("backups")}))
	if err := l.put(t, "one", "1"); err != nil {
		t.Fatal(err)
	}
	first := l.gateways(t)
	if len(first) != 1 {
		t.Fatalf("processes of the object store: %d", first)
	}
	if err := syscall.Kill(first[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the object store ended", func() bool { return len(l.gateways(t)) == 0 })
	var got string
	var err error
	eventually(t, "its end was noticed", func() bool { // a request before that gets 502, which SDKs repeat
		got, err = l.get(t, "one")
		return code(err) != "BadGateway"
	})
	if err != nil || got != "1" {
		t.Errorf("%q, %v", got, err)
	}
	store.Close()
	if left := l.gateways(t); len(left) != 0 {
		t.Errorf("processes %d are left", left)
	}
	_, err = l.get(t, "one")
	refused(t, err, "ServiceUnavailable")
}

// gateways returns the processes that serve this lab's objects.
func (l *lab) gateways(t *testing.T) (pids []int) {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range dirs {
		line, _ := os.ReadFile(filepath.Join(dir, "cmdline")) // the process may have ended
		if bytes.Contains(line, []byte(filepath.Join(l.dir, "s3"))) {
			pid, _ := strconv.Atoi(filepath.Base(dir))
			pids = append(pids, pid)
		}
	}
	return pids
}
