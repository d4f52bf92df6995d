// Package object writes and reads objects in S3. An object is bytes: what it holds, and which buckets there are, may
// not enter.
package object

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/foreign"
)

// ErrNotFound: the bucket has no object of this key. Head returns it also without the bucket,
// since S3 says no more there.
var ErrNotFound = errors.New("no such object")

// Ref says where an object is in S3.
type Ref struct {
	Bucket, Key string
	// Region is the bucket's region; empty means the client's.
	Region string
}

// String returns the object's URL, as the AWS CLI takes it.
func (o Ref) String() string { return "s3://" + o.Bucket + "/" + o.Key }

func (o Ref) region(opts *s3.Options) {
	if o.Region != "" {
		opts.Region = o.Region
	}
}

// Properties are what S3 keeps beside an object's content.
type Properties struct {
	// KMSKeyID is the KMS key with which S3 encrypts the object; empty means as the bucket says.
	KMSKeyID     string
	ContentType  string // default "application/octet-stream"
	CacheControl string // as in HTTP; default none
	// Public objects are encrypted with S3's own keys, whatever the bucket says: nobody can read others without credentials.
	Public bool
}

// Put writes an object, and returns the SHA-256 of its content in hex, as Head does. S3 compares the content with the
// digest before it keeps it.
func Put(ctx context.Context, c *aws.Client, at Ref, content []byte, p Properties) (sum string, err error) {
	digest := sha256.Sum256(content)
	in := &s3.PutObjectInput{
		Bucket: &at.Bucket, Key: &at.Key, Body: bytes.NewReader(content), ContentType: sdk.String(cmp.Or(p.ContentType, "application/octet-stream")),
		CacheControl: aws.NonZero(p.CacheControl), ChecksumSHA256: sdk.String(base64.StdEncoding.EncodeToString(digest[:])),
	}
	if p.Public {
		in.ServerSideEncryption = types.ServerSideEncryptionAes256
	}
	if p.KMSKeyID != "" {
		in.ServerSideEncryption, in.SSEKMSKeyId = types.ServerSideEncryptionAwsKms, &p.KMSKeyID
	}
	if _, err := c.S3.PutObject(ctx, in, at.region); err != nil {
		return "", fmt.Errorf("write %s: %w", at, err)
	}
	return hex.EncodeToString(digest[:]), nil
}

// Delete deletes an object. One that does not exist is no error.
func Delete(ctx context.Context, c *aws.Client, at Ref) error {
	if _, err := c.S3.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &at.Bucket, Key: &at.Key}, at.region); err != nil {
		return fmt.Errorf("delete %s: %w", at, noObject(err))
	}
	return nil
}

// Get returns the content of an object. An object of more than limit bytes is an error. The
// error wraps ErrNotFound if there is none.
func Get(ctx context.Context, c *aws.Client, at Ref, limit int64) ([]byte, error) {
	out, err := c.S3.GetObject(ctx, &s3.GetObjectInput{Bucket: &at.Bucket, Key: &at.Key}, at.region)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", at, noObject(err))
	}
	defer out.Body.Close()
	content, err := foreign.ReadAll(out.Body, limit, "S3")
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", at, err)
	}
	return content, nil
}

// Head returns the SHA-256 of an object's content in hex, as S3 knows it. It is empty if S3
// does not, because the object was not written by Put. The error wraps ErrNotFound if there is
// none.
func Head(ctx context.Context, c *aws.Client, at Ref) (sum string, err error) {
	out, err := c.S3.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &at.Bucket, Key: &at.Key, ChecksumMode: types.ChecksumModeEnabled}, at.region)
	if err != nil {
		return "", fmt.Errorf("look at %s: %w", at, noObject(err))
	}
	if digest, wrong := base64.StdEncoding.DecodeString(sdk.ToString(out.ChecksumSHA256)); wrong == nil && len(digest) == sha256.Size {
		sum = hex.EncodeToString(digest)
	} // that of a multipart upload ends with the number of parts, and is not one of the content
	return sum, nil
}

// Sum is Head that reads an object of at most limit bytes if S3 does not know its
// digest.
func Sum(ctx context.Context, c *aws.Client, at Ref, limit int64) (string, error) {
	sum, err := Head(ctx, c, at)
	if err != nil || sum != "" {
		return sum, err
	}
	content, err := Get(ctx, c, at, limit)
	if err != nil {
		return "", err
	}
	digest := sha256.Sum256(content)
	return hex.EncodeToString(digest[:]), nil
}

// noObject adds ErrNotFound to S3's answer that there is no object. An answer without a body says
// NotFound.
func noObject(err error) error {
	if aws.IsCode(err, "NoSuchKey", "NotFound") {
		return fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	return err
}
