// Command roles is a program in a pod that uses a role of AWS as any program with AWS's SDK does: the environment says
// which role, and where the pod's token is. It prints what it got, or the code of AWS's error.
//
//	roles object BUCKET KEY    prints an object
//	roles metadata             prints the id of the instance, from the metadata service
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials/stscreds"
	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go"
)

func main() {
	text, err := run(os.Args[1:])
	var refused smithy.APIError
	if errors.As(err, &refused) {
		text, err = refused.ErrorCode(), nil
	}
	if err != nil {
		text = err.Error()
	}
	fmt.Println(text)
}

func run(args []string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	if args[0] == "metadata" {
		ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
		out, err := imds.New(imds.Options{}).GetMetadata(ctx, &imds.GetMetadataInput{Path: "instance-id"})
		if err != nil {
			return "no answer", nil
		}
		id, err := io.ReadAll(out.Content)
		return string(id), err
	}
	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return "", err
	}
	// The SDK of Go does so by itself, but then asks STS at another URL than AWS_ENDPOINT_URL.
	cfg.Credentials = stscreds.NewWebIdentityRoleProvider(sts.NewFromConfig(cfg), os.Getenv("AWS_ROLE_ARN"), stscreds.IdentityTokenFile(os.Getenv("AWS_WEB_IDENTITY_TOKEN_FILE")))
	out, err := s3.NewFromConfig(cfg, func(o *s3.Options) { o.UsePathStyle = true }).GetObject(ctx, &s3.GetObjectInput{Bucket: &args[1], Key: &args[2]})
	if err != nil {
		return "", err
	}
	content, err := io.ReadAll(out.Body)
	return string(content), err
}
