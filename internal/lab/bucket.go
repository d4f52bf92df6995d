package lab

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/objects"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/release"
)

// provideGateway builds the program that serves S3, if necessary.
func (l *Lab) provideGateway(ctx context.Context) error {
	if _, err := release.EnsureGateway(ctx, release.Options{CacheDir: l.cache, Progress: l.progress}); err != nil {
		return fmt.Errorf("the program that serves S3: %w", err)
	}
	return nil
}

// gateway returns the program that serves S3. The daemon does not build it: that takes minutes.
func (l *Lab) gateway() (string, error) {
	s, err := l.readSettings()
	if err != nil {
		return "", err
	}
	program, ok := release.Gateway(s.CacheDir)
	if !ok {
		return "", fmt.Errorf("%w: the program that serves S3 is not built yet; k8s-lab bucket NAME builds it", objects.ErrNotReady)
	}
	return program, nil
}

// CreateBucket creates an S3 bucket in the account of a running lab, as its owner. The first time
// on a host it builds the program that serves S3, which takes some minutes. An existing bucket
// stays as it is.
func (l *Lab) CreateBucket(ctx context.Context, name string) error {
	s, err := l.existingSettings()
	if err != nil {
		return err
	}
	if err := l.provideGateway(ctx); err != nil {
		return err
	}
	client := s3.New(s3.Options{
		Region: s.Region, BaseEndpoint: aws.String(s.endpoint()), UsePathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider(s.AccessKeyID, s.SecretAccessKey, ""),
	})
	if _, err := client.HeadBucket(ctx, &s3.HeadBucketInput{Bucket: &name}); err == nil {
		return nil
	}
	if _, err := client.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: &name}); err != nil {
		return fmt.Errorf("creating the bucket %s: %w", name, err)
	}
	return nil
}
