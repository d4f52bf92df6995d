package ec2_test

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/cloudtest"
)

func TestKeyPairs(t *testing.T) {
	l := cloudtest.New(t)
	ctx := t.Context()
	in := &awsec2.ImportKeyPairInput{KeyName: aws.String("me"), PublicKeyMaterial: []byte(cloudtest.PublicKey), TagSpecifications: cloudtest.Tags(types.ResourceTypeKeyPair, "cluster", "demo")}
	imported := cloudtest.Must[*awsec2.ImportKeyPairOutput](t)(l.ImportKeyPair(ctx, in))
	_, err := l.ImportKeyPair(ctx, in)
	cloudtest.Refused(t, err, "InvalidKeyPair.Duplicate")
	_, err = l.ImportKeyPair(ctx, &awsec2.ImportKeyPairInput{KeyName: aws.String("x"), PublicKeyMaterial: []byte("not a key")})
	cloudtest.Refused(t, err, "InvalidKey.Format")
	made := cloudtest.Must[*awsec2.CreateKeyPairOutput](t)(l.CreateKeyPair(ctx, &awsec2.CreateKeyPairInput{KeyName: aws.String("made"), KeyType: types.KeyTypeEd25519}))
	if made.KeyMaterial == nil || len(*made.KeyMaterial) < 100 {
		t.Error("no private key")
	}
	found := cloudtest.Must[*awsec2.DescribeKeyPairsOutput](t)(l.DescribeKeyPairs(ctx, &awsec2.DescribeKeyPairsInput{KeyNames: []string{"me"}, IncludePublicKey: aws.Bool(true)})).KeyPairs
	if len(found) != 1 || *found[0].KeyPairId != *imported.KeyPairId || *found[0].PublicKey != cloudtest.PublicKey || found[0].KeyType != types.KeyTypeEd25519 {
		t.Errorf("found %+v", found)
	}
	cloudtest.Must[*awsec2.DeleteKeyPairOutput](t)(l.DeleteKeyPair(ctx, &awsec2.DeleteKeyPairInput{KeyName: aws.String("me")}))
	cloudtest.Must[*awsec2.DeleteKeyPairOutput](t)(l.DeleteKeyPair(ctx, &awsec2.DeleteKeyPairInput{KeyName: aws.String("me")}))
	_, err = l.DescribeKeyPairs(ctx, &awsec2.DescribeKeyPairsInput{KeyNames: []string{"me"}})
	cloudtest.Refused(t, err, "InvalidKeyPair.NotFound")
}
