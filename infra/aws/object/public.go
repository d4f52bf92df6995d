package object

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/snapshot"
)

// URL returns the URL of what is in a bucket below a key, without a slash at its end. region is the bucket's if the
// reference names none. https://docs.aws.amazon.com/AmazonS3/latest/userguide/VirtualHosting.html
func URL(at Ref, region string) string {
	host := strings.TrimPrefix(snapshot.Endpoint(cmp.Or(at.Region, region)), "https://")
	return strings.TrimRight("https://"+at.Bucket+"."+host+"/"+at.Key, "/")
}

// OpenAsAnybody opens an object as somebody without credentials, and returns the status of the answer. The content is
// empty unless that is 200. The error says that there was no answer.
func OpenAsAnybody(ctx context.Context, c *aws.Client, at Ref) (status int, content io.ReadCloser, err error) {
	anybody := s3.New(c.S3.Options(), func(o *s3.Options) { o.Credentials, o.RetryMaxAttempts = sdk.AnonymousCredentials{}, 3 })
	out, err := anybody.GetObject(ctx, &s3.GetObjectInput{Bucket: &at.Bucket, Key: &at.Key}, at.region)
	var refused *awshttp.ResponseError
	if errors.As(err, &refused) {
		return refused.HTTPStatusCode(), http.NoBody, nil
	}
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, out.Body, nil
}
