package cloud_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	s3types "github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/cloudtest"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/objects"
)

// bucketOf is one bucket as somebody sees it.
type bucketOf struct {
	*awss3.Client
	t    *testing.T
	name *string
}

func (b bucketOf) as(l *cloudtest.Lab) bucketOf { return bucketOf{s3(l), b.t, b.name} }

func (b bucketOf) create() {
	b.t.Helper()
	cloudtest.Must[*awss3.CreateBucketOutput](b.t)(b.CreateBucket(b.t.Context(), &awss3.CreateBucketInput{Bucket: b.name}))
}

func (b bucketOf) put(key, body string) error {
	_, err := b.PutObject(b.t.Context(), &awss3.PutObjectInput{Bucket: b.name, Key: &key, Body: strings.NewReader(body)})
	return err
}

func (b bucketOf) get(key string) error {
	_, err := b.GetObject(b.t.Context(), &awss3.GetObjectInput{Bucket: b.name, Key: &key})
	return err
}

func (b bucketOf) list() error {
	_, err := b.ListObjectsV2(b.t.Context(), &awss3.ListObjectsV2Input{Bucket: b.name})
	return err
}

// block returns the settings as letters: those that are on.
func (b bucketOf) block() (string, error) {
	out, err := b.GetPublicAccessBlock(b.t.Context(), &awss3.GetPublicAccessBlockInput{Bucket: b.name})
	if err != nil {
		return "", err
	}
	on := ""
	c := out.PublicAccessBlockConfiguration
	for n, setting := range []*bool{c.BlockPublicAcls, c.IgnorePublicAcls, c.BlockPublicPolicy, c.RestrictPublicBuckets} {
		if aws.ToBool(setting) {
			on += string("aipr"[n])
		}
	}
	return on, nil
}

func (b bucketOf) setBlock(on string) error {
	is := func(letter string) *bool { return aws.Bool(strings.Contains(on, letter)) }
	_, err := b.PutPublicAccessBlock(b.t.Context(), &awss3.PutPublicAccessBlockInput{Bucket: b.name, PublicAccessBlockConfiguration: &s3types.PublicAccessBlockConfiguration{
		BlockPublicAcls: is("a"), IgnorePublicAcls: is("i"), BlockPublicPolicy: is("p"), RestrictPublicBuckets: is("r"),
	}})
	return err
}

func (b bucketOf) deleteBlock() error {
	_, err := b.DeletePublicAccessBlock(b.t.Context(), &awss3.DeletePublicAccessBlockInput{Bucket: b.name})
	return err
}

func (b bucketOf) status() (public bool, err error) {
	out, err := b.GetBucketPolicyStatus(b.t.Context(), &awss3.GetBucketPolicyStatusInput{Bucket: b.name})
	if err != nil {
		return false, err
	}
	return *out.PolicyStatus.IsPublic, nil
}

func (b bucketOf) setPolicy(statements ...string) error {
	policy := `{"Version":"2012-10-17","Statement":[` + strings.Join(statements, ",") + `]}`
	_, err := b.PutBucketPolicy(b.t.Context(), &awss3.PutBucketPolicyInput{Bucket: b.name, Policy: &policy})
	return err
}

// allow is a statement for a principal, in JSON.
func (b bucketOf) allow(principal, action, resource string) string {
	return fmt.Sprintf(`{"Effect":"Allow","Principal":%s,"Action":%q,"Resource":"arn:aws:s3:::%s%s"}`, principal, action, *b.name, resource)
}

// unsigned returns the lab as somebody without credentials sees it.
func unsigned(l *cloudtest.Lab) *cloudtest.Lab {
	other := *l
	other.AWS = l.AWS.Copy()
	other.AWS.Credentials = aws.AnonymousCredentials{}
	return &other
}

