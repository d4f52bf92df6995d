package cloud_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsiam "github.com/aws/aws-sdk-go-v2/service/iam"
	awssts "github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/cloudtest"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/iam"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/objects"
)

// TestIssuerInBucket: STS reads the keys of an issuer in this account's S3 as anybody could.
func TestIssuerInBucket(t *testing.T) {
	for name, url := range map[string]string{
		"virtual host": "https://keys.s3.us-east-1.amazonaws.com/cluster", "path": "https://s3.us-east-1.amazonaws.com/keys/cluster",
	} {
		t.Run(name, func(t *testing.T) {
			var store *objects.Store
			l := cloudtest.New(t, withS3(t, &store))
			b := bucketOf{s3(l), t, aws.String("keys")}
			b.create()
			issuer, stranger := cloudtest.NewIssuer(t), cloudtest.NewIssuer(t)
			write := func(jwks, keys string) {
				t.Helper()
				cloudtest.Refused(t, b.put("cluster/.well-known/openid-configuration", fmt.Sprintf(`{"issuer":%q,"jwks_uri":%q,"id_token_signing_alg_values_supported":["ES256"]}`, url, jwks)), "")
				cloudtest.Refused(t, b.put("cluster/keys.json", keys), "")
			}
			write(url+"/keys.json", string(issuer.Keys))
			made := cloudtest.Must[*awsiam.CreateOpenIDConnectProviderOutput](t)(awsiam.NewFromConfig(l.AWS).CreateOpenIDConnectProvider(t.Context(), &awsiam.CreateOpenIDConnectProviderInput{
				Url: &url, ClientIDList: []string{"sts.amazonaws.com"}, // S3's servers answer, so no thumbprint is needed
			}))
			role := cloudtest.Must[iam.Role](t)(l.Account.Identities().PutRole("pod", iam.Entity{}, fmt.Sprintf(
				`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"Federated":%q},"Action":"sts:AssumeRoleWithWebIdentity","Condition":{"StringEquals":{"%s:sub":"system:serviceaccount:default:app"}}}]}`,
				*made.OpenIDConnectProviderArn, strings.TrimPrefix(url, "https://"))))
			assume := func(code, says string, from *cloudtest.Issuer, change ...any) {
				t.Helper()
				claims := map[string]any{"iss": url, "sub": "system:serviceaccount:default:app", "aud": []string{"sts.amazonaws.com"}, "exp": l.Clock.Now().Add(time.Hour).Unix()}
				for n := 0; n < len(change); n += 2 {
					claims[change[n].(string)] = change[n+1]
				}
				token := from.Sign(t, claims)
				_, err := l.STS.AssumeRoleWithWebIdentity(t.Context(), &awssts.AssumeRoleWithWebIdentityInput{RoleArn: &role.ARN, RoleSessionName: aws.String("app"), WebIdentityToken: &token})
				if cloudtest.Refused(t, err, code); err != nil && !strings.Contains(err.Error(), says) {
					t.Error(err)
				}
			}
			const away = "Couldn't retrieve verification key"
			assume("InvalidIdentityToken", away, issuer)
			cloudtest.Refused(t, b.setBlock("ai"), "")
			assume("InvalidIdentityToken", away, issuer)
			cloudtest.Refused(t, b.setPolicy(b.allow(`"*"`, "s3:GetObject", "/cluster/*")), "")
			assume("", "", issuer)
			assume("InvalidIdentityToken", "signature", stranger)
			assume("InvalidIdentityToken", "audience", issuer, "aud", "kubernetes")
			assume("ExpiredTokenException", "expired", issuer, "exp", l.Clock.Now().Add(-time.Hour).Unix())
			assume("AccessDenied", "sts:AssumeRoleWithWebIdentity", issuer, "sub", "system:serviceaccount:default:other")
			write("https://keys.s3.us-east-1.amazonaws.com/cluster/keys.json", strings.Replace(string(issuer.Keys), `"kid":"1"`, `"kid":"2"`, 1))
			assume("InvalidIdentityToken", away, issuer)
			write("https://s3.us-east-1.amazonaws.com/keys/cluster/keys.json", string(stranger.Keys))
			assume("InvalidIdentityToken", "signature", issuer)
			assume("", "", stranger) // the keys are fetched each time
			write("http://s3.us-east-1.amazonaws.com/keys/cluster/keys.json", string(issuer.Keys))
			assume("InvalidIdentityToken", away, issuer)
			write(url+"/keys.json", string(issuer.Keys))
			assume("", "", issuer)
			cloudtest.Refused(t, b.setBlock("r"), "")
			assume("InvalidIdentityToken", away, issuer)
		})
	}
}