// TestPublicAccessBlock: every new bucket blocks public policies, until somebody who may changes that.
func TestPublicAccessBlock(t *testing.T) {
	var store *objects.Store
	l := cloudtest.New(t, withS3(t, &store))
	b := bucketOf{s3(l), t, aws.String("keys")}
	block := func(b bucketOf, want string) {
		t.Helper()
		if got := cloudtest.Must[string](t)(b.block()); got != want {
			t.Errorf("the settings are %q, want %q", got, want)
		}
	}
	refused := func(err error, want string) { t.Helper(); cloudtest.Refused(t, err, want) }
	none := bucketOf{b.Client, t, aws.String("missing")}
	_, err := none.block()
	refused(err, "NoSuchBucket")
	refused(none.setBlock(""), "NoSuchBucket")
	refused(none.deleteBlock(), "NoSuchBucket")
	b.create()
	block(b, "aipr")
	_, err = b.status()
	refused(err, "NoSuchBucketPolicy")

	public := b.allow(`"*"`, "s3:GetObject", "/*")
	dev := b.as(l.User(t, `{"Effect":"Allow","Action":"s3:PutBucketPolicy","Resource":"*"}`))
	err = dev.setPolicy(public)
	if refused(err, "AccessDenied"); err != nil && !strings.Contains(err.Error(), `User: arn:aws:iam::123456789012:user/dev is not authorized to perform: s3:PutBucketPolicy on resource: "arn:aws:s3:::keys" because public policies`) {
		t.Error(err)
	}
	refused(none.setPolicy(public), "NoSuchBucket")
	refused(dev.setPolicy(b.allow(`{"AWS":"arn:aws:iam::123456789012:user/dev"}`, "s3:GetObject", "/*")), "")
	if cloudtest.Must[bool](t)(b.status()) {
		t.Error("a policy for one user is public")
	}

	for name, test := range map[string]struct{ statement, get, put, remove string }{
		"nothing":        {`{"Effect":"Allow","Action":"s3:GetObject","Resource":"*"}`, "AccessDenied", "AccessDenied", "AccessDenied"},
		"get":            {`{"Effect":"Allow","Action":"s3:GetBucketPublicAccessBlock","Resource":"arn:aws:s3:::keys"}`, "", "AccessDenied", "AccessDenied"},
		"put":            {`{"Effect":"Allow","Action":"s3:PutBucketPublicAccessBlock","Resource":"arn:aws:s3:::keys"}`, "AccessDenied", "", ""},
		"another bucket": {`{"Effect":"Allow","Action":"s3:*","Resource":"arn:aws:s3:::other"}`, "AccessDenied", "AccessDenied", "AccessDenied"},
	} {
		t.Run(name, func(t *testing.T) {
			refused := func(err error, want string) { t.Helper(); cloudtest.Refused(t, err, want) }
			dev := b.as(l.User(t, test.statement))
			_, err := dev.block()
			refused(err, test.get)
			refused(dev.setBlock("aipr"), test.put)
			refused(dev.deleteBlock(), test.remove)
			refused(b.setBlock("aipr"), "")
		})
	}
	dev = b.as(l.User(t, `{"Effect":"Allow","Action":"s3:GetObject","Resource":"*"}`))
	refused(b.setPolicy(b.allow(`{"AWS":"arn:aws:iam::123456789012:user/dev"}`, "s3:PutBucketPublicAccessBlock", "")), "")
	refused(dev.setBlock("aipr"), "")
	refused(b.setPolicy(strings.Replace(b.allow(`"*"`, "s3:PutBucketPublicAccessBlock", ""), "Allow", "Deny", 1)), "")
	refused(b.deleteBlock(), "AccessDenied")
	cloudtest.Must[*awss3.DeleteBucketPolicyOutput](t)(b.DeleteBucketPolicy(t.Context(), &awss3.DeleteBucketPolicyInput{Bucket: b.name}))
	_, err = b.as(l.With(cloudtest.AccessKeyID, "wrong", "")).block()
	refused(err, "SignatureDoesNotMatch")
	refused(b.as(l.With("AKIANOBODY", "wrong", "")).setBlock(""), "InvalidAccessKeyId")
	refused(b.as(unsigned(l)).setBlock(""), "AccessDenied")
	_, err = b.as(l.In("eu-west-1")).block()
	refused(err, "AuthorizationHeaderMalformed")
	refused(b.as(l.With(cloudtest.AccessKeyID, "wrong", "")).setPolicy(public), "SignatureDoesNotMatch")
	block(b, "aipr")

	refused(b.setBlock("air"), "")
	refused(b.setPolicy(public), "")
	if !cloudtest.Must[bool](t)(b.status()) {
		t.Error("a policy for everybody is not public")
	}
	refused(b.setBlock("aipr"), "") // and the policy stays

	store.Close()
	again := cloudtest.New(t, func(n *cloudtest.Lab) { n.Dir = l.Dir }, withS3(t, &store))
	b = b.as(again)
	block(b, "aipr")
	refused(b.deleteBlock(), "")
	_, err = b.block()
	refused(err, "NoSuchPublicAccessBlockConfiguration")
	cloudtest.Must[*awss3.DeleteBucketOutput](t)(b.DeleteBucket(t.Context(), &awss3.DeleteBucketInput{Bucket: b.name}))
	b.create()
	block(b, "aipr")
	refused(b.setPolicy(public), "AccessDenied")
}

// TestAnonymous: who signs nothing may do what the bucket's policy allows everybody, unless the bucket restricts that.
func TestAnonymous(t *testing.T) {
	var store *objects.Store
	l := cloudtest.New(t, withS3(t, &store))
	b := bucketOf{s3(l), t, aws.String("keys")}
	b.create()
	for _, key := range []string{"a/one", "b/one"} {
		cloudtest.Refused(t, b.put(key, "1"), "")
	}
	anybody := b.as(unsigned(l))
	plain := func(method, path string) int {
		t.Helper()
		r := cloudtest.Must[*http.Request](t)(http.NewRequestWithContext(t.Context(), method, l.URL+path, http.NoBody))
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		return answer.StatusCode
	}
	// want has the errors of GET of an object, of a missing object, of another object, and of a list.
	asks := func(name string, want ...string) {
		t.Helper()
		for n, err := range []error{anybody.get("a/one"), anybody.get("a/two"), anybody.get("b/one"), anybody.list()} {
			if got := cloudtest.Code(err); got != want[n] {
				t.Errorf("%s: answer %d is %q (%v), want %q", name, n+1, got, err, want[n])
			}
		}
		for n, path := range []string{"/keys/a/one", "/keys/a/two"} {
			status := map[string]int{"": 200, "NoSuchKey": 404, "AccessDenied": 403}[want[n]]
			for _, method := range []string{http.MethodGet, http.MethodHead} {
				if got := plain(method, path); got != status {
					t.Errorf("%s: %s %s: %d, want %d", name, method, path, got, status)
				}
			}
		}
		for what, err := range map[string]error{"put": anybody.put("a/one", "2"), "policy": anybody.setPolicy(b.allow(`"*"`, "s3:*", "/*"))} {
			if got := cloudtest.Code(err); got != "AccessDenied" {
				t.Errorf("%s: %s: %q", name, what, got)
			}
		}
		if _, err := anybody.status(); cloudtest.Code(err) != "AccessDenied" {
			t.Errorf("%s: status: %v", name, err)
		}
	}
	const no = "AccessDenied"
	asks("a new bucket", no, no, no, no)
	cloudtest.Refused(t, b.setBlock(""), "")
	asks("no policy", no, no, no, no)
	get, list := b.allow(`"*"`, "s3:GetObject", "/a/*"), b.allow(`{"AWS":"*"}`, "s3:ListBucket", "")
	cloudtest.Refused(t, b.setPolicy(get), "")
	asks("get", "", no, no, no)
	cloudtest.Refused(t, b.setPolicy(get, list), "")
	asks("get and list", "", "NoSuchKey", no, "")
	cloudtest.Refused(t, b.setPolicy(get, list, strings.Replace(get, "Allow", "Deny", 1)), "")
	asks("get denied", no, no, no, "")
	cloudtest.Refused(t, b.setPolicy(get, list), "")
	cloudtest.Refused(t, b.setBlock("r"), "")
	asks("restricted", no, no, no, no)
	for _, parameter := range []string{"X-Amz-Signature=", "Signature=", "x-amz-date=1"} {
		if got := plain(http.MethodGet, "/keys/a/one?"+parameter); got == http.StatusOK {
			t.Errorf("%s passes", parameter)
		}
	}
	cloudtest.Refused(t, b.get("a/one"), "") // the owner
	cloudtest.Refused(t, b.setBlock("ai"), "")
	asks("no longer restricted", "", "NoSuchKey", no, "")
	if _, err := anybody.GetObject(t.Context(), &awss3.GetObjectInput{Bucket: aws.String("missing"), Key: aws.String("a")}); cloudtest.Code(err) != "NoSuchBucket" {
		t.Error(err)
	}
}

// TestACLs: buckets have no ACLs.
func TestACLs(t *testing.T) {
	var store *objects.Store
	l := cloudtest.New(t, withS3(t, &store))
	b, ctx := bucketOf{s3(l), t, aws.String("keys")}, t.Context()
	b.create()
	with := func(acl s3types.ObjectCannedACL, grant *string) error {
		_, err := b.PutObject(ctx, &awss3.PutObjectInput{Bucket: b.name, Key: aws.String("one"), Body: strings.NewReader("1"), ACL: acl, GrantRead: grant})
		return err
	}
	const off = "AccessControlListNotSupported"
	everybody := aws.String(`uri="http://acs.amazonaws.com/groups/global/AllUsers"`)
	cloudtest.Refused(t, with(s3types.ObjectCannedACLBucketOwnerFullControl, nil), "")
	cloudtest.Refused(t, with(s3types.ObjectCannedACLPublicRead, nil), off)
	cloudtest.Refused(t, with("", everybody), off)
	_, err := b.PutObjectAcl(ctx, &awss3.PutObjectAclInput{Bucket: b.name, Key: aws.String("one"), ACL: s3types.ObjectCannedACLPublicRead})
	cloudtest.Refused(t, err, off)
	_, err = b.PutBucketAcl(ctx, &awss3.PutBucketAclInput{Bucket: b.name, ACL: s3types.BucketCannedACLPublicRead})
	cloudtest.Refused(t, err, off)
	_, err = b.CreateMultipartUpload(ctx, &awss3.CreateMultipartUploadInput{Bucket: b.name, Key: aws.String("one"), ACL: s3types.ObjectCannedACLPublicRead})
	cloudtest.Refused(t, err, off)
	_, err = b.CopyObject(ctx, &awss3.CopyObjectInput{Bucket: b.name, Key: aws.String("two"), CopySource: aws.String("keys/one"), ACL: s3types.ObjectCannedACLPublicRead})
	cloudtest.Refused(t, err, off)
	_, err = b.CreateBucket(ctx, &awss3.CreateBucketInput{Bucket: aws.String("public"), ACL: s3types.BucketCannedACLPublicRead})
	cloudtest.Refused(t, err, "InvalidBucketAclWithObjectOwnership")
}
